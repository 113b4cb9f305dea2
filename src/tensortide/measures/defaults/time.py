"""Times: of a step, predicted or measured, and of forward calls of a live model."""

from __future__ import annotations

import statistics

from tensortide.errors import Unavailable
from tensortide.measures.metric import Comparative, Metric
from tensortide.measures.registry import metric
from tensortide.measures.subject import Subject


@metric(
    Metric("step_time", "Step time", "ns", "time of one step: predicted for ``machine``, else as its ops were timed"),
    Metric("step_time_low", "Step time, 80 % from", "ns", "lower end of the 80 % interval of the step time", ""),
    Metric("step_time_high", "Step time, 80 % to", "ns", "upper end of the 80 % interval of the step time", ""),
    Metric(
        "utilization",
        "Model FLOPs utilization",
        "share",
        "FLOPs of products, recomputation left out, over what the machine could do in the step time at dense peak",
        "higher",
        Comparative.DIFF,
    ),
)
def step_time(subject: Subject, machine: str | None = None) -> dict[str, float | None]:
    """Predict the step on a machine as ``--machine`` takes it, or sum up the known times of its ops."""
    if machine is None:
        from tensortide.timing.totals import total

        durations, graph = subject.durations, subject.captured().graph
        found, mfu = total(durations, range(len(graph))), None
    else:
        from tensortide.targets.machines import machines_of
        from tensortide.timelines.machines import step_on

        predicted = step_on(subject.captured().graph, machines_of(machine))
        found, mfu = predicted.step_time, predicted.mfu_share
    if found.unknown:
        raise Unavailable(f"the times of {found.unknown} ops are not known")
    return {
        "step_time": round(found.time_ns),
        "step_time_low": round(found.low_ns),
        "step_time_high": round(found.high_ns),
        "utilization": mfu,
    }


@metric(
    Metric("execution_time", "Forward time", "ns", "median time of a forward call of the model, per batch"),
    Metric("execution_time_mean", "Forward time, mean", "ns", "mean time of a forward call, per batch"),
    Metric("execution_time_p10", "Forward time, p10", "ns", "time that 10 % of forward calls do not exceed, per batch"),
    Metric("execution_time_p90", "Forward time, p90", "ns", "time that 90 % of forward calls do not exceed, per batch"),
    Metric("execution_runs", "Forward calls timed", "count", "forward calls that were timed", "", Comparative.NONE),
    Metric("throughput", "Throughput", "number", "samples per second at the median", "higher", Comparative.RECIPROCAL),
)
def execution_time(
    subject: Subject, batch_size: int | None = None, warmup: int = 5, runs: int = 20
) -> dict[str, float | None]:
    """Measure forward calls in evaluation mode, without gradients, after ``warmup`` calls: the outermost call alone."""
    times, samples = subject.forward_times_ns(batch_size, warmup=warmup, runs=runs)
    ordered = sorted(times)
    median = statistics.median(ordered)
    return {
        "execution_time": round(median),
        "execution_time_mean": round(statistics.fmean(ordered)),
        "execution_time_p10": _quantile(ordered, 10),
        "execution_time_p90": _quantile(ordered, 90),
        "execution_runs": len(ordered),
        "throughput": None if samples is None or not median else 1e9 * samples / median,
    }


def _quantile(ordered: list[int], percent: int) -> int:
    """The smallest of the ``ordered`` times that ``percent`` of them do not exceed."""
    return ordered[-(-percent * len(ordered) // 100) - 1]
