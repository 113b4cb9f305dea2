"""An axis of a step in parts: what each tensor, storage and call is in one of them, and which ops can be divided so."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import NamedTuple

import msgspec

from tensortide.graph.effects import draws_random
from tensortide.graph.model import Call, Graph, Phase, Role, Storage, Tensor
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.local import StoredAxis, distance, local_offset, localized
from tensortide.parallelism.rules.products import CONVOLUTIONS
from tensortide.parallelism.sites import Partial, base_name

replace = msgspec.structs.replace

COMBINED = {"sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "norm": "hypot"}
"""The op that combines two partial results, by how they are combined. Parts of a mean are weighted first."""
_SUMMANDS = {"addmm": "self", "baddbmm": "self", **dict.fromkeys(CONVOLUTIONS, "bias")}
"""Products that add one of their arguments, which one part alone must add."""


class Facts:
    """Facts derived once from the ``analysis`` of a step. ``leaves``: the finest axes of each tensor;
    ``given``: tensors that are there before the step; ``views``: the op that makes any other one as a view;
    ``of_storage``: the tensors of each storage."""

    def __init__(self, analysis: Analysis, *, keep_random: bool = False) -> None:
        self.analysis, self.graph, self.keep_random = analysis, analysis.graph, keep_random
        graph = self.graph
        self.leaves = [analysis.all_leaves(t) for t in range(len(graph.tensors))]
        self.is_view = [view.is_view for view in graph]
        made: set[int] = set()
        self.given = {entry.tensor for entry in graph.named if self._before(entry.tensor)}
        self.views: dict[int, int] = {}
        for index, op in enumerate(graph.ops):
            self.given.update(t for t in op.inputs if t not in made and self._before(t))
            if self.is_view[index]:
                self.views.update({t: index for t in op.outputs if t not in made and t not in self.given})
            made.update(op.outputs)
        self.of_storage: dict[int, list[int]] = defaultdict(list)
        for number, tensor in enumerate(graph.tensors):
            self.of_storage[tensor.storage].append(number)
        self.needs = analysis.axes.all_needs
        parameters = [e.tensor for e in graph.named if e.role is Role.PARAMETER]
        self.of_parameters = {axis for tensor in parameters for axis in self.leaves[tensor]}

    def _before(self, tensor: int) -> bool:
        return self.graph.storages[self.graph.tensors[tensor].storage].birth is None


class Slab(NamedTuple):
    """A storage as (outer, size, inner) elements of ``itemsize`` bytes, ``size`` of them along the divided axis."""

    outer: int
    size: int
    inner: int
    dtype: str


class AxisSplit:
    """The finest axis ``axis`` of a step in parts of ``sizes``."""

    def __init__(self, facts: Facts, axis: Axis, sizes: tuple[int, ...]) -> None:
        self.facts, self.axis, self.sizes = facts, axis, sizes
        self.total = sum(sizes)
        self.starts = tuple(sum(sizes[:part]) for part in range(len(sizes)))
        self._slabs: dict[int, Slab | str | None] = {}
        self._whys: dict[int, str] = {}

    @property
    def graph(self) -> Graph:
        return self.facts.graph

    def __len__(self) -> int:
        return len(self.sizes)

    def carries(self, tensor: int) -> bool:
        """Return whether a tensor is divided."""
        return self.axis in self.facts.leaves[tensor]

    def slab(self, storage: int) -> Slab | None:
        """The layout of the axis in a storage; None where it has none, or only in dimensions that repeat memory."""
        found = self._slab(storage)
        return None if isinstance(found, str) else found

    def _slab(self, storage: int) -> Slab | str | None:
        if storage not in self._slabs:
            self._slabs[storage] = self._found_slab(storage)
        return self._slabs[storage]

    def _found_slab(self, storage: int) -> Slab | str | None:
        """The slab of a storage, or the reason why its memory is not divided."""
        found: set[tuple[int, str]] = set()
        for number in self.facts.of_storage[storage]:
            if self.axis not in self.facts.leaves[number]:
                continue
            if self.facts.leaves[number].count(self.axis) > 1:
                return "has the axis twice"
            distances = self.facts.analysis.distances(number)
            found.update((at, self.graph.tensors[number].dtype) for leaf, at in distances if at and leaf == self.axis)
        if not found:
            return None
        (inner, dtype), *others = sorted(found)
        held = int(self.graph.storages[storage].nbytes)
        elements, rest = divmod(held, Tensor(0, dtype, (), ()).itemsize)
        outer, left = divmod(elements, self.total * inner)
        if others or rest or left:
            return "does not lie in its memory in equal strides"
        return Slab(outer, self.total, inner, dtype)

    def tensor(self, number: int, part: int) -> Tensor:
        """A tensor as one part has it; its storage is still that of the whole."""
        tensor = self.graph.tensors[number]
        slab = self.slab(tensor.storage)
        size, total = self.sizes[part], self.total
        places = [] if slab is None else [StoredAxis(slab.inner, total, size)]
        shape = []
        for axis in self.facts.analysis.dims[number]:
            leaves = self.facts.analysis.axes.leaves([axis])
            whole = self.facts.analysis.axes.size
            shape.append(math.prod(size if leaf == self.axis else whole[leaf] for leaf in leaves) if leaves else 1)
        for dim, axis in enumerate(self.facts.analysis.dims[number]):
            if not self.facts.analysis.axes.leaves([axis]):
                shape[dim] = self.facts.analysis.axes.size[axis]
        strides = tuple(distance(stride, places) for stride in tensor.strides)
        return replace(tensor, shape=tuple(shape), strides=strides, offset=local_offset(tensor.offset, places))

    def storage(self, number: int, part: int) -> Storage:
        """A storage as one part has it."""
        held = self.graph.storages[number]
        return replace(held, nbytes=int(held.nbytes) * self.sizes[part] // self.total)

    def call(self, index: int, part: int) -> Call:
        """The call of an op as one part makes it."""
        op = self.graph.ops[index]
        tensors = {
            t: self.tensor(t, part) if self.carries(t) else self.graph.tensors[t] for t in (*op.inputs, *op.outputs)
        }
        return localized(self.graph.calls[op.call], self.graph, op.inputs, op.outputs, tensors)

    def partials(self, index: int) -> dict[int, str]:
        """The outputs of an op that are partial in each part, and how they are combined."""
        leaves = self.facts.analysis.axes.leaves
        found: list[Partial] = self.facts.analysis.partials.get(index, [])
        return {p.output: p.how for p in found if self.axis in leaves(p.axes)}

    def touched(self, index: int) -> bool:
        """Return whether an op has the axis in any of its tensors."""
        op = self.graph.ops[index]
        return any(map(self.carries, (*op.inputs, *op.outputs)))

    def why_whole(self, index: int) -> str:
        """The reason why the op at ``index`` is not done part by part; empty if it can be."""
        if index not in self._whys:
            self._whys[index] = self._reason(index)
        return self._whys[index]

    def _reason(self, index: int) -> str:
        graph, facts = self.graph, self.facts
        op = graph.ops[index]
        call = graph.calls[op.call]
        name = base_name(call.op)
        if not self.touched(index):
            return "none of its tensors has the axis"
        why = facts.needs.get(self.axis, {}).get(index, "") or self._over_classes(index, name)
        if why:
            return why
        if facts.keep_random and draws_random(call):
            return "it draws random numbers, which stay in one place"
        for tensor in (*op.inputs, *op.outputs):
            found = self._slab(graph.tensors[tensor].storage)
            if isinstance(found, str):
                return f"a tensor of it {found}"
        for slot in call.mutated:
            if not self.carries(op.inputs[slot]):
                return "it writes a tensor that has not the axis"
        partials = self.partials(index)
        for output in op.outputs:
            if output in partials and (partials[output] not in COMBINED or name == "_addmm_activation"):
                return f"its parts cannot be combined ({partials[output]})"
        if partials and name in _SUMMANDS and {"alpha", "beta"} & dict(call.arguments).keys():
            return "it scales what it adds"
        return ""

    def _over_classes(self, index: int, name: str) -> str:
        """The reason why an op over a table or over classes is not divided along these."""
        op = self.graph.ops[index]
        arguments = dict(self.graph.calls[op.call].arguments)
        if name == "embedding":
            tensor, dim = op.inputs[0], 0
        elif name == "embedding_dense_backward":
            tensor, dim = op.outputs[0], 0
        elif name in ("_log_softmax", "_log_softmax_backward_data"):
            tensor, dim = op.inputs[0], arguments["dim"]  # type: ignore[assignment]  # a number
        elif name.startswith("nll_loss"):
            tensor = op.inputs[1 if name.endswith("backward") else 0]
            dim = 1 if len(self.graph.tensors[tensor].shape) > 1 else 0
        else:
            return ""
        divided = self.axis in self.facts.analysis.axes.leaves([self.facts.analysis.dims[tensor][dim]])
        return (
            f"{self.graph.calls[op.call].op} needs all {'rows' if 'embedding' in name else 'classes'}"
            if divided
            else ""
        )


def summand_of(name: str) -> str:
    """The argument that a product adds; empty for any other op."""
    return _SUMMANDS.get(name, "")


@functools.cache
def product_of(name: str) -> str:
    """The op that computes the product ``name`` without what it adds; empty where it is the same op."""
    return {"addmm": "aten.mm.default", "baddbmm": "aten.bmm.default"}.get(name, "")


def is_update(phase: Phase) -> bool:
    """Return whether a phase comes after the passes."""
    return phase in (Phase.OPTIMIZER, Phase.OTHER)
