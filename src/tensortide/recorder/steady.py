"""Steps that repeat: consecutive records are compared until nothing changes any more.

A step that leaves resident no more than the gradients of its backward pass and its result repeats. One that replaces
state (buckets of gradients, a cache, a history) is compared with the next: it may do so once, or in every step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import cast

from msgspec.structs import replace

from tensortide.errors import CaptureError
from tensortide.graph.model import Graph, Phase, Role, Storage
from tensortide.units import format_bytes

MOST_STEPS = 4
"""Most steps that are recorded to find one which repeats."""
_SMALL_BYTES = 512
"""Storages below this size, the least block of an allocator, are losses and counters: what keeps them is no state."""
_NAMED = 3
"""Most names of what grows that are listed."""
_INDEX = re.compile(r"\[[^]]*\]")
_RESULT = re.compile(r"output(\[\d+\])?")


class Search:
    """Search for the first step that is equal to its predecessor, in the records of steps in a row."""

    def __init__(self) -> None:
        self._recorded = 0
        self._last: Graph | None = None
        self._ended = False

    def ends(self, graph: Graph) -> bool:
        """Note the record of the next step. Returns True if it is the one, or if no other is to be tried."""
        before, self._last = self._last, graph
        self._recorded += 1
        self._ended = not changes_state(graph) or (before is not None and repeats(before, graph))
        return self._ended or self._recorded == MOST_STEPS

    def result(self, why: str = "") -> Graph | None:
        """The record of the last step, if there is one. If that does not repeat, an assumption says what grows, and
        ``why`` no other was recorded."""
        graph = self._last
        if graph is None or self._ended:
            return graph
        why = why or (f"of {self._recorded}, the last is recorded" if self._recorded > 1 else "no other was recorded")
        note = f"no step repeats the one before: {why}. {grows(graph)}"
        return replace(graph, meta=replace(graph.meta, assumptions=(*graph.meta.assumptions, note)))


def first_repeated(another: Callable[[], Graph]) -> Graph:
    """The first step that repeats; ``another`` records the next one. Raises CaptureError if the first cannot be."""
    search = Search()
    try:
        while not search.ends(another()):
            pass
    except CaptureError as error:
        why = (error.reason or str(error)).partition("\n")[0]
        if (last := search.result(f"another one fails ({why})")) is not None:
            return last
        raise
    return cast(Graph, search.result())


def is_result(name: str) -> bool:
    """True for the name of a tensor that the step returns."""
    return _RESULT.fullmatch(name) is not None


def changes_state(graph: Graph) -> bool:
    """True if the step leaves state that it made: anything with a name but its result, or the gradients of its backward
    pass."""
    return any(True for _ in _made(graph))


def repeats(before: Graph, after: Graph) -> bool:
    """True if two steps in a row run the same ops on the same shapes, and leave as many bytes resident."""
    return _left(before) == _left(after) and _ops(before) == _ops(after)


def grows(graph: Graph) -> str:
    """The state that a step leaves larger than it found it, by name."""
    by_name: Counter[str] = Counter()
    for storage in _made(graph):
        by_name[_INDEX.sub("", storage.name)] += int(storage.nbytes)
    for storage in graph.storages:
        if storage.birth is None and storage.death is not None:
            by_name[_INDEX.sub("", storage.name)] -= int(storage.nbytes)
    grown = [f"{name} by {format_bytes(count)}" for name, count in by_name.most_common() if count > 0]
    more = f" and {len(grown) - _NAMED} more" if len(grown) > _NAMED else ""
    return f"Each step grows {', '.join(grown[:_NAMED])}{more}" if grown else "Its ops or their sizes change"


def _made(graph: Graph) -> Iterator[Storage]:
    """Storages of state that were born in the step and outlive it."""
    named = {graph.tensors[each.tensor].storage for each in graph.named if not is_result(each.name)}
    for index, storage in enumerate(graph.storages):
        if storage.birth is None or storage.death is not None or storage.nbytes < _SMALL_BYTES:
            continue
        renewed = storage.role is Role.GRADIENT and graph.ops[storage.birth].phase is Phase.BACKWARD
        state = index in named if storage.role is Role.OUTPUT else bool(storage.name)
        if state and not renewed and storage.role is not Role.INPUT:  # of a step that runs, a batch
            yield storage


def _left(graph: Graph) -> int:
    """Bytes that are resident at the end of a step."""
    return sum(int(each.nbytes) for each in graph.storages if each.death is None and each.nbytes >= _SMALL_BYTES)


def _ops(graph: Graph) -> list[object]:
    return [(op.name, [t.shape for t in op.inputs], [t.shape for t in op.outputs]) for op in graph]
