"""Parameters that are whole only while a unit of modules needs them.

A unit is a repeated block: the modules whose paths begin alike up to the first number. Parameters of no block, and
those that several blocks share, are one unit more, which stays gathered from its first use to its last. The backward
pass of a unit begins with a gather, as that of FullyShardedDataParallel does, even if it reads no parameter.
"""

from __future__ import annotations

from collections.abc import Collection

from tensortide.graph.model import OUTSIDE, Phase, Tensor
from tensortide.parallelism.draft import Draft, Hole, allocation
from tensortide.parallelism.gradients import Replicas


def unit_of(name: str) -> str:
    """The unit of a parameter: its path up to the first number, empty for the root's.

    >>> unit_of("model.layers.3.mlp.up_proj.weight")
    'model.layers.3'
    """
    parts = name.split(".")
    place = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if place is None else ".".join(parts[: place + 1])


def gather_parameters(draft: Draft, parameters: Collection[int], replicas: Replicas) -> None:
    """Make the ops before the update read gathered copies of ``parameters``, which are storages of parts by now."""
    graph = draft.graph
    names = {graph.tensors[e.tensor].storage: e.name for e in reversed(graph.named)}
    windows: dict[tuple[str, bool], list[int]] = {}
    units = {unit_of(names[storage]) for storage in parameters}
    paths = [unit_of(module.path) for module in graph.modules]
    for index, op in enumerate(graph.ops[: graph.index.backward_end]):
        here = "" if op.module == OUTSIDE else paths[op.module]
        if here in units and here and op.phase is Phase.BACKWARD:  # whether or not it reads a parameter
            windows.setdefault((here, True), []).append(index)
        for tensor in op.inputs:
            storage = graph.tensors[tensor].storage
            if storage in parameters:
                unit = unit_of(names[storage])
                windows.setdefault((unit, bool(unit) and op.phase is Phase.BACKWARD), []).append(index)
    for (unit, _), uses in windows.items():
        members = sorted(s for s in parameters if unit_of(names[s]) == unit)
        _gather(draft, members, range(uses[0], uses[-1] + 1), replicas)


def _gather(draft: Draft, members: list[int], window: range, replicas: Replicas) -> None:
    """Gather the storages ``members`` before a window of ops, one buffer for each dtype, and let its ops read that."""
    graph, like, ranks = draft.graph, draft.graph.ops[window.start], replicas.ranks
    bases = {s: max((t for t in graph.tensors if t.storage == s), key=lambda t: t.numel) for s in members}
    moved: dict[int, tuple[int, int]] = {}
    for dtype in dict.fromkeys(base.dtype for base in bases.values()):
        here = {s: base for s, base in bases.items() if base.dtype == dtype}
        lengths = {s: -(-base.numel // ranks) for s, base in here.items()}
        model = next(t for t, tensor in enumerate(graph.tensors) if tensor.storage == next(iter(here)))
        buffer = draft.fresh(model, (sum(lengths.values()) * ranks,))
        storage = draft.tensors[buffer].storage
        at, outputs, inputs = 0, list[Hole](), list[Hole]()
        for member, length in lengths.items():
            moved[member] = storage, at
            outputs.append(Hole(draft.tensor(Tensor(storage, dtype, (length * ranks,), (1,), at))))
            inputs.append(Hole(draft.tensor(Tensor(member, dtype, (length,), (1,), 0))))
            at += length * ranks
        given, name = {"outputs": tuple(outputs), "inputs": tuple(inputs)}, "allgather_into_tensor_coalesced_"
        gather = draft.collective(name, given, replicas.group, like=like, async_op=True)
        draft.insert(window.start, allocation(draft, buffer, like), gather)
    for index in window:
        op = draft.replaced.get(index, [graph.ops[index]])[0]  # another unit's parameters may have moved already
        if any(draft.tensors[t].storage in moved for t in (*op.inputs, *op.outputs)):
            draft.replaced[index] = [draft.moved(op, moved)]
