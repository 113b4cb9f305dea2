"""Savings of memory by a plan: tensors recomputed, and tensors moved, by op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tensortide.graph.model import OUTSIDE, Graph
from tensortide.graph.unroll import unrolled
from tensortide.plans.model import Compute, Copy, Evict, Fetch, Offload, Plan


@dataclass(frozen=True, slots=True)
class Saving:
    """Treatment by a plan of the tensors that one op makes, or of one that exists before the step (``op`` -1).

    ``storages`` were released before a later use: ``link`` is the link that brought them back, empty if ``recomputed``,
    the ops that ran again for it in ``time_ns``, did.
    """

    op: int
    storages: tuple[int, ...]
    nbytes: int
    recomputed: int = 0
    time_ns: int = 0
    link: str = ""


@dataclass(slots=True)
class _Seen:
    released: set[int] = field(default_factory=set)
    returned: dict[int, dict[int, None]] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    moved: dict[str, dict[int, None]] = field(default_factory=dict)


def savings(graph: Graph, plan: Plan, durations_ns: Sequence[int]) -> tuple[Saving, ...]:
    """The savings of ``plan``, in the order of the ops that make the tensors; -1 is before the step.

    An op that runs again without bringing any storage back (it renames memory) has a Saving without storages.
    """
    graph = unrolled(graph)
    allocated, seen = graph.index.allocated, _Seen()
    for step in plan.lanes[0].steps:
        if isinstance(step, Evict | Offload):
            seen.released.add(step.storage)
        if isinstance(step, Compute):
            seen.runs[step.op] = seen.runs.get(step.op, 0) + 1
            for storage in seen.released.intersection(allocated[step.op]):
                seen.returned.setdefault(step.op, {})[storage] = None
                seen.released.discard(storage)
        elif isinstance(step, Copy | Offload | Fetch):
            seen.moved.setdefault(step.link, {})[step.storage] = None
    return tuple(sorted(_savings(graph, seen, durations_ns), key=lambda saving: (saving.op, saving.link)))


def _savings(graph: Graph, seen: _Seen, durations_ns: Sequence[int]) -> Iterator[Saving]:
    def total(storages: dict[int, None]) -> int:
        return sum(int(graph.storages[storage].nbytes) for storage in storages)

    for op, runs in seen.runs.items():
        back = seen.returned.get(op, {})
        if runs > 1:
            yield Saving(op, tuple(back), total(back), runs - 1, (runs - 1) * durations_ns[op])
    for link, storages in seen.moved.items():
        by_op: dict[int, dict[int, None]] = {}
        for storage in storages:
            birth = graph.storages[storage].birth
            if birth is None:
                yield Saving(OUTSIDE, (storage,), int(graph.storages[storage].nbytes), link=link)
            else:
                by_op.setdefault(birth, {})[storage] = None
        for op, moved in by_op.items():
            yield Saving(op, tuple(moved), total(moved), link=link)
