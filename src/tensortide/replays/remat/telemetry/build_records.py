"""Builds the records of a run from the engine that was observed playing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.replays.remat.telemetry.marks import NEVER
from tensortide.replays.remat.telemetry.observed_engine import Observed, observed
from tensortide.replays.remat.telemetry.records import (
    Counters,
    Moments,
    OpRecord,
    StorageRecord,
    Telemetry,
    TensorRecord,
)
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.simulation import Simulation
    from tensortide.replays.remat.simulator import Simulator


def telemetry(simulator: Simulator, simulation: Simulation) -> Telemetry:
    """Collect the telemetry of ``simulation``, a run of ``simulator``, by replaying its trace.

    Linear in the trace, but for the upkeep of the plain engine. Raises PlanError if ``simulation`` is not a run of
    ``simulator``.
    """
    import numpy as np

    seen, schedule = observed(simulator, simulation), simulation.schedule
    names = _Names(schedule)
    return Telemetry(
        tuple(_tensors(seen, schedule, names)),
        tuple(_storages(seen, schedule, names)),
        tuple(_ops(seen, schedule, names)),
        Moments(*(np.array(column, np.int64) for column in seen.rows)),
        _counters(seen, simulation, simulator.compat),
        seen.stop,
    )


class _Names:
    """Names of ops and of what they make."""

    def __init__(self, schedule: Schedule) -> None:
        graph = schedule.graph
        reads = schedule.input_ends[1:] > schedule.input_ends[:-1]
        self.op = [
            graph.calls[graph.ops[i].call].op if i >= 0 else "update" if is_reading else "constant"
            for i, is_reading in zip(schedule.origin.tolist(), reads.tolist(), strict=True)
        ]
        self.module = [graph.module_path(graph.ops[i].module) if i >= 0 else "" for i in schedule.origin.tolist()]
        self.storage = [graph.storages[i].name for i in schedule.storage_origin.tolist()]


def _moment(event: int) -> int | None:
    return None if event == NEVER else event


def _tensors(seen: Observed, schedule: Schedule, names: _Names) -> Iterator[TensorRecord]:
    roots, marks = schedule.root.tolist(), seen.value
    for value, op in enumerate(seen.op_of):
        storage, index = seen.storage[value], value - seen.outputs[op][0]
        yield TensorRecord(
            id=value,
            name=names.storage[storage] or f"{names.op[op]}:{index}",
            op=op,
            op_name=names.op[op],
            index=index,
            storage=storage,
            is_view=value != roots[storage] and seen.replaces[value] < 0,
            nbytes=seen.nbytes[value],
            compute_ns=seen.cost_ns[op],
            birth=_moment(marks.birth[value]),
            death=_moment(marks.death[value]),
            last_model_use=_moment(marks.last[0][value]),
            last_remat_use=_moment(marks.last[1][value]),
            model_uses=marks.uses[0][value],
            remat_uses=marks.uses[1][value],
            direct_remats=seen.direct[value],
            collateral_remats=seen.collateral[value],
            pinned_model_uses=marks.pinned[0][value],
            pinned_remat_uses=marks.pinned[1][value],
        )


def _storages(seen: Observed, schedule: Schedule, names: _Names) -> Iterator[StorageRecord]:
    roots, marks = schedule.root.tolist(), seen.stored
    for storage, origin in enumerate(schedule.storage_origin.tolist()):
        yield StorageRecord(
            id=storage,
            root=roots[storage],
            graph_storage=origin,
            name=names.storage[storage],
            role=schedule.graph.storages[origin].role.value,
            nbytes=seen.storage_bytes[storage],
            tensors=len(seen.values[storage]),
            birth=_moment(marks.birth[storage]),
            death=_moment(marks.death[storage]),
            last_model_use=_moment(marks.last[0][storage]),
            last_remat_use=_moment(marks.last[1][storage]),
            model_uses=marks.uses[0][storage],
            remat_uses=marks.uses[1][storage],
            evictions=seen.evictions[storage],
            forced=seen.forced[storage],
            remats=seen.remats[storage],
            pinned=_moment(seen.pins[storage]),
            banished=_moment(seen.banishings[storage]),
        )


def _ops(seen: Observed, schedule: Schedule, names: _Names) -> Iterator[OpRecord]:
    for op, origin in enumerate(schedule.origin.tolist()):
        roots = (schedule.root[seen.storage[value]] == value for value in seen.outputs[op])
        yield OpRecord(
            id=op,
            graph_op=_moment(origin),
            name=names.op[op],
            module=names.module[op],
            outputs=len(seen.outputs[op]),
            compute_ns=seen.cost_ns[op],
            nbytes=seen.totals[op],
            is_aliasing=bool(seen.outputs[op]) and not any(roots),
            runs=seen.runs[op],
            recomputations=seen.recomputations[op],
        )


def _counters(seen: Observed, simulation: Simulation, compat: bool) -> Counters:
    outcome = simulation.outcome
    return Counters(
        evaluations=outcome.evaluations,
        accesses=outcome.accesses,
        evictions=sum(seen.evictions),
        forced=sum(seen.forced),
        banished=seen.trace_kinds.count(Kind.BANISH),
        direct_remats=sum(seen.direct),
        collateral_remats=sum(seen.collateral),
        bottleneck_bytes=max(_needs(seen, compat), default=0),
        constant_bytes=simulation.schedule.constant_bytes,
    )


def _needs(seen: Observed, compat: bool) -> Iterator[int]:
    """Bytes of what each op that ran reads, makes and takes meanwhile; by the rules of DTR's simulator views read
    nothing, and what is read twice counts twice."""
    for op, runs in enumerate(seen.runs):
        if not runs:
            continue
        if compat:
            read = _sum(seen.nbytes, seen.inputs[op])
        else:
            read = _sum(seen.storage_bytes, {seen.storage[value] for value in seen.inputs[op]})
        yield read + seen.totals[op] + seen.extra_bytes[op]


def _sum(sizes: Sequence[int], which: Sequence[int] | set[int]) -> int:
    return sum(sizes[index] for index in which)
