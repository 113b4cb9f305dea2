"""The durations of a step's ops, as the options of every verb choose them: predicted, measured, or read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tensortide.errors import GraphFileError, RequestError
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.progress import Say, detail, silent
from tensortide.recorder import resolver
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload
from tensortide.targets.machines import device_named, one_of, software_on
from tensortide.targets.opening import graph_of, opened, settings_of
from tensortide.targets.requests import CaptureRequest, MeasureRequest, TimedRequest, TimesRequest
from tensortide.timing import DEFAULT_DEVICE, estimate, load_durations
from tensortide.timing.durations import times_of
from tensortide.timing.estimate import captured_elsewhere
from tensortide.timing.refined import refine
from tensortide.timing.samples import recall

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.timelines.machines import MachineStep
    from tensortide.timelines.step import Launch
    from tensortide.timing import Device, Durations
    from tensortide.timing.collectives import Nodes

LOG = logging.getLogger("tensortide")
_NOT_MEASURED = "--measure repeats a step, and a script runs it once; tensortide time --isolated measures its ops alone"


def timed(
    found: Workload | Script | File,
    asked: TimedRequest,
    how: MeasureRequest = MeasureRequest(),  # noqa: B008 # frozen
    /,
    *,
    say: Say = silent,
    **reading: Any,
) -> Imported:
    """Return the step of a target, its loops written out, with durations.

    Durations are those that the options ask for (a file, an estimate for a machine, a measurement); else those that
    the target brings; else an estimate for the machine that it was captured for, or for ``DEFAULT_DEVICE``. A file of
    durations must be of this graph. ``reading`` are options of an importer.
    """
    capture, times = asked.capture, asked.times
    if capture.machine is not None:
        device_named(capture.machine)  # an error for what has no times, before anything is captured
    if times.measure and isinstance(found, Workload):
        return _measured(found, capture, how, say)
    if times.measure and isinstance(found, Script):
        raise RequestError(f"{found}: {_NOT_MEASURED}")
    own = times == TimesRequest() and capture.machine is None
    step = opened(found, capture, say, durations=own, **reading)
    if step.measure and own:
        times = TimesRequest(measure=True)
    if step.events is not None and not own:
        raise RequestError(f"{found}: it has durations of its own")
    if times.measure and not step.kernels:
        raise RequestError(f"{found}, which has no step to run: --measure goes with a workload")
    return with_durations(step, times, capture.machine, say=say)


def timed_on_cards(
    found: Workload | Script | File, asked: TimedRequest, /, *, say: Say = silent, **reading: Any
) -> Imported:
    """Return the step as ``timed`` does; without durations for a card of which only the size is known."""
    if asked.capture.card is None:
        return timed(found, asked, say=say, **reading)
    step = opened(found, asked.capture, say, **reading)
    return replace(step, graph=unrolled(step.graph), durations=None)


def with_durations(
    step: Imported, times: TimesRequest, machine: str | None = None, *, say: Say = silent, **conditions: Any
) -> Imported:
    """Return ``step`` with the durations that the options ask for, else its own, else an estimate for ``machine``.

    A measurement executes each distinct op by itself, under these ``conditions``: unless they name a device, on a GPU
    for a step of one, if there is one here.
    """
    graph = unrolled(step.graph)
    if times.durations is not None:
        durations = load_durations(times.durations, graph)
    elif times.measure:
        from tensortide.profile.host import own_device
        from tensortide.profile.isolated import measure_isolated

        durations = measure_isolated(graph, progress=say, **{"device": own_device(graph), **conditions})
    elif machine is None and step.durations is not None:
        return replace(step, graph=graph)
    else:
        row = device_named(machine or graph.meta.machine or DEFAULT_DEVICE)
        durations = predicted_on(graph, row)
        if elsewhere := captured_elsewhere(graph, row):
            durations = msgspec.structs.replace(durations, source=f"{durations.source}, {elsewhere}")
        detail("assumed", f"times of ops: {durations.source}")
    return replace(step, graph=graph, durations=durations, times=times_of(durations))


def predicted_on(graph: Graph, row: Device) -> Durations:
    """Predict the times on ``row``; those of calls that were measured there are taken from the store."""
    durations = estimate(graph, row, resolver=resolver)
    try:
        return refine(graph, recall(graph, durations, row.name, software_on(row)), row, resolver=resolver)
    except GraphFileError as error:
        LOG.warning("%s\nIt is not used. Delete it, or measure again with --remember in another folder.", error)
        return durations


def captured_for(target: str, asked: CaptureRequest, graph: Graph) -> list[Graph]:
    """The step as it is captured for each machine: ``graph`` for the first, and for all where it is read from a file.

    Machines with the same kernels share a capture.
    """
    if isinstance(resolve(target), File):
        return [graph] * len(asked.machines)
    found: dict[str | None, Graph] = {}
    own = [replace(asked, machines=(one_of(text),)) for text in asked.machines]
    for each in own:
        if each.kernels not in found:
            found[each.kernels] = unrolled(graph_of(target, each)) if found else graph
    return [found[each.kernels] for each in own]


def predicted_steps(
    graphs: Sequence[Graph], durations: Durations, asked: Sequence[Nodes], launch: Launch = "eager"
) -> list[MachineStep]:
    """The step, with its host, on each machine, one of ``graphs`` for each; on that of ``durations``, which are those
    of the first, if none is asked for. None where they are not predicted, or for a device that the catalogue does not
    have."""
    from tensortide.timelines.machines import step_on
    from tensortide.timing.collectives.nodes import nodes_called

    if durations.forecast is None or not (asked or durations.forecast.device):
        return []
    chosen = asked or [nodes_called(durations.forecast.device)]
    first, steps = chosen[0].device, []
    for graph, one in zip(graphs, chosen, strict=True):
        own = durations if one.device is first and graph is graphs[0] else predicted_on(graph, one.device)
        steps.append(step_on(graph, one, durations=own, launch=launch, resolver=resolver))
    return steps


def _measured(found: Workload, asked: CaptureRequest, how: MeasureRequest, say: Say) -> Imported:
    from tensortide.profile.measure import measure

    conditions = {"repeats": how.steps, **how.conditions(asked.device)}
    settings = settings_of(found, asked)
    return Imported(*measure(found.function, hyperparameters=settings, name=found.name, progress=say, **conditions))
