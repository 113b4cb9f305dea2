"""Steps that repeat: consecutive records are compared until nothing changes any more.

A step that leaves resident no more than the gradients of its backward pass and its result repeats. One that replaces
state (buckets of gradients, a cache, a history) is compared with the next: it may do so once, or in every step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

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


def first_repeated(graph: Graph, another: Callable[[], Graph]) -> Graph:
    """The first step that is equal to its predecessor, from the one of ``graph`` on; ``another`` records the next one.

    If none is within a few, or another step fails, it is the last one, and an assumption says what changes.
    """
    recorded = 1
    while changes_state(graph):
        if recorded == MOST_STEPS:
            return _with_note(graph, f"no step repeats the one before: of {recorded}, the last is recorded")
        try:
            following = another()
        except CaptureError as error:
            why = (error.reason or str(error)).partition("\n")[0]
            return _with_note(graph, f"the step may not repeat: another one fails ({why})")
        if repeats(graph, following):
            return following
        graph, recorded = following, recorded + 1
    return graph


def _with_note(graph: Graph, text: str) -> Graph:
    """``graph`` with the assumption that ``text`` and what grows are."""
    note = f"{text}. {grows(graph)}"
    return replace(graph, meta=replace(graph.meta, assumptions=(*graph.meta.assumptions, note)))


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
    named = {graph.tensors[each.tensor].storage for each in graph.named if not _RESULT.fullmatch(each.name)}
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
