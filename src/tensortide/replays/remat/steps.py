"""From what happened in a run, simulated or live, to the steps of a Plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tensortide.plans import Compute, Evict
from tensortide.plans.lifetimes import Life, lives, users
from tensortide.replays.remat.outcome import TraceKind

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.model import Step


def steps(graph: Graph, happened: Iterable[tuple[int, int]], *, collect: bool = True) -> Iterator[Step]:
    """The steps of the Plan of ``graph`` that amounts to what ``happened``: kinds of a trace (``outcome.RUN``, ...),
    each with an op or a storage of ``graph``. ``collect``: what was dropped for good never comes back."""
    resident = {i: None for i, s in enumerate(graph.storages) if s.birth is None and s.death != 0}
    born: list[list[int]] = [[] for _ in graph.ops]
    for index, storage in enumerate(graph.storages):
        if storage.birth is not None:
            born[storage.birth].append(index)
    dropped: set[int] = set()
    yield from (Evict(i) for i, s in enumerate(graph.storages) if s.birth is None and s.death == 0)
    for kind, index in happened:
        if kind in (TraceKind.EVICT, TraceKind.BANISH, TraceKind.DEAD):
            if kind != TraceKind.EVICT and collect:
                dropped.add(index)
            if kind != TraceKind.DEAD:
                del resident[index]
                yield Evict(index)
            continue
        yield Compute(index)
        resident.update(dict.fromkeys(s for s in born[index] if s not in dropped))
        yield from (Evict(s) for s in born[index] if s in dropped)
    life = lives(graph, users(graph))
    yield from (Evict(storage) for storage in resident if life[storage] in (Life.LOCAL, Life.NEVER))
