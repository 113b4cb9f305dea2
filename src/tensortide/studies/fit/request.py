"""Request for a step that is to fit: the target, the machines, the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from tensortide.errors import RequestError
from tensortide.executors.request import WorkerRequest
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.progress import UNWATCHED, Search
from tensortide.python_object import is_path
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.recorder.target import Workload
from tensortide.request import Arg, Opt, Request
from tensortide.studies.fit.results import Fit
from tensortide.studies.fit.study import fit
from tensortide.studies.fit.subject import Subject
from tensortide.targets.again import capture_again
from tensortide.targets.durations import predicted_on
from tensortide.targets.machines import device_named, require_distinct
from tensortide.targets.opening import opened, settings_of
from tensortide.targets.requests import TARGET, CaptureRequest, Strict
from tensortide.timing import DEFAULT_DEVICE, Durations
from tensortide.timing.standins import require_all, unpredicted
from tensortide.units import parse_size


@dataclass(frozen=True, kw_only=True)
class FitRequest(Request):
    """Does the step fit, and what would make it?"""

    target: Annotated[str, Arg(TARGET)]
    memory: Annotated[
        int | None,
        Opt("Bytes that the step may take, as 24GiB (default: what the machine has for it).", read=parse_size, least=1),
    ] = None
    capture: CaptureRequest = CaptureRequest()
    strict: Strict = False
    workers: WorkerRequest = WorkerRequest()


def answer(asked: FitRequest, search: Search = UNWATCHED) -> list[Fit]:
    """The study of the step on each machine, until the search is stopped.

    Raises:
        RequestError: a machine is given twice, or its memory is unknown.
    """
    names = asked.capture.machines
    each = [replace(asked.capture, machines=(name,)) for name in names] or [asked.capture]
    subjects = [_subject(asked, one, search) for one in each]
    require_distinct([one.row.name for one, _ in subjects])
    return [_studied(*one, asked, search) for one in subjects]


def _subject(asked: FitRequest, capture: CaptureRequest, search: Search) -> tuple[Subject, Durations]:
    """The step on a machine, and its predicted times. Raises RequestError for one of unknown memory."""
    found = resolve(asked.target)
    named = None if capture.machine is None else device_named(capture.machine)
    on_cpu = named is not None and named.kind == "cpu"
    # A workload that nobody places is captured for a GPU: on the CPU it has other kernels, and other memory.
    if isinstance(found, Workload) and capture.device is None and capture.kernels is None and not on_cpu:
        capture = replace(capture, machines=(DEFAULT_DEVICE,))
    graph = unrolled(opened(found, capture, search.say, strict=asked.strict).graph)
    row = named or device_named(capture.machine or graph.meta.machine or DEFAULT_DEVICE)
    durations = predicted_on(graph, row)
    if asked.strict:
        require_all(graph, unpredicted(graph, durations))
    usable = asked.memory if asked.memory is not None else row.usable_bytes
    if usable is None:
        raise RequestError(f"the memory of {row.name} is unknown: give --memory 24GiB")
    again, why_not = capture_again(found, capture)
    subject = Subject(
        name=asked.target,
        graph=graph,
        row=row,
        limit_bytes=usable,
        again=again,
        why_not=why_not,
        settings=settings_of(found, capture) if isinstance(found, Workload) else {},
        code=_code(found),
    )
    return subject, durations


def _studied(subject: Subject, durations: Durations, asked: FitRequest, search: Search) -> Fit:
    return fit(
        subject,
        durations=durations,
        resolver=resolver,
        say=lambda text: search.known(f"{subject.row.name}: {text}"),
        stop=search.stopped,
        where=asked.workers.where,
    )


def _code(found: Workload | Script | File) -> Path | None:
    """The file with the loop around the step."""
    if isinstance(found, Script):
        return Path(found.target) if found.kind == "file" else None
    if isinstance(found, Workload) and is_path(found.name):
        return Path(found.name.rpartition(":")[0])
    return None
