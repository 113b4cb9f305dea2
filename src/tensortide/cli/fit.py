"""``tensortide fit``: does the step fit a device, and what would make it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.cli.again import capture_again
from tensortide.cli.durations import predicted_on
from tensortide.cli.local import device_named
from tensortide.cli.search import Searching, searching
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Strict,
    Target,
    opened,
    option,
    require_certain,
    settings_of,
)
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import WorkloadError
from tensortide.executors import Where
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.python_object import is_path
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.recorder.target import Workload
from tensortide.timing import DEFAULT_DEVICE
from tensortide.timing.standins import require_all, unpredicted
from tensortide.units import parse_bytes

if TYPE_CHECKING:
    from tensortide.studies.fit import Fit, Subject
    from tensortide.timing import Durations


def fit(
    target: Target,
    /,
    *,
    memory: Annotated[
        str | None, option("--memory", "Bytes that the step may take, as 24GiB (default: what the machine has for it).")
    ] = None,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Say whether the step fits a device, what dominates its memory, and what to do, each with its peak and time.

    --machine may be repeated. Ctrl-C ends the search and shows what is known.
    """
    from tensortide.reports.sections.fit import document

    files.check()
    if strict:
        options.require_full_names()
    limit = None if memory is None else _bytes(memory)
    each = [replace(options, machines=(name,)) for name in options.machines] or [options]
    subjects = [_subject(target, one, limit, strict=strict, quiet=out.quiet) for one in each]
    names = [one.row.name for one, _ in subjects]
    if twice := [name for name in names if names.count(name) > 1]:
        raise WorkloadError(f"--machine {twice[0]} is given twice: there is nothing to compare")
    with searching(out.quiet) as search:
        results = [_studied(*one, search, workers.where) for one in subjects]
    made = document(*results)
    show(made, out, wrote=files.write(made, table="outcomes" if len(results) == 1 else "machines"))


def _subject(
    target: str, options: CaptureOptions, limit: int | None, *, strict: bool, quiet: bool
) -> tuple[Subject, Durations]:
    """The step of ``target`` on a machine, and its predicted times. Raises WorkloadError for one of unknown memory."""
    from tensortide.studies.fit import Subject

    found = resolve(target)
    named = None if options.machine is None else device_named(options.machine)
    on_cpu = named is not None and named.kind == "cpu"
    if isinstance(found, Workload) and options.device is None and options.kernels is None and not on_cpu:
        options = replace(options, machines=(DEFAULT_DEVICE,))
    graph = unrolled(opened(found, replace(options, compare=strict), quiet=quiet).graph)
    if strict:
        require_certain(graph)
    row = named or device_named(options.machine or graph.meta.machine or DEFAULT_DEVICE)
    durations = predicted_on(graph, row)
    if strict:
        require_all(graph, unpredicted(graph, durations))
    usable = limit if limit is not None else row.usable_bytes
    if usable is None:
        raise WorkloadError(f"the memory of {row.name} is unknown: give --memory 24GiB")
    again, why_not = capture_again(found, options)
    subject = Subject(
        name=target,
        graph=graph,
        row=row,
        limit_bytes=usable,
        again=again,
        why_not=why_not,
        settings=settings_of(found, options) if isinstance(found, Workload) else {},
        code=_code(found),
    )
    return subject, durations


def _studied(subject: Subject, durations: Durations, search: Searching, where: Where) -> Fit:
    """The study of a step, which ends on Ctrl-C."""
    from tensortide.studies.fit import fit as study

    return study(
        subject,
        durations=durations,
        resolver=resolver,
        say=lambda text: search.known(f"{subject.row.name}: {text}"),
        stop=search.stopped,
        where=where,
    )


def _bytes(text: str) -> int:
    found = parse_bytes(text)
    if found <= 0:
        raise WorkloadError(f"--memory takes a positive number of bytes, as 24GiB, not {text}")
    return found


def _code(found: Workload | Script | File) -> Path | None:
    """The file with the loop around the step."""
    if isinstance(found, Script):
        return Path(found.target) if found.kind == "file" else None
    if isinstance(found, Workload) and is_path(found.name):
        return Path(found.name.rpartition(":")[0])
    return None
