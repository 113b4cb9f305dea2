"""``tensortide memory``: memory over the step, its peak and what is resident there; ``--idle``: its idle intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, timed
from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, Depth, OutputOptions, Target, Top, graph_of, option, progress
from tensortide.errors import WorkloadError
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.memory import ALLOCATORS, EXACT
from tensortide.recorder import resolver
from tensortide.timing import link

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document
    from tensortide.timing import Link


@Parameter(name="*")
@dataclass(frozen=True)
class IdleOptions:
    """Options of ``--idle``: the link, the unit that is followed, and a target to compare with."""

    idle: Annotated[
        bool,
        option("--idle", "Show idle intervals of memory, and what is worth moving away or recomputing."),
    ] = False
    link: Annotated[
        str,
        Parameter(
            help="With --idle: link to move memory over: nvme, pcie3, pcie4, pcie5, or a speed (25GB/s), also with a "
            "latency (25GB/s,10us)."
        ),
    ] = "pcie4"
    mode: Annotated[
        Literal["storage", "compat"] | None,
        Parameter(
            show_default=False,
            help="With --idle: follow storages with all their views, or (compat) each tensor by itself, as kernel "
            "traces do.",
        ),
    ] = None
    compare: Annotated[
        str | None,
        option(
            "--compare",
            "With --idle: compare with another target, or with other settings of this one (batch=16,seq=512).",
        ),
    ] = None

    def check(self) -> None:
        """Raise WorkloadError if one of them is given without ``--idle``."""
        if not self.idle and self != IdleOptions():
            raise WorkloadError("--link, --mode and --compare go with --idle")


def idle_document(
    target: str, asked: IdleOptions, options: CaptureOptions, times: TimeOptions, *, top: int, quiet: bool
) -> Document:
    """Show the idle memory of ``target``, or that of two targets side by side."""
    from tensortide.reports.sections.idle import compared

    over = link(asked.link)
    made = _document(target, asked, over, options, times, top=top, quiet=quiet)
    if asked.compare is None:
        return made
    other, theirs = _other(target, asked.compare, options)
    return compared(made, _document(other, asked, over, theirs, times, top=top, quiet=quiet))


def _document(
    target: str, asked: IdleOptions, over: Link, options: CaptureOptions, times: TimeOptions, *, top: int, quiet: bool
) -> Document:
    from tensortide.reports.sections.idle import document
    from tensortide.timelines import idleness

    found = resolve(target)
    step = timed(found, options, times, quiet=quiet)
    assert step.durations is not None
    every_tensor = isinstance(found, File) and found.importer.name == "g10"
    mode = asked.mode or ("compat" if every_tensor else "storage")
    idle = idleness(step.graph, step.durations.ns, mode=mode, device=options.device)
    return document(idle, over, durations=step.durations.source, capacity_bytes=step.device_bytes, top=top)


def _other(target: str, text: str, options: CaptureOptions) -> tuple[str, CaptureOptions]:
    """Find the target that ``text`` names and its options; or ``target`` at the settings that ``text`` lists."""
    if "=" not in text or Path(text).exists():
        return text, CaptureOptions() if isinstance(resolve(text), File) else options
    return target, replace(options, set=(*options.set, *(part.strip() for part in text.split(","))))


def _known(_: object, name: str) -> None:
    if name not in ALLOCATORS:
        raise ValueError(f"the allocators are {', '.join(ALLOCATORS)}")


def memory(
    target: Target,
    /,
    *,
    allocator: Annotated[
        str,
        Parameter(help=f"Also replay the step on an allocator: {', '.join(ALLOCATORS)}.", validator=_known),
    ] = EXACT.name,
    against: Annotated[
        str | None,
        option(
            "--against",
            "For a memory snapshot: the target predicted beside it, whose --set are given.",
        ),
    ] = None,
    idle: IdleOptions = IdleOptions(),
    files: Files = Files(),  # noqa: B008
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Show memory over one step: its peak, by phase and by module, over time, and what is resident at the peak."""
    from msgspec.structs import replace as replace_document

    from tensortide.reports.sections import Step, recording
    from tensortide.reports.sections.idle import FIGURES
    from tensortide.reports.sections.memory import document

    idle.check()
    files.check()
    if idle.idle:
        made = idle_document(target, idle, options, times, top=top, quiet=out.quiet)
    else:
        own = options if against is None else CaptureOptions()  # those given are of the prediction
        found = timed(resolve(target), own, times, quiet=out.quiet)
        step = Step(found.graph, found.durations, resolver, top=top, depth=depth)
        made = document(step, allocator=allocator)
        if found.recording is not None:
            other = None if against is None else Step(unrolled(graph_of(against, options, quiet=out.quiet)), top=top)
            made = replace_document(made, sections=(recording.section(step, found.recording, other), *made.sections))
        elif against is not None:
            raise WorkloadError(f"{target} is no memory snapshot: --against goes with one")
    with progress(out.quiet) as say:
        say("writing")
        keys = FIGURES if idle.idle else ()
        wrote = files.write(made, table="figures" if idle.compare else "storages", keys=keys)
    show(made, out, wrote=wrote)
