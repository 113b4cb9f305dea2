"""``tensortide memory``: memory over the step, its peak and what is resident there; ``--idle``: its idle intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.cli.console import progress
from tensortide.cli.job import show_job
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import verb
from tensortide.recorder import resolver
from tensortide.studies.memory_request import IdleMemory, MemoryRequest, StepMemory, answer
from tensortide.targets.command import moving, typed

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


@verb
def memory(asked: MemoryRequest, files: Files, out: OutputRequest) -> None:
    """Show memory over one step: its peak, by phase and by module, over time, and what is resident at the peak."""
    from tensortide.reports.sections.idle import FIGURES

    if asked.step.capture.all_stages:
        show_job(asked, asked.step.capture, files, out)
        return
    with progress(out.quiet) as say:
        found = answer(asked, say)
        made = _of_step(found, asked) if isinstance(found, StepMemory) else _of_idle(found, asked)
        say("writing")
        table = "figures" if asked.idle.compare else "storages"
        wrote = files.write(made, table=table, keys=FIGURES if asked.idle.idle else ())
    show(made, out, wrote=wrote)


def _of_step(found: StepMemory, asked: MemoryRequest) -> Document:
    """Show a step; if it is a memory snapshot, what the allocator did, beside what is predicted."""
    from msgspec.structs import replace

    from tensortide.reports.sections import Step, recording
    from tensortide.reports.sections.idle import capacity_note
    from tensortide.reports.sections.memory import document

    card = asked.step.capture.card
    step = Step(found.step.graph, found.step.durations, resolver, top=asked.top, depth=asked.depth, card=card)
    made = document(step, allocator=asked.allocator)
    if found.step.device_bytes is not None:
        said = capacity_note(step.eager.peak_bytes, found.step.device_bytes)
        first, *others = made.sections
        made = replace(made, sections=(replace(first, blocks=(*first.blocks, said)), *others))
    if found.step.recording is None:
        return made
    other = None if found.predicted is None else Step(found.predicted, top=asked.top)
    return replace(made, sections=(recording.section(step, found.step.recording, other), *made.sections))


def _of_idle(found: list[IdleMemory], asked: MemoryRequest) -> Document:
    """Show idle memory; that of two targets side by side."""
    from tensortide.reports.sections.idle import compared, document

    link, top, then = asked.idle.link, asked.top, moving(asked.target, *typed(asked.step.capture))
    made = [
        document(one.idle, link, durations=one.durations, capacity_bytes=one.capacity_bytes, top=top, typed=then)
        for one in found
    ]
    return made[0] if len(made) == 1 else compared(*made)
