"""Durations of an execution trace's ops from the profiler's trace of the same run, joined by numbers of calls."""

from __future__ import annotations

from tensortide.errors import TimesError
from tensortide.importers.execution.graph import Traced
from tensortide.recorder import resolver
from tensortide.timing.durations import Durations
from tensortide.timing.kineto import HostOp, Trace
from tensortide.timing.standins import from_samples
from tensortide.timing.traced import timer


def durations_of(traced: Traced, trace: Trace) -> Durations:
    """Durations of the ops of ``traced`` from ``trace``: of the call with the op's number and name.

    Raises TimesError if no op has one.
    """
    calls = {op.record: op for op in trace.ops if op.record is not None}
    time = timer(traced.graph, trace)
    joined: list[HostOp | None] = []
    reasons: dict[int, str] = {}
    for index, node in enumerate(traced.nodes):
        call = calls.get(node.record)
        if call is None:
            reasons[index] = f"the profiler's trace has no call number {node.record}"
        elif call.name != node.name:
            reasons[index] = f"call number {node.record} of the profiler's trace is {call.name}"
        joined.append(None if index in reasons else call)
    if len(reasons) == len(traced.nodes):
        raise TimesError(
            f"{trace.path} is of another run: of {len(joined):,} ops of the execution trace none has its number and "
            f"name there ({reasons[0]}).\nTake both traces in one run: profile(execution_trace_observer=...)."
        )
    found = f"{len(joined) - len(reasons):,} of {len(joined):,} ops found by number and name"
    return from_samples(
        traced.graph,
        [[] if call is None else [time(index, call)] for index, call in enumerate(joined)],
        missing=reasons.__getitem__,
        source=f"{trace.path}; {found}",
        resolver=resolver,
        how="trace",
        clock="kernel" if trace.kernels else "wall",
        notes=(found,),
    )
