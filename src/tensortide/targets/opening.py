"""The step of a target: captured if it is a workload or a script, else read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensortide.cost import read_rows
from tensortide.errors import RequestError
from tensortide.graph import TRIPS, Graph
from tensortide.graph.plain import plain
from tensortide.importers import built
from tensortide.importers.door import Built, File, resolve
from tensortide.importers.imported import Imported
from tensortide.progress import Say, detail, silent
from tensortide.recorder import capture
from tensortide.recorder.script import announced, capture_script
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Scalar, Workload, parse_settings
from tensortide.targets.assumptions import assumed, require_certain
from tensortide.targets.machines import device_named, is_file
from tensortide.targets.requests import CaptureRequest

LOG = logging.getLogger("tensortide")


def graph_of(target: str, asked: CaptureRequest, say: Say = silent) -> Graph:
    """The Graph of ``target``: captured if it is a workload, else read."""
    return opened(resolve(target), asked, say, durations=False).graph


def opened(
    found: Workload | Script | File,
    asked: CaptureRequest,
    say: Say = silent,
    *,
    exact: bool = False,
    strict: bool = False,
    **reading: Any,
) -> Imported:
    """Capture or read a target, without a word if ``say`` is ``silent``; ``reading`` are further options of its
    importer.

    With ``exact`` the sizes of a file keep the expressions that it gives them. With ``strict`` a machine whose name is
    short for several is an error, and a step that depends on what was assumed.

    Raises:
        RequestError: an option does not go with what the target is.
    """
    asked.require(found)
    if asked.all_stages:
        raise RequestError("--all-stages goes with time, memory, fit and report")
    if asked.rules is not None:
        read_rows(asked.rules)
    if asked.machine is not None and is_file(asked.machine):
        device_named(asked.machine)  # the error of a file that is wrong, also where nothing else reads it
    if strict:
        asked.require_full_names()
    # A script is run again only for --strict, which asks whether what it read decides its step.
    step = _opened(found, asked, say, exact=exact, compare=strict, reading=reading)
    for assumption in step.graph.meta.assumptions:
        detail("assumed", assumption)
    given = {setting.rpartition("=")[0].strip() for setting in asked.set}
    for name in sorted(step.symbols.keys() - given):
        detail("assumed", f"{name}={step.symbols[name]}, which is the file's own: --set gives another")
    if strict:
        require_certain(step.graph)
    return step


def _opened(
    found: Workload | Script | File,
    asked: CaptureRequest,
    say: Say,
    *,
    exact: bool,
    compare: bool,
    reading: dict[str, Any],
) -> Imported:
    if isinstance(found, File):
        step = found.read(symbols_of(found, asked), **asked.of_file(), **reading)
        step.graph.index.device(asked.device)  # an error if nothing is on it
        return step if exact else replace(step, graph=plain(step.graph))
    if isinstance(found, Script):
        options = asked.of_script(compare=compare)
        if say is silent:
            return Imported(capture_script(found, options, quiet=True, say=LOG.warning))
        LOG.info(announced(found, options, asked.card.name if asked.card is not None else ""))
        return Imported(capture_script(found, options, say=LOG.warning, progress=LOG.info))
    graph = capture(
        found.function,
        hyperparameters=settings_of(found, asked),
        name=found.name,
        real=asked.real or None,
        assume=assumed(asked.assume),
        first_step=asked.first_step,
        device=asked.device,
        machine=asked.kernels,
        ranks=asked.ranks,
        rank=asked.rank,
        compiled=asked.compiled,
        progress=say,
    )
    # A workload that puts nothing on a GPU is moved there, but for tensors that its code puts on the CPU by name.
    if asked.wants_gpu and graph.index.main_device == "cpu":
        LOG.warning(
            "the step stays on the CPU: %s puts its tensors there itself. Where a hyperparameter says so, set it: "
            "--set device=cuda",
            found.name,
        )
    return Imported(graph)


def settings_of(found: Workload, asked: CaptureRequest) -> dict[str, Scalar]:
    """The hyperparameters. Raises WorkloadError for unknown ones."""
    return parse_settings(asked.set, found.function, found.name)


def symbols_of(found: File, asked: CaptureRequest) -> Mapping[str, Scalar]:
    """The values of symbols, or the hyperparameters of a function that returns an object of a framework. Raises
    RequestError for a symbol that is no positive integer."""
    if isinstance(found, Built):
        return built.settings_of(found.workload, asked.set)
    values: dict[str, int] = {}
    for setting in asked.set:
        name, _, text = setting.rpartition("=")
        # Only the turns of a loop may be none: no size is zero.
        if not name or not text.strip().isdecimal() or not (int(text) or name.startswith(TRIPS)):
            raise RequestError(f"{found}: --set takes name=value with a positive integer, not {setting!r}")
        values[name.strip()] = int(text)
    return values


def workload_of(target: str, verb: str) -> Workload:
    """The workload ``target``, whatever its function returns. Raises RequestError for a file or a script."""
    found = resolve(target)
    return found.workload if isinstance(found, Built) else step_of(target, verb)


def step_of(target: str, verb: str) -> Workload:
    """The workload ``target``, for a verb that runs it. Raises RequestError for a file or a script."""
    found = resolve(target)
    if isinstance(found, Script):
        other = " (or open tensortide.budget(...) around the script's training loop)" if verb == "run" else ""
        raise RequestError(f"{found}, which has no step to call: {verb} goes with a workload, file.py:function{other}")
    if isinstance(found, File):
        raise RequestError(f"{found}, which has no step to run: {verb} goes with a workload")
    return found
