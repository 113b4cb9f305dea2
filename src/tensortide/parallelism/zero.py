"""ZeRO: data-parallel ranks that shard optimizer state (1), gradients too (2), parameters too (3).

Gradients are combined by reduce-scatters, so that each rank has its part of every one; it updates that part of the
parameters with its part of the state, element by element. At stages 1 and 2 an all-gather makes the parameters whole
again after the update; at stage 3 they are gathered for each unit of modules, in the forward and again in the backward
pass, and released after it. Ranks may shard in groups, each of which has all: then the parts of gradients are averaged
over the groups as well (hybrid sharding).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from tensortide.dtypes import storage_bytes
from tensortide.errors import DegreesError
from tensortide.graph.communication import kind_of
from tensortide.graph.model import Call, Graph, Named, Op, Role, Tensor
from tensortide.graph.module_paths import named_after
from tensortide.parallelism.draft import Draft, Hole, allocation, compacted
from tensortide.parallelism.gathered import gather_parameters, unit_of
from tensortide.parallelism.gradients import Bucket, Replicas, buckets, scaled
from tensortide.parallelism.listed import lists_of
from tensortide.parallelism.partials import Partials
from tensortide.parallelism.rules import rule_of
from tensortide.parallelism.rules.pointwise import pointwise
from tensortide.parallelism.sites import base_name, with_values
from tensortide.timelines.data_parallel import BUCKET_BYTES

replace = msgspec.structs.replace

GROUP = "zero"
"""Name of a group of ranks that shard among themselves, where there are several."""
ACROSS = "zero_data"
"""Name of the group of ranks that have the same part, one of each such group."""
_CROSSING = ("send", "recv")
"""Ops by which values cross between pipeline stages."""


def sharded_state(graph: Graph, replicas: Replicas, stage: int, limit: int = BUCKET_BYTES) -> Graph:
    """``graph`` with what ZeRO ``stage`` shards among ``replicas``, and its collectives.

    Raises DegreesError if the optimizer is not element-wise.
    """
    draft = Draft(graph)
    shards = _Shards(draft, replicas, stage)
    names = {graph.tensors[e.tensor].storage: e.name for e in graph.named}
    unit: Callable[..., str] | None = None
    if stage == 3:
        unit = lambda gradient: unit_of(names[gradient.storage].removesuffix(".grad"))  # noqa: E731  # a key
    found = buckets(graph, replicas, limit, unit)
    for bucket in found:
        shards.scatter(bucket)
    shards.update(_update_ops(graph))
    shards.shrink_old_gradients()
    if stage < 3:
        for bucket in found:
            shards.gather(bucket, names)
    else:
        gather_parameters(draft, shards.parameters & shards.parts.keys(), replicas)
    return compacted(draft.finished(named=tuple(map(shards.named, graph.named))))


def _update_ops(graph: Graph) -> range:
    """The ops after the backward pass."""
    return range(graph.index.backward_end, len(graph.ops))


@dataclass(slots=True)
class _Shards:
    """Flat parts of tensors: ``parts`` are those of whole storages, by storage."""

    draft: Draft
    replicas: Replicas
    stage: int
    parameters: set[int] = field(default_factory=set)
    parts: dict[int, int] = field(default_factory=dict)
    flat: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        graph = self.draft.graph
        for entry in graph.named:
            if entry.role is Role.PARAMETER and entry.trainable and self.replicas.has(entry.name):
                self.parameters.add(graph.tensors[entry.tensor].storage)

    def length(self, tensor: int) -> int:
        """Elements of one rank's part of a tensor; the last rank's is padded."""
        return -(-self.draft.graph.tensors[tensor].numel // self.replicas.ranks)

    def scatter(self, bucket: Bucket) -> None:
        """Insert the reduce-scatter of a bucket."""
        like = self.draft.graph.ops[bucket.ready]
        inputs, outputs, made = [], [], []
        for gradient in bucket.gradients:
            view, length = self.draft.tensors[gradient.tensor], self.length(gradient.tensor)
            storage = self.draft.storages[gradient.storage]
            if self.stage == 1 or storage.birth is None:
                start = view.offset + self.replicas.rank * length
                part = self.draft.tensor(Tensor(gradient.storage, view.dtype, (length,), (1,), start))
            else:
                part = self.draft.fresh(gradient.tensor, (length,), Role.GRADIENT, name=storage.name)
                self.draft.lasting.add(self.draft.tensors[part].storage)
                self.draft.storages[gradient.storage] = replace(storage, role=Role.TEMPORARY, name="")
                self.draft.derived.add(gradient.storage)
                made.append(allocation(self.draft, part, like))
            self.parts[gradient.storage] = part
            inputs.append(Hole(gradient.tensor))
            outputs.append(Hole(part))
        tensors, name = {"outputs": tuple(outputs), "inputs": tuple(inputs)}, "reduce_scatter_tensor_coalesced_"
        scatter = self.draft.collective(name, tensors, self.replicas.group, "avg", like=like, async_op=True)
        self.draft.insert(bucket.ready + 1, *scaled(self.draft, bucket, self.replicas, like), *made, scatter)
        if self.replicas.across:
            parts, name = {"tensors": tuple(outputs)}, "allreduce_coalesced_"
            reduce = self.draft.collective(name, parts, self.replicas.across, "avg", like=like, async_op=True)
            self.draft.insert(bucket.ready + 1, reduce)

    def gather(self, bucket: Bucket, names: dict[int, str]) -> None:
        """Insert the all-gather of the parameters of a bucket after the update."""
        graph = self.draft.graph
        whole = {e.name: e.tensor for e in graph.named if e.role is Role.PARAMETER}
        tensors = [whole[name] for g in bucket.gradients if (name := names[g.storage].removesuffix(".grad")) in whole]
        if not tensors:
            return
        outputs, inputs = tuple(map(Hole, tensors)), tuple(Hole(self._part(tensor)) for tensor in tensors)
        given, name = {"outputs": outputs, "inputs": inputs}, "allgather_into_tensor_coalesced_"
        end = next((i for i in _update_ops(graph) if base_name(graph.calls[graph.ops[i].call].op) in _CROSSING), None)
        place = len(graph.ops) if end is None else end  # before parameters are sent to other stages
        gather = self.draft.collective(name, given, self.replicas.group, like=graph.ops[-1], async_op=True)
        self.draft.insert(place, gather)

    def update(self, indexes: Iterable[int]) -> None:
        """Turn the ops at ``indexes``, those after the backward pass, into ops on parts."""
        graph = self.draft.graph
        partials = Partials(self.draft, self.replicas.group, self.replicas.ranks)
        sharded = set(self.parts) | self.parameters
        sharded |= self._states()
        self.flat = {tensor.storage for tensor in graph.tensors if tensor.numel > 1 and tensor.storage in sharded}
        for index in indexes:
            op = graph.ops[index]
            touched = [t for t in (*op.inputs, *op.outputs) if graph.tensors[t].storage in self.flat]
            made: dict[int, str] = {}
            name = base_name(graph.calls[op.call].op)
            if touched and (self.stage == 3 or name not in _CROSSING):
                made = self._on_parts(index, op)
            partials.read(index, self.draft.replaced.get(index, [op])[0], made)

    def shrink_old_gradients(self) -> None:
        """Shard the gradients that the step before left, which this one releases, where gradients are sharded."""
        graph = self.draft.graph
        for entry in graph.named:
            storage = graph.tensors[entry.tensor].storage
            waits = graph.storages[storage].birth is None and not graph.index.users[storage]
            waits = waits and self.replicas.has(entry.name)
            if self.stage > 1 and entry.role is Role.GRADIENT and waits:
                self.flat.add(storage)
                self._part(entry.tensor)

    def _states(self) -> set[int]:
        """The storages of optimizer state of the parameters of these replicas, by their names."""
        graph = self.draft.graph
        names = {entry.name for entry in graph.named if entry.role is Role.PARAMETER}
        return {
            number
            for number, storage in enumerate(graph.storages)
            if storage.role is Role.OPTIMIZER_STATE
            and (not (owner := named_after(storage.name, names)) or self.replicas.has(owner))
        }

    def _on_parts(self, index: int, op: Op) -> dict[int, str]:
        """Replace an element-wise op by one on parts; the outputs that are partial if it is a norm."""
        graph = self.draft.graph
        call = graph.calls[op.call]
        name = base_name(call.op)
        if name in ("_foreach_norm", "linalg_vector_norm"):
            inputs = tuple(map(self._part, op.inputs))
            self.draft.replaced[index] = [replace(op, inputs=inputs)]
            pairs = zip(op.inputs, op.outputs, strict=True)
            return {out: "norm" for tensor, out in pairs if graph.tensors[tensor].storage in self.flat}
        works = "view" in call.tags or rule_of(call.op, call.tags) is pointwise
        works = works or kind_of(call.op) == "all_reduce"
        if not (works or name.startswith(("_foreach_", "_fused_", *_CROSSING))):
            raise DegreesError(
                f"zero={self.stage} shards optimizers that work element by element; this step has {call.op} on a "
                f"parameter, a gradient or a state at op {index}"
            )
        if not self.replicas.only and not self.replicas.without:
            self.flat.update(graph.tensors[t].storage for t in op.inputs if graph.tensors[t].numel > 1)
        inputs = tuple(map(self._part, op.inputs))
        sources = zip(op.outputs, _beside(call, op), strict=True)
        owner = graph.index.owner
        fresh = [t for t, of in sources if graph.tensors[t].numel > 1 and any(owner[i] in self.flat for i in of)]
        self.flat.update(graph.tensors[t].storage for t in fresh)
        outputs = tuple(map(self._part, op.outputs))
        if isinstance(dict(call.arguments).get("size"), tuple) and outputs:
            call = with_values(call, {"size": self.draft.tensors[outputs[0]].shape})
        self.draft.replaced[index] = [replace(op, call=self.draft.call(call), inputs=inputs, outputs=outputs)]
        return {}

    def _part(self, tensor: int) -> int:
        """This rank's part of a tensor, flat; the tensor itself if it is not sharded."""
        view = self.draft.graph.tensors[tensor]
        if view.storage not in self.flat and view.storage not in self.parameters:
            return tensor
        known = self.parts.get(view.storage)
        if known is not None:
            return known
        length = self.length(tensor)
        cut = view.storage not in self.parameters or self.stage == 3
        offset = 0 if cut else self.replicas.rank * length
        part = self.draft.tensor(Tensor(view.storage, view.dtype, (length,), (1,), offset))
        if cut:
            storage = self.draft.storages[view.storage]
            self.draft.storages[view.storage] = replace(storage, nbytes=storage_bytes(view.dtype, (length,)))
        return self.parts.setdefault(view.storage, part)

    def named(self, entry: Named) -> Named:
        """The named tensor, or this rank's part of it where its storage is sharded."""
        storage = self.draft.graph.tensors[entry.tensor].storage
        kept = (storage in self.parameters and self.stage < 3) or (entry.role is Role.GRADIENT and self.stage == 1)
        return entry if kept or storage not in self.parts else replace(entry, tensor=self.parts[storage])


def _beside(call: Call, op: Op) -> list[tuple[int, ...]]:
    """The inputs that each output of an op is made of: of an op over lists those at its position, of others all."""
    lists = lists_of([value for _, value in call.arguments], op.inputs)
    beside = [each for each in lists if len(each) == len(op.outputs)]
    return list(zip(*beside, strict=True)) if beside else [op.inputs] * len(op.outputs)
