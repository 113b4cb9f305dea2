"""Regions of a forward pass that are recomputed as a whole: repeated blocks, and the core of attention.

A *block* is the modules whose paths begin alike up to their first number (``blocks.3``), as ``parallelism.gathered``
has them. The *core of attention* is that of selective recomputation (Korthikanti et al., arXiv 2205.05198, section 5):
the product of queries and keys, the softmax of it, dropout, and the product with the values, with the copies that
arrange them for these products. It is found by what it computes, not by names of modules: from a softmax back to a
product of two activations, and on to the next such product; or it is one fused op.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tensortide.errors import DegreesError
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.parallelism.gathered import unit_of

PRODUCTS = ("aten.bmm", "aten.baddbmm", "aten.mm", "aten.addmm")
COPY = "aten.clone.default"
SOFTMAX = ("aten._softmax", "aten._safe_softmax")
FUSED = (
    "aten._scaled_dot_product",
    "aten.scaled_dot_product",
    "aten._flash_attention_forward",
    "aten._efficient_attention_forward",
    "aten._cudnn_attention_forward",
)
"""Beginnings of the names of ops that are all of the core."""


def blocks(graph: Graph) -> list[list[int]]:
    """The forward ops of each repeated block. Raises DegreesError for a step that has none."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for index in _forward(graph):
        module = graph.ops[index].module
        unit = "" if module == OUTSIDE else unit_of(f"{graph.modules[module].path}.")
        if unit:
            found[unit].append(index)
    if not found:
        raise DegreesError("the step has no repeated blocks to recompute: no path of a module has a number")
    return list(found.values())


def attention_cores(graph: Graph) -> list[list[int]]:
    """The ops of each core of attention. Raises DegreesError for a step that has none."""
    flow = _Flow(graph)
    found = []
    for index in flow.forward:
        name = graph[index].name
        if name.startswith(FUSED):
            found.append([index])
        elif name.rpartition(".")[0] in SOFTMAX and (core := flow.core(index)):
            found.append(core)
    if not found:
        raise DegreesError(
            "the step has no attention whose core could be recomputed: no fused attention, and no softmax between "
            "two products of activations"
        )
    return found


def is_fused(graph: Graph, region: Iterable[int]) -> bool:
    """Tell whether ``region`` is a fused op of attention, which keeps no scores."""
    return any(graph[index].name.startswith(FUSED) for index in region)


def _forward(graph: Graph) -> list[int]:
    return [i for i, op in enumerate(graph.ops) if op.phase is Phase.FORWARD and not op.recompute]


class _Flow:
    """Dependencies of forward ops: each with the ops whose results it reads."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.forward = _forward(graph)
        self.before: dict[int, set[int]] = {}
        self.after: defaultdict[int, set[int]] = defaultdict(set)
        writer: dict[int, int] = {}
        for index in self.forward:
            self.before[index] = {writer[storage] for storage in graph.index.needs[index] if storage in writer}
            for earlier in self.before[index]:
                self.after[earlier].add(index)
            writer.update(dict.fromkeys(graph.index.writes[index], index))

    def core(self, softmax: int) -> list[int]:
        """The ops from the products before ``softmax`` to the products after it; none if it is no attention."""
        starts = self._products(softmax, self.before)
        ends = self._products(softmax, self.after)
        if not starts or not ends or any(map(self._reads_parameter, (*starts, *ends))):
            return []
        below, above = self._reached(starts, self.after), self._reached(ends, self.before)
        found = (below & above) | starts | ends
        found |= self._copies(found)
        kept = {storage for index in found - ends for storage in self.graph.index.allocated[index]}
        views = {i for i in self.forward if self.graph[i].is_view and kept.issuperset(self.graph.index.reads[i])}
        return sorted(found | views)

    def _copies(self, core: set[int]) -> set[int]:
        """Copies of queries, keys and values into the layout that the products of ``core`` read."""
        found: set[int] = set()
        waiting = list(core)
        while waiting:
            new = {i for i in self.before[waiting.pop()] - found - core if self.graph[i].name == COPY}
            found |= new
            waiting += new
        return found

    def _products(self, start: int, neighbours: Mapping[int, set[int]]) -> set[int]:
        """The first products on all ways from ``start``."""
        found: set[int] = set()
        seen, waiting = {start}, [start]
        while waiting:
            for index in neighbours.get(waiting.pop(), set()) - seen:
                seen.add(index)
                if self.graph[index].name.rpartition(".")[0] in PRODUCTS:
                    found.add(index)
                else:
                    waiting.append(index)
        return found

    def _reached(self, starts: set[int], neighbours: Mapping[int, set[int]]) -> set[int]:
        found, waiting = set(starts), list(starts)
        while waiting:
            new = neighbours.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found

    def _reads_parameter(self, index: int) -> bool:
        storages = (self.graph.storages[storage] for storage in self.graph.index.reads[index])
        return any(storage.role is Role.PARAMETER for storage in storages)


def inside(graph: Graph, region: Iterable[int]) -> Iterator[int]:
    """Storages that ``region`` makes and that no other forward op reads."""
    own = set(region)
    made = {storage for index in own for storage in graph.index.allocated[index]}
    others = {s for index in _forward(graph) if index not in own for s in graph.index.reads[index]}
    yield from sorted(made - others)
