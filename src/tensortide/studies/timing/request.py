"""The times of a step as a request: the target, the source of its times, and the files and views made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from tensortide.errors import ExitStatus, RequestError, TensortideError
from tensortide.graph import Graph
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.recorder.script_command import Script
from tensortide.request import Arg, Opt, OutFile, Request, exclusive, needs
from tensortide.shown import Shown
from tensortide.targets.durations import captured_for, predicted_on, predicted_steps, timed, with_durations
from tensortide.targets.machines import (
    device_named,
    full_name,
    is_local,
    machines_of,
    one_of,
    require_distinct,
    say_wiring,
    strict_name,
)
from tensortide.targets.opening import graph_of
from tensortide.targets.requests import (
    TARGET,
    CaptureRequest,
    Depth,
    LinkRatesRequest,
    MeasureRequest,
    TimedRequest,
    TimesRequest,
    Top,
    single_machine,
)
from tensortide.timelines.machines import MachineStep
from tensortide.timelines.step import Launch, StepTimeline, step_timeline
from tensortide.timing import Device, Durations, device, save_durations
from tensortide.timing.attention import KERNELS, Kernel, basis, is_known, with_kernel
from tensortide.timing.collectives import Nodes
from tensortide.timing.durations import SUFFIX
from tensortide.timing.samples import remember
from tensortide.timing.standins import require_all, unpredicted

_MEASURED = ("measure", "isolated")
_GIVEN = ("durations", *_MEASURED, "recorded", "against")
"""Options of times that are not predicted."""


@dataclass(frozen=True, kw_only=True)
class TimeRequest(Request):
    """Predict, measure or read the time of every op of a step."""

    GROUP = "Prediction"

    target: Annotated[str, Arg(TARGET)] = ""
    output: Annotated[
        Path | None,
        OutFile(
            f"Write the durations; NAME{SUFFIX} beside NAME.tide is found by verbs that need times.",
            "--output -o",
            common=False,
        ),
    ] = None
    remember: Annotated[
        bool,
        Opt(
            "Store the measured times: predictions for this device take them for the same calls.",
            group="How times are measured",
        ),
    ] = False
    against: Annotated[
        str | None,
        Opt("Predict the measured step for this machine too, and show the difference op by op.", value="NAME"),
    ] = None
    launch: Annotated[Launch, Opt("Predict ops that the host issues one by one, or a captured graph of them.")] = (
        "eager"
    )
    attention: Annotated[
        Kernel | None,
        Opt(
            "Predict fused attention at the speed of another kernel than that of the captured ops: "
            f"{', '.join(KERNELS)}.",
            group="Prediction",
        ),
    ] = None
    times: TimesRequest = TimesRequest()
    how: MeasureRequest = MeasureRequest()
    depth: Depth = 3
    top: Top = 15
    capture: CaptureRequest = CaptureRequest()
    links: LinkRatesRequest = LinkRatesRequest()

    RULES = (
        exclusive("durations", "machines", "measure", "isolated", "recorded"),
        needs("attention", "machines", why="kernels have a speed on each machine"),
        *(exclusive("attention", name, why="it is of predicted times") for name in _GIVEN),
        needs("steps", *_MEASURED),
        needs("clock", *_MEASURED),
        needs("threads", *_MEASURED),
        single_machine("output", "write a file for each"),
    )


class Against(NamedTuple):
    """A measured step as it is predicted for a ``machine``."""

    machine: str
    step: StepTimeline


@dataclass(frozen=True, repr=False)
class TimedStep(Shown):
    """The durations of the ops of a step, and the step ``predicted`` on each machine. ``wrote`` are the files that were
    asked for; ``top`` and ``depth`` the rows and levels of modules that text shows."""

    SECTION = "timed_step"

    name: str
    graph: Graph
    durations: Durations
    predicted: tuple[MachineStep, ...] = ()
    against: Against | None = None
    wrote: tuple[Path, ...] = ()
    top: int = 15
    depth: int = 3

    @property
    def status(self) -> ExitStatus:
        """HOLDS: nothing is asked of the times."""
        return ExitStatus.HOLDS


def answer(asked: TimeRequest, say: Say = silent) -> TimedStep:
    """The times of the ops, written and stored where that is asked for.

    Raises:
        RequestError: options do not go with the target or with the times that it has.
        UnknownCost: ``strict``, and an op has no known time.
    """
    chosen = _machines(asked)
    graph, durations = _durations(asked, say)
    # Each machine has kernels of its own, so a workload is captured for each.
    graphs = captured_for(asked.target, asked.capture, graph) if len(chosen) > 1 else [graph]
    graphs = [with_kernel(each, asked.attention) for each in graphs]
    predicted = predicted_steps(graphs, durations, chosen, asked.launch)
    if asked.how.strict:
        _require_known(graph, durations, predicted)
    against = None if asked.against is None else _against(asked.against, asked, graph, durations)
    wrote = [] if asked.output is None else [save_durations(durations, asked.output)]
    if asked.remember:
        wrote.append(_remember(graph, durations))
    name = graph.meta.workload if isinstance(resolve(asked.target), Script) else str(asked.target)
    return TimedStep(
        *(name, graph, durations, tuple(predicted), against, tuple(wrote)), top=asked.top, depth=asked.depth
    )


def _machines(asked: TimeRequest) -> list[Nodes]:
    """The machines that are asked for. Raises RequestError for those that do not go together."""
    strict, rates, ranks = asked.how.strict, asked.links.rates, asked.capture.ranks
    chosen = [machines_of(text, strict=strict, rates=rates) for text in asked.capture.machines]
    if ranks and (other := next((one for one in chosen if one.size not in (1, ranks)), None)):
        raise RequestError(f"--ranks {ranks} captures one of {ranks} processes; {other} has {other.size}")
    require_distinct(chosen)
    if (kernel := asked.attention) is not None:
        for one in chosen:
            if not is_known(one.device, kernel):
                raise RequestError(f"--attention {kernel}: {basis(one.device, kernel)}, in scale alone")
    asked.links.require_several(max([1, *(one.size for one in chosen)]), max([1, *(one.count for one in chosen)]))
    for one in chosen:
        say_wiring(one)
    return chosen


def _durations(asked: TimeRequest, say: Say) -> tuple[Graph, Durations]:
    """The step, and its durations on the first machine."""
    capture = replace(asked.capture, machines=tuple(map(one_of, asked.capture.machines[:1])))
    if asked.how.recorded is not None:
        source = resolve(asked.how.recorded)
        if not isinstance(source, File) or not source.importer.has("step"):
            raise RequestError(f"{source}: --from takes a profiler's trace or a list of times")
        step = source.read(step=graph_of(asked.target, capture))
    elif asked.attention is not None:
        own = Imported(with_kernel(graph_of(asked.target, capture, say), asked.attention))
        step = with_durations(own, TimesRequest(), capture.machine, say=say)
    elif asked.how.isolated:
        alone = Imported(graph_of(asked.target, capture))
        step = with_durations(alone, TimesRequest(measure=True), say=say, **asked.how.conditions(capture.device))
    else:
        found = resolve(asked.target)
        if asked.times.measure and isinstance(found, File):
            raise RequestError(
                f"{found}, which has no step to run.\nMeasure the workload it was captured from, or its ops alone "
                "(--isolated), or give a trace of it (--from)."
            )
        step = timed(found, TimedRequest(capture=capture, times=asked.times), asked.how, say=say)
    assert step.durations is not None
    return step.graph, step.durations


def _require_known(graph: Graph, durations: Durations, predicted: Sequence[MachineStep]) -> None:
    """Raise UnknownCost if an op has no known time, measured or predicted."""
    if durations.measurement is not None:
        require_all(graph, durations.measurement.stand_ins)
    for machine in predicted:
        require_all(machine.graph, unpredicted(machine.graph, machine.durations))


def _remember(graph: Graph, durations: Durations) -> Path:
    """Store the measured times under the device's name in the catalogue, where it has one."""
    found = durations.measurement
    if found is None or found.machine is None:
        raise RequestError("--remember goes with --measure, --isolated, or a trace that names its device (--from)")
    name = found.machine.name
    with contextlib.suppress(TensortideError):  # the catalogue does not know every device
        name = device(name).name
    return remember(graph, durations, name, resolver=resolver)


def _against(machine: str, asked: TimeRequest, graph: Graph, durations: Durations) -> Against:
    """The measured step as it is predicted for a machine. Raises RequestError if it was not measured."""
    if durations.measurement is None:
        raise RequestError("--against goes with --measure, --isolated or --from")
    row = _measured_on(durations, machine, strict=asked.how.strict)
    return Against(row.name, step_timeline(graph, predicted_on(graph, row), row, asked.launch))


def _measured_on(durations: Durations, machine: str, *, strict: bool) -> Device:
    """The device of that name; the CPU at hand with as many threads as ``durations`` were measured with."""
    found = durations.measurement.machine if durations.measurement is not None else None
    if found is None or not is_local(machine):
        return device_named(strict_name(machine) if strict else full_name(machine))
    from tensortide.profile.host import chosen_threads

    with chosen_threads(found.threads):
        return device_named(strict_name(machine) if strict else full_name(machine))
