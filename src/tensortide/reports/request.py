"""A report of one step: what is asked, and the step that answers it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.importers.door import resolve
from tensortide.progress import Say, silent
from tensortide.recorder import resolver
from tensortide.reports.sections import Step
from tensortide.request import Arg, Opt, Request
from tensortide.targets.command import moving, typed
from tensortide.targets.durations import predicted_steps, timed_on_cards
from tensortide.targets.machines import machines_of
from tensortide.targets.requests import TARGET, Depth, Strict, TimedRequest, Top


@dataclass(frozen=True, kw_only=True)
class ReportRequest(Request):
    """Cost of one step: the answer on one screen, and all of it in files."""

    GROUP = "Output"

    target: Annotated[str, Arg(TARGET)]
    memory_viz: Annotated[Path | None, Opt("Write a snapshot for pytorch.org/memory_viz.", writes=True)] = None
    full: Annotated[
        bool, Opt("Print every section, as --html and --json have them, and not the answer alone.", common=True)
    ] = False
    depth: Depth = 3
    top: Top = 15
    step: TimedRequest = TimedRequest()
    strict: Strict = False


def answer(asked: ReportRequest, say: Say = silent) -> Step:
    """The step with its durations, as sections show it."""
    found = timed_on_cards(resolve(asked.target), asked.step, say=say, strict=asked.strict)
    rows = (asked.strict, asked.top, asked.depth)
    typed_next = moving(asked.target, *typed(asked.step.capture))
    if found.durations is None:
        return Step(found.graph, None, resolver, *rows, card=asked.step.capture.card)
    machines = [machines_of(text) for text in asked.step.capture.machines]
    steps = predicted_steps([found.graph], found.durations, machines)
    return Step(found.graph, found.durations, resolver, *rows, steps[0].step_time if steps else None, moving=typed_next)
