"""The times of many steps in a row: stationary, or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from tensortide.progress import Say, silent
from tensortide.recorder.target import parse_settings
from tensortide.request import Arg, Opt
from tensortide.shown import Show, Shown
from tensortide.targets.opening import step_of
from tensortide.targets.requests import ClockRequest, MeasuredOn, Settings
from tensortide.timing.stationarity import FINEST, Stationarity, last_batches, require_enough, stationarity


@dataclass(frozen=True, kw_only=True)
class SteadyRequest(ClockRequest):
    """Measure a step many times, and test whether its times are stationary."""

    target: Annotated[str, Arg("Name of an example, or file.py:function.")]
    set: Settings = ()
    repeat: Annotated[int, Opt("Steps to measure, after warming up: 8 or more.", common=True)] = 50
    drop_last: Annotated[
        int | None,
        Opt("Batches of an epoch, the last of which is smaller: judge the steps without it, too.", least=2),
    ] = None
    device: MeasuredOn = "cpu"


class TimedStep(NamedTuple):
    """A step: its time, that against the median of the steps that are judged, and whether it is far from it (an
    ``outlier``) or is not judged, as the last batch of an epoch (``dropped``)."""

    step: Annotated[int, Show("Step")]
    time_ns: Annotated[float, Show("Time")]
    residual_change: Annotated[float, Show("Off the median")]
    deviations: Annotated[float, Show("Standard deviations")]
    outlier: Annotated[bool, Show("Outlier")]
    dropped: Annotated[bool, Show("Last batch")]


@dataclass(frozen=True, repr=False)
class Steady(Shown):
    """The times of steps in a row, ns, their statistics, and those ``without`` the last batch of each epoch. ``where``
    says how they were measured."""

    SECTION = "measurements.of_steady"

    name: str
    where: str
    ns: tuple[float, ...]
    steps: Stationarity
    without: Stationarity | None = None

    @property
    def judged(self) -> Stationarity:
        """The statistics that tell whether the step is stationary."""
        return self.steps if self.without is None else self.without

    @property
    def timed(self) -> tuple[TimedStep, ...]:
        """Every step."""
        judged, rows = self.judged, []
        outliers, kept = {one.step for one in judged.outliers}, {*judged.steps}
        for step, ns in enumerate(self.ns):
            away = ns / judged.median_ns - 1
            deviations = round(away / max(judged.deviation_share, FINEST), 1)
            rows.append(TimedStep(step, ns, away, deviations, step in outliers, step not in kept))
        return tuple(rows)


def answer(asked: SteadyRequest, say: Say = silent) -> Steady:
    """Measure the step many times, and test its times.

    Raises:
        RequestError: the target is no workload.
        WorkloadError: there are too few steps to tell.
    """
    from tensortide.profile.host import describe
    from tensortide.profile.measure import measure_steps

    dropped = 0 if asked.drop_last is None else -(-asked.repeat // asked.drop_last)
    require_enough(asked.repeat - dropped)
    found = step_of(asked.target, "time steady")
    values = parse_settings(asked.set, found.function, found.name)
    how = asked.conditions(asked.device)
    times = measure_steps(
        found.function, hyperparameters=values, name=found.name, progress=say, repeats=asked.repeat, **how
    )
    where = f"{asked.repeat} steps after {times.warm_up} of warm-up, {asked.clock} time, on {describe(times.machine)}"
    without = None
    if asked.drop_last is not None:
        without = stationarity(times.ns, last_batches(asked.repeat, times.first, asked.drop_last))
    return Steady(found.name, where, times.ns, stationarity(times.ns), without)
