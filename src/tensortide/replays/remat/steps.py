"""Translation of the events of a run, simulated or live, to the steps of a Plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Evict
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.model import Step


def steps(graph: Graph, happened: Iterable[tuple[int, int]], *, collect: bool = True) -> Iterator[Step]:
    """The steps of the Plan of ``graph`` that amounts to what ``happened``: kinds of a trace (``outcome.RUN``, ...),
    each with an op or a storage of ``graph``. ``collect``: what was dropped for good never comes back."""
    resident = {i: None for i, s in enumerate(graph.storages) if s.birth is None and s.death != 0}
    allocated = graph.index.allocated
    dropped: set[int] = set()
    yield from (Evict(i) for i, s in enumerate(graph.storages) if s.birth is None and s.death == 0)
    for kind, index in happened:
        if kind in (Kind.EVICT, Kind.BANISH, Kind.DEAD):
            if kind != Kind.EVICT and collect:
                dropped.add(index)
            if kind != Kind.DEAD:
                del resident[index]
                yield Evict(index)
            continue
        yield Compute(index)
        resident.update(dict.fromkeys(s for s in allocated[index] if s not in dropped))
        yield from (Evict(s) for s in allocated[index] if s in dropped)
    residence = residences(graph)
    yield from (Evict(s) for s in resident if residence[s] in (Residence.LOCAL, Residence.NEVER))
