"""Document of the times of a step: by op, on each machine, and beside what was measured."""

from __future__ import annotations

import msgspec

from tensortide.recorder import resolver
from tensortide.reports.blocks import Document
from tensortide.reports.sections import Step, against, ops, played, time
from tensortide.studies.timing.request import TimedStep
from tensortide.timelines import timeline

__all__ = ["document", "over_time"]


def document(found: TimedStep) -> Document:
    """Show the times, and the difference of those that were predicted and measured where both were asked for."""
    graph, durations = found.graph, found.durations
    made = time.document(
        *(graph, durations),
        target=found.name,
        predicted=found.predicted,
        resolver=resolver,
        depth=found.depth,
        top=found.top,
    )
    if found.against is None or durations.measurement is None:
        return made
    machine, step = found.against
    measured = timeline(graph, durations_ns=durations.ns)
    difference = against.section(step, measured, machine, durations.measurement.step)
    return msgspec.structs.replace(made, sections=(*made.sections, difference))


def over_time(found: TimedStep, made: Document) -> Document:
    """Show, in place of what ``made`` shows, the step over time: as each machine plays it, or its ops in a row."""
    step = Step(found.graph, found.durations, resolver=resolver)
    if found.predicted:
        return msgspec.structs.replace(made, sections=(played.section(step, found.predicted),))
    return msgspec.structs.replace(made, sections=(ops.of_step(step), ops.schedule(step)))
