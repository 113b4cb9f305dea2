"""An axis of a step in parts: what each tensor, storage and call is in one of them, and which ops can be divided so."""

from __future__ import annotations

import functools
from collections import defaultdict
from typing import NamedTuple

from msgspec.structs import replace

from tensortide.dtypes import ITEM_BYTES
from tensortide.graph.effects import draws_random
from tensortide.graph.model import Call, Graph, Phase, Role, Storage, Tensor
from tensortide.parallelism.analysis import Analysis
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.local import StoredAxis, local_tensor, localized
from tensortide.parallelism.local_forms import ADDENDS, over
from tensortide.parallelism.propagate import Division
from tensortide.parallelism.sites import base_name

COMBINED = {"sum": "add", "avg": "add", "max": "maximum", "min": "minimum", "norm": "hypot"}
"""The op that combines two partial results, by how they are combined. Parts of a mean are weighted first."""


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
        elements, rest = divmod(held, ITEM_BYTES[dtype])
        outer, left = divmod(elements, self.total * inner)
        if others or rest or left:
            return "does not lie in its memory in equal strides"
        return Slab(outer, self.total, inner, dtype)

    def tensor(self, number: int, part: int) -> Tensor:
        """A tensor as one part has it; its storage is still that of the whole."""
        slab, size = self.slab(self.graph.tensors[number].storage), self.sizes[part]
        unit = 1 if slab is None else ITEM_BYTES[slab.dtype]
        places = [] if slab is None else [StoredAxis(slab.inner * unit, self.total, size)]
        whole = self.facts.analysis.axes.size
        return local_tensor(
            self.facts.analysis, number, lambda leaf: size if leaf == self.axis else whole[leaf], places
        )

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
        return Division(self.facts.analysis, frozenset({self.axis}), len(self.sizes), "").partials(index)

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
        why = facts.needs.get(self.axis, {}).get(index, "") or self._over_classes(index)
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
        if partials and name in ADDENDS and {"alpha", "beta"} & dict(call.arguments).keys():
            return "it scales what it adds"
        return ""

    def _over_classes(self, index: int) -> str:
        """The reason why an op over a table or over classes is not divided along these."""
        op = self.graph.ops[index]
        call, analysis = self.graph.calls[op.call], self.facts.analysis
        where = over(call, op, self.graph.tensors)
        if where is None or self.axis not in analysis.axes.leaves([analysis.dims[where[0]][where[1]]]):
            return ""
        return f"{call.op} needs all {'rows' if 'embedding' in call.op else 'classes'}"


@functools.cache
def product_of(name: str) -> str:
    """The op that computes the product ``name`` without what it adds; empty where it is the same op."""
    return {"addmm": "aten.mm.default", "baddbmm": "aten.bmm.default"}.get(name, "")


def is_update(phase: Phase) -> bool:
    """Return whether a phase comes after the passes."""
    return phase in (Phase.OPTIMIZER, Phase.OTHER)
