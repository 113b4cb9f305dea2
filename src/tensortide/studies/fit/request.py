"""Request for a step that is to fit: the target, the machines, the memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import structs

from tensortide.errors import RequestError
from tensortide.executors.request import WorkerRequest
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.progress import UNWATCHED, Search
from tensortide.python_object import is_path
from tensortide.recorder import resolver
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload
from tensortide.request import Arg, Opt, Request
from tensortide.studies.fit.following import following
from tensortide.studies.fit.results import Fit, FitOnMachines
from tensortide.studies.fit.study import fit
from tensortide.studies.fit.subject import Subject
from tensortide.targets.again import capture_again
from tensortide.targets.durations import predicted_on
from tensortide.targets.machines import cluster_in, device_named, require_distinct
from tensortide.targets.opening import opened, settings_of
from tensortide.targets.requests import TARGET, CaptureRequest, LinkRatesRequest, Strict
from tensortide.timing import DEFAULT_DEVICE, Durations, device
from tensortide.timing.cards import of_bytes
from tensortide.timing.standins import require_all, unpredicted
from tensortide.units import parse_size

LOG = logging.getLogger("tensortide")


@dataclass(frozen=True, kw_only=True)
class FitRequest(Request):
    """Does the step fit, and what would make it?"""

    GROUP = "The device's memory"

    target: Annotated[str, Arg(TARGET)]
    memory: Annotated[
        int | None,
        Opt(
            "Memory that the step may take, such as 24GiB (default: what the machine has for it).",
            read=parse_size,
            least=1,
            common=True,
        ),
    ] = None
    capture: CaptureRequest = CaptureRequest()
    links: LinkRatesRequest = LinkRatesRequest()
    strict: Strict = False
    workers: WorkerRequest = WorkerRequest()


def answer(asked: FitRequest, search: Search = UNWATCHED) -> Fit | FitOnMachines:
    """The study of the step on each machine, until the search is stopped: of several one beside the other.

    Raises:
        RequestError: a machine is given twice, or its memory is unknown.
    """
    names = asked.capture.machines
    each = [replace(asked.capture, machines=(name,)) for name in names] or [asked.capture]
    subjects = [_subject(asked, one, search) for one in each]
    require_distinct([one.machine for one, _ in subjects])
    found = tuple(_studied(*one, asked, how, search) for one, how in zip(subjects, each, strict=True))
    return found[0] if len(found) == 1 else FitOnMachines(found)


def _subject(asked: FitRequest, capture: CaptureRequest, search: Search) -> tuple[Subject, Durations | None]:
    """The step on a machine, and its predicted times. Raises RequestError for one of unknown memory."""
    found = resolve(asked.target)
    size = capture.card
    named = device_named(capture.machine) if capture.machine is not None and size is None else None
    on_cpu = named is not None and named.kind == "cpu"
    # A workload that nobody places is captured for a GPU: on the CPU it has other kernels, and other memory. So is a
    # script, which would run for real: of that it is told by --real, --device cpu or --compiled.
    free = isinstance(found, Workload) or (isinstance(found, Script) and not (capture.real or capture.compiled))
    if free and capture.device is None and capture.kernels is None and not on_cpu:
        capture = replace(capture, machines=(DEFAULT_DEVICE,))
    graph = unrolled(opened(found, capture, search.say, strict=asked.strict).graph)
    row = named or device(graph.meta.machine or DEFAULT_DEVICE)
    cluster = None if capture.machine is None else cluster_in(capture.machine)
    if cluster is not None and cluster.links and not asked.links.given():
        LOG.info("%s: what is sharded goes over links of the catalogue, unless --device-link gives another", row.name)
    memory = size if asked.memory is None else of_bytes(asked.memory, size)
    # Memory alone asks for no device: a saved step has the times of the one that it was captured for.
    saved = isinstance(found, File) and size is None and bool(graph.meta.machine)
    timed = named is not None or memory is None or saved
    durations = predicted_on(graph, row) if timed else None
    if asked.strict and durations is not None:
        require_all(graph, unpredicted(graph, durations))
    if memory is None and row.usable_bytes is None:
        raise RequestError(f"the memory of {row.name} is unknown: give --memory 24GiB")
    again, why_not = capture_again(found, capture)
    subject = Subject(
        name=str(asked.target),
        graph=graph,
        row=row,
        card=memory,
        timed=timed,
        by_default=named is None and memory is None and not saved,
        again=again,
        why_not=why_not,
        settings=settings_of(found, capture) if isinstance(found, Workload) else {},
        code=_code(found),
        rates=asked.links.rates,
    )
    return subject, durations


def _studied(
    subject: Subject, durations: Durations | None, asked: FitRequest, capture: CaptureRequest, search: Search
) -> Fit:
    found = fit(
        subject,
        durations=durations,
        resolver=resolver,
        say=lambda text: search.known(f"{subject.machine}: {text}"),
        stop=search.stopped,
        where=asked.workers.where,
    )
    return structs.replace(found, command=following(found, asked.target, capture, asked.memory))


def _code(found: Workload | Script | File) -> Path | None:
    """The file with the loop around the step."""
    if isinstance(found, Script):
        return Path(found.target) if found.kind == "file" else None
    if isinstance(found, Workload) and is_path(found.name):
        return Path(found.name.rpartition(":")[0])
    return None
