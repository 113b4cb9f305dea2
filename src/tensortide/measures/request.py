"""Every metric of a step or of a saved status: what is asked, and what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tensortide.errors import ExitStatus, UnknownCost
from tensortide.graph import Graph
from tensortide.importers.door import resolve
from tensortide.measures.compat.figures import Figure, figures, samples
from tensortide.measures.layers import Layers
from tensortide.measures.profiler import Profiler
from tensortide.measures.status import SUFFIX, Status, load_status
from tensortide.measures.subject import StepSubject
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, OutFile, Request
from tensortide.shown import Shown
from tensortide.targets.machines import device_named
from tensortide.targets.opening import opened
from tensortide.targets.requests import TARGET, CaptureRequest, Strict, refuse
from tensortide.timing import Durations

_STATUS = "saved status"


@dataclass(frozen=True, kw_only=True)
class MetricsRequest(Request):
    """The metrics of a step."""

    GROUP = "Which metrics"

    target: Annotated[str, Arg(TARGET)]
    layers: Annotated[
        Literal["op", "module"] | None,
        Opt("Add the layer table: a row for each op, or for each module without those inside it.", common=True),
    ] = None
    compat: Annotated[
        Literal["deeplite"] | None,
        Opt("Add the figures of deeplite-profiler, and why they differ: of an inference forward."),
    ] = None
    long: Annotated[bool, Opt("Explain what each metric is.", of=("step", _STATUS), common=True)] = False
    exclude: Annotated[tuple[str, ...], Opt("Leave a metric out.", of=("step", _STATUS), value="METRIC")] = ()
    output: Annotated[
        Path | None,
        OutFile("Save the metrics to a file (NAME.status.json) that tensortide compare reads.", "--output -o"),
    ] = None
    capture: CaptureRequest = CaptureRequest()
    strict: Strict = False


@dataclass(frozen=True, repr=False)
class Measured(Shown):
    """The ``metrics`` of a step, its Graph and times, and the tables that are asked for. Of a saved status alone there
    is no Graph. ``wrote`` is the file that was asked for."""

    SECTION = "metrics.of_measured"

    asked: MetricsRequest
    metrics: Status
    graph: Graph | None = None
    durations: Durations | None = None
    layers: Layers | None = None
    figures: Sequence[Figure] | None = None
    wrote: tuple[Path, ...] = ()

    @property
    def status(self) -> ExitStatus:
        """HOLDS: nothing is asked of the figures."""
        return ExitStatus.HOLDS


def answer(asked: MetricsRequest, say: Say = silent) -> Measured:
    """Every metric of the target, written where that is asked for.

    Raises:
        RequestError: the target is a saved status, and an option goes with a step.
        MetricError: there is no metric of a name to exclude, or the step is none that deeplite-profiler takes.
        UnknownCost: as ``strict`` asks, if an op has no cost rule.
    """
    if asked.target.endswith(SUFFIX) and Path(asked.target).exists():
        refuse(asked, f"{asked.target} is a saved status", _STATUS)
        return _written(Measured(asked, load_status(asked.target)))
    if asked.capture.machine is not None:
        device_named(asked.capture.machine)  # an error for what has no times
    step = opened(resolve(asked.target), asked.capture, say, strict=asked.strict)
    profiler = Profiler(StepSubject(step.graph, times=step.durations))
    for name in asked.exclude:
        profiler.registry[name]
    given: dict[str, Any] = {} if asked.capture.machine is None else {"machine": asked.capture.machine}
    profiler.compute_all(**given)
    if asked.strict and profiler["unknown_ops"]:
        raise UnknownCost(f"--strict: {profiler['unknown_ops']} ops have no cost rule: tensortide count --missing")
    found = Measured(
        asked,
        profiler.status,
        profiler.subject.captured().graph,
        step.durations,
        None if asked.layers is None else profiler.layers(asked.layers),
        None if asked.compat is None else figures(step.graph, batch=samples(step.graph)),
    )
    return _written(found)


def _written(found: Measured) -> Measured:
    path = found.asked.output
    return found if path is None else replace(found, wrote=(found.metrics.save(path),))
