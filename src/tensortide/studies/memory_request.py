"""Memory over one step, and how long it is idle: what is asked, and what is found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from tensortide.errors import GraphError, RequestError
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.memory import ALLOCATORS, EXACT, allocator
from tensortide.progress import Say, silent
from tensortide.request import Arg, Opt, Request, exclusive, needs
from tensortide.targets.durations import timed, timed_on_cards
from tensortide.targets.opening import graph_of
from tensortide.targets.requests import TARGET, CaptureRequest, Depth, TimedRequest, Top
from tensortide.timelines import Idleness, idleness
from tensortide.timing import LINKS, Link, link


def _allocator(name: str) -> str:
    try:
        allocator(name)
    except GraphError as error:
        raise ValueError(str(error)) from None
    return name


@dataclass(frozen=True, kw_only=True)
class IdleRequest(Request):
    """How long is memory idle, and what is worth moving away or recomputing?"""

    GROUP = "Idle memory"

    idle: Annotated[
        bool,
        Opt("Show how long memory is idle between uses, and what is worth moving away or recomputing.", common=True),
    ] = False
    link: Annotated[
        Link,
        Opt(
            "With --idle: link to move memory over: nvme, pcie3, pcie4 (the default), pcie5, or a speed (25GB/s), also "
            "with a latency (25GB/s,10us).",
            read=link,
        ),
    ] = LINKS["pcie4"]
    mode: Annotated[
        Literal["storage", "compat"] | None,
        Opt(
            "With --idle: follow storages with all their views, or (compat) each tensor by itself, as kernel traces do."
        ),
    ] = None
    compare: Annotated[
        str | None,
        Opt(
            "With --idle: compare with another target, or with other settings of this one (batch=16,seq=512).",
            value="TARGET",
        ),
    ] = None

    RULES = tuple(needs(name, "idle") for name in ("link", "mode", "compare"))


@dataclass(frozen=True, kw_only=True)
class MemoryRequest(Request):
    """How much memory does one step take, when, and for what?"""

    GROUP = "The allocator"

    target: Annotated[str, Arg(TARGET)]
    allocator: Annotated[
        str,
        Opt(
            f"Also replay the step on an allocator: {', '.join(ALLOCATORS)}, cuda:SETTINGS (as PYTORCH_ALLOC_CONF).",
            read=_allocator,
            common=True,
            value="NAME",
        ),
    ] = EXACT.name
    against: Annotated[
        str | None, Opt("For a memory snapshot: the target predicted beside it, whose --set are given.", value="TARGET")
    ] = None
    idle: IdleRequest = IdleRequest()
    depth: Depth = 3
    top: Top = 15
    step: TimedRequest = TimedRequest()

    RULES = (exclusive("idle", "against"), exclusive("idle", "allocator"))


class StepMemory(NamedTuple):
    """A step whose memory is shown; beside a snapshot of it the step that is predicted, its loops written out."""

    step: Imported
    predicted: Graph | None = None


class IdleMemory(NamedTuple):
    """Idle memory of a step: ``durations`` says where those of its ops come from; ``capacity_bytes`` is the memory of
    the device, where the target tells it."""

    idle: Idleness
    durations: str
    capacity_bytes: int | None


def answer(asked: MemoryRequest, say: Say = silent) -> StepMemory | list[IdleMemory]:
    """The step; with ``--idle`` its idle memory, and that of a step that it is compared with.

    Raises:
        RequestError: a target that is no memory snapshot stands ``against`` another.
    """
    if asked.idle.idle:
        each = [(asked.target, asked.step.capture)]
        if asked.idle.compare is not None:
            each.append(_other(asked.target, asked.idle.compare, asked.step.capture))
        return [_idle(target, capture, asked, say) for target, capture in each]
    if asked.against is None:
        return StepMemory(timed_on_cards(resolve(asked.target), asked.step, say=say))
    step = timed(
        resolve(asked.target), TimedRequest(times=asked.step.times), say=say
    )  # the others are of the prediction
    if step.recording is None:
        raise RequestError(f"{asked.target} is no memory snapshot: --against goes with one")
    return StepMemory(step, unrolled(graph_of(asked.against, asked.step.capture, say)))


def _idle(target: str, capture: CaptureRequest, asked: MemoryRequest, say: Say) -> IdleMemory:
    found = resolve(target)
    step = timed(found, replace(asked.step, capture=capture), say=say)
    assert step.durations is not None
    every_tensor = isinstance(found, File) and found.importer.name == "g10"
    mode = asked.idle.mode or ("compat" if every_tensor else "storage")
    idle = idleness(step.graph, step.durations.ns, mode=mode, device=capture.device)
    return IdleMemory(idle, step.durations.source, step.device_bytes)


def _other(target: str, text: str, capture: CaptureRequest) -> tuple[str, CaptureRequest]:
    """The target that ``text`` names and its options; or ``target`` at the settings that ``text`` lists."""
    if "=" not in text or Path(text).exists():
        return text, CaptureRequest() if isinstance(resolve(text), File) else capture
    return target, replace(capture, set=(*capture.set, *(part.strip() for part in text.split(","))))
