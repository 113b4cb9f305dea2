"""``tensortide time``: the duration of every op of a step, estimated, measured, or read from a trace."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from tensortide.cli.durations import (
    MeasureOptions,
    TimeOptions,
    captured_for,
    durations_of,
    predicted_on,
    predicted_steps,
)
from tensortide.cli.local import full_name, is_local
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, Depth, OutputOptions, Top, machines_of, option
from tensortide.errors import TensortideError, WorkloadError
from tensortide.importers.door import resolve
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.timelines.machines import Machines, MachineStep, split
from tensortide.timelines.step import Launch, step_timeline
from tensortide.timing import device, save_durations
from tensortide.timing.catalogue import matching
from tensortide.timing.durations import SUFFIX
from tensortide.timing.samples import remember
from tensortide.timing.standins import require_all, unpredicted
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.reports.blocks import Document
    from tensortide.timing import Device, Durations


@Parameter(name="*")
@dataclass(frozen=True)
class ResultOptions:
    """Results made of the durations, and where they go."""

    output: Annotated[
        Path | None,
        option(
            "--output -o",
            f"Write the durations; NAME{SUFFIX} beside NAME.tide is found by verbs that need times.",
        ),
    ] = None
    keep: Annotated[
        bool,
        option("--remember", "Store the measured times: predictions for this device take them for the same calls."),
    ] = False
    against: Annotated[
        str | None,
        option("--against", "Predict the measured step for this machine too, and show the difference op by op."),
    ] = None
    launch: Annotated[
        Launch,
        Parameter(help="Predict ops that the host issues one by one, or a captured graph of them."),
    ] = "eager"


def time(
    target: Annotated[str, option("", f"{TARGET}.")] = "",
    /,
    *,
    listed: Annotated[
        bool, option("--list", "List the devices of the catalogue, or those whose names have these words, and exit.")
    ] = False,
    result: ResultOptions = ResultOptions(),
    times: TimeOptions = TimeOptions(),  # noqa: B008
    how: MeasureOptions = MeasureOptions(),  # noqa: B008
    depth: Depth = 3,
    top: Top = 15,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show the time of every op of one step, by phase, op and module.

    Times are estimated for a device, or those beside a saved graph, unless --measure, --isolated or --from is given.
    --machine may be repeated, and may say how many devices: --machine 8xa100-sxm-80gb --machine 4xh100-sxm.
    --list shows the devices.
    """
    from tensortide.reports.sections.time import document

    files.check()
    if listed:
        _list(target, files, out)
        return
    if not target:
        raise WorkloadError("time needs a target; tensortide capture --list shows the built-in examples")
    file = None if result.output is None else check_writable(result.output)
    asked = _asked(options, result, strict=how.strict)
    one = replace(options, machines=tuple(full_name(split(where.text)[1]) for where in asked[:1]))
    graph, durations = durations_of(target, times, how, one, out.quiet)
    graphs = captured_for(target, options, asked, graph) if len(asked) > 1 else [graph]
    predicted = predicted_steps(graphs, durations, asked, result.launch)
    if how.strict:
        _require_known(graph, durations, predicted)
    name = _title(target, graph)
    made = document(graph, durations, target=name, predicted=predicted, resolver=resolver, depth=depth, top=top)
    if result.against is not None:
        row = _measured_on(durations, result.against, strict=how.strict)
        made = _with_difference(made, graph, durations, row, result.launch)
    stored = [_remember(graph, durations)] if result.keep else []
    saved = [] if file is None else [save_durations(durations, file)]
    table = "machines.machines" if len(predicted) > 1 else "ops"
    wrote = replace(files, trace=None).write(made, table=table)
    wrote += Files(trace=files.trace).write(_as_trace(made, graph, durations, predicted), table="ops")
    show(made, out, wrote=[*wrote, *saved, *stored])


def _list(words: str, files: Files, out: OutputOptions) -> None:
    """Show the devices of the catalogue whose names have these words."""
    from tensortide.reports.sections.devices import document

    made = document(matching(words), words)
    show(made, out, wrote=files.write(made, table="devices"))


def _asked(options: CaptureOptions, result: ResultOptions, *, strict: bool) -> list[Machines]:
    """The machines that the options ask for. Raises WorkloadError for those that do not go together."""
    asked = [machines_of(text, strict=strict) for text in options.machines]
    if options.ranks and (other := next((one for one in asked if one.size not in (1, options.ranks)), None)):
        raise WorkloadError(
            f"--ranks {options.ranks} captures one of {options.ranks} processes; {other} has {other.size}"
        )
    if twice := [name for name, times in Counter(map(str, asked)).items() if times > 1]:
        raise WorkloadError(f"--machine {twice[0]} is given twice: there is nothing to compare")
    if len(asked) > 1 and result.output is not None:
        raise WorkloadError("-o writes the durations of one machine: give one --machine")
    return asked


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
        raise WorkloadError("--remember goes with --measure, --isolated, or a trace that names its device (--from)")
    name = found.machine.name
    with contextlib.suppress(TensortideError):  # the catalogue does not know every device
        name = device(name).name
    return remember(graph, durations, name, resolver=resolver)


def _measured_on(durations: Durations, machine: str, *, strict: bool) -> Device:
    """The device of that name; the CPU at hand with as many threads as ``durations`` were measured with."""
    found = durations.measurement.machine if durations.measurement is not None else None
    if found is None or not is_local(machine):
        return machines_of(machine, strict=strict).device
    from tensortide.profile.host import chosen_threads

    with chosen_threads(found.threads):
        return machines_of(machine, strict=strict).device


def _with_difference(made: Document, graph: Graph, durations: Durations, row: Device, launch: Launch) -> Document:
    """Append the difference of the step predicted for ``row`` and the measured one, as two Timelines."""
    from tensortide.reports.sections.against import section as against
    from tensortide.timelines import timeline

    if durations.measurement is None:
        raise WorkloadError("--against goes with --measure, --isolated or --from")
    predicted = step_timeline(graph, predicted_on(graph, row), row, launch)
    measured = timeline(graph, durations_ns=durations.ns)
    difference = against(predicted, measured, row.name, durations.measurement.step)
    return msgspec.structs.replace(made, sections=(*made.sections, difference))


def _as_trace(made: Document, graph: Graph, durations: Durations, predicted: Sequence[MachineStep]) -> Document:
    """The step over time: as it is played on each machine, or its ops one after the other."""
    from tensortide.reports.sections import Step, ops, played

    step = Step(graph, durations, resolver=resolver)
    if predicted:
        return msgspec.structs.replace(made, sections=(played.section(step, predicted),))
    return msgspec.structs.replace(made, sections=(ops.of_step(step), ops.schedule(step)))


def _title(target: str, graph: Graph) -> str:
    """Name the target as the command line does, and a script as its graph does."""
    return graph.meta.workload if isinstance(resolve(target), Script) else target
