"""The command to type after a fit: the same with the settings of the best action, or a report of a step that fits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensortide.graph.communication import kind_of
from tensortide.recorder.script_command import PREFIX
from tensortide.studies.fit.actions import Action
from tensortide.studies.fit.results import Fit
from tensortide.targets.command import command, typed
from tensortide.targets.requests import CaptureRequest

_BATCH = re.compile(r" --?(?:[a-z]+[-_])*(?:batch(?:[-_]?size)?|bs|b)[ =](\d+)(?= |$)")
"""An option of a script for the samples of a step."""


def following(found: Fit, target: str, capture: CaptureRequest, memory: int | None) -> str:
    """The command, as it was typed but for what it changes. None follows from a step that nothing makes fit, unless one
    op needs more than the memory."""
    settings: Mapping[str, Any] = {}
    smaller = target
    if found.fits != "fits":
        settings, smaller = _settings(found), _of_half(target)
        if not settings and smaller == target:
            return _with_more(found, target, capture)
    kept = (each for each in capture.set if each.partition("=")[0].strip() not in settings)
    changed = (f"{name}={value}" for name, value in settings.items())
    words = [*typed(capture, "set"), *(word for each in (*kept, *changed) for word in ("--set", each))]
    again = bool(settings) or smaller != target
    if again:
        return command("fit", smaller, *words, *_limit(memory))
    implied = _implied(found, capture, memory)
    if target.startswith(PREFIX) and not (capture.compiled or capture.real) and _is_stage(found):
        rest = (*typed(capture, "rank"), "--all-stages", *(_limit(memory) or implied))
        return command("fit", target, *rest)
    return command("report", target, *words, *implied)


def _with_more(found: Fit, target: str, capture: CaptureRequest) -> str:
    """The command for as much memory as the step is sure to need, where one op needs more than there is."""
    most = found.verdict.most_bytes
    if found.one_op is None or most is None:
        return ""
    return command("fit", target, *typed(capture), *_limit(-(-most // 2**20) * 2**20))


def _is_stage(found: Fit) -> bool:
    """Tell whether the step is that of one stage of a pipeline: others may need more, and it waits for them."""
    return any(kind_of(op.name) == "send_recv" for op in found.subject.graph)


def _limit(memory: int | None) -> tuple[str, ...]:
    return () if memory is None else ("--memory", _size(memory))


def _implied(found: Fit, capture: CaptureRequest, memory: int | None) -> tuple[str, ...]:
    """The options with which a report is of the same step, where a fit takes a GPU that nobody named."""
    meta = found.subject.graph.meta
    if capture.machines or capture.device is not None or not meta.machine or meta.captured_on == "file":
        return ()
    if memory is None:
        return "--machine", meta.machine
    size = _size(memory)
    return ("--machine", size) if size.endswith("GiB") else ("--device", "cuda")


def _of_half(target: str) -> str:
    """The command of a script with half the batch that it names; any other target as it is."""
    found = _BATCH.search(target) if target.startswith(PREFIX) else None
    if found is None or int(found[1]) < 2:
        return target
    return f"{target[: found.start(1)]}{int(found[1]) // 2}{target[found.end(1) :]}"


def _settings(found: Fit) -> Mapping[str, Any]:
    """The settings of the best action that is nothing but settings, with which the step fits."""
    for one in found.recommended:
        fits = one.trial is not None and one.trial.fits == "fits"
        if fits and isinstance(one.action, Action) and one.action.settings:
            return one.action.settings
    largest = found.largest
    return {largest.name: largest.batch} if largest is not None and largest.batch else {}


def _size(nbytes: int) -> str:
    """Bytes as ``--memory`` takes them, exactly."""
    for unit, name in (2**30, "GiB"), (2**20, "MiB"):
        if nbytes % unit == 0:
            return f"{nbytes // unit}{name}"
    return f"{nbytes}B"
