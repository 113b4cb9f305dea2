"""Durations of the ops that were read from a profiler's trace, from that trace."""

from __future__ import annotations

from tensortide.importers.kineto.graph import Traced
from tensortide.recorder import resolver
from tensortide.timing.durations import Durations
from tensortide.timing.kineto import Trace
from tensortide.timing.standins import from_samples
from tensortide.timing.traced import timer


def durations_of(traced: Traced, trace: Trace) -> Durations:
    """Return the time of each op: of its kernels, in a trace with kernels, else of its call."""
    calls = {(op.name, op.start_ns): op for op in trace.ops}
    time = timer(traced.graph, trace)
    found = [calls.get((op.name, op.start_ns)) for op in traced.calls]
    return from_samples(
        traced.graph,
        [[] if call is None else [time(index, call)] for index, call in enumerate(found)],
        missing=lambda index: f"the trace has no time of op {index}",
        source=trace.path,
        resolver=resolver,
        how="trace",
        clock="kernel" if trace.kernels else "wall",
        notes=(f"{len(found):,} ops of the trace",),
    )
