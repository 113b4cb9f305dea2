"""Steps beside each other as a request: the targets, the reference among them, and limits on the difference."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypeAlias

from tensortide.errors import RequestError
from tensortide.graph import unrolled
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.importers.profiler import is_list
from tensortide.measures.differences.compared import Compared, compare
from tensortide.measures.differences.limits import parse_limit
from tensortide.measures.status import SUFFIX as STATUS
from tensortide.measures.status import Status, load_status
from tensortide.progress import Say, silent
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload
from tensortide.request import Arg, Opt, Request, Rule
from tensortide.targets.durations import with_durations
from tensortide.targets.machines import device_named, in_catalogue
from tensortide.targets.opening import opened
from tensortide.targets.requests import TARGET, CaptureRequest, Depth, Strict, TimesRequest, Top
from tensortide.timing import DEFAULT_DEVICE, load_durations
from tensortide.timing.durations import SUFFIX as DURATIONS

_OF_ONE = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TARGETS = (
    f"Two or more of: {TARGET[0].lower()}{TARGET[1:].rstrip('.')}; the times of the reference's step, as a profiler's "
    "trace or a file of durations; a saved status. They are called A, B, C, ... in their order."
)
Step: TypeAlias = "Imported | Status"


def _limit(text: str) -> str:
    """A threshold as it is written. Its unit is checked when all metrics are known."""
    parse_limit(text, None)
    return text


def _letters(asked: Request) -> str:
    return _LETTERS[: len(asked.get("targets"))]


def _count(asked: Request) -> str | None:
    count = len(asked.get("targets"))
    known = 2 <= count <= len(_LETTERS)
    return None if known else f"compare takes two steps or more (at most {len(_LETTERS)}), not {count}"


def _reference(asked: Request) -> str | None:
    letter, letters = asked.get("reference"), _letters(asked)
    return None if letter in [*letters] else f"--reference takes one of {', '.join(letters)}, not {letter!r}"


def _settings(asked: Request) -> str | None:
    of = {text: one[1].upper() for text in asked.get("set") if (one := _OF_ONE.fullmatch(text))}
    unknown = ((text, letter) for text, letter in of.items() if letter not in _letters(asked))
    only = ", ".join(_letters(asked))
    return next((f"--set {text}: there is no step {letter}, only {only}" for text, letter in unknown), None)


@dataclass(frozen=True, kw_only=True)
class CompareRequest(Request):
    """What differs between steps, where, and by how much?"""

    GROUP = "The comparison"

    targets: Annotated[tuple[str, ...], Arg(_TARGETS)] = ()
    reference: Annotated[
        str,
        Opt("Target that the others are compared with, by its letter (default: A).", read=str.upper, value="LETTER"),
    ] = "A"
    threshold: Annotated[
        tuple[str, ...],
        Opt(
            "Most that a metric may change for the worse: peak=+2%, flops=+1G, time=+5ms. Beyond it the exit "
            "status is 1.",
            read=_limit,
            common=True,
            value="METRIC=CHANGE",
        ),
    ] = ()
    depth: Depth = 3
    top: Top = 15
    capture: CaptureRequest = CaptureRequest()
    strict: Strict = False

    RULES = (
        Rule(("targets",), _count),
        Rule(("reference", "targets"), _reference),
        Rule(("set", "targets"), _settings),
    )


@dataclass(frozen=True)
class _Given:
    """A target: its text, what it is, and how it is captured; a Path holds times of the reference, or a saved
    status."""

    text: str
    found: Workload | Script | File | Path
    capture: CaptureRequest
    strict: bool

    def name(self, step: Step) -> str:
        """The name of its step: that of the command line, of a script that of its graph."""
        return step.graph.meta.workload if isinstance(self.found, Script) and isinstance(step, Imported) else self.text

    @property
    def is_times(self) -> bool:
        """True for times of the reference's step, in which no step stands."""
        if isinstance(self.found, Path):
            return self.text.endswith(DURATIONS)
        return isinstance(self.found, File) and self.found.importer.name == "profiler" and self.capture.step is None

    @property
    def is_trace(self) -> bool:
        """True for a profiler's trace, which may be a step by itself."""
        return self.is_times and isinstance(self.found, File) and not is_list(self.found.path)

    def opened(self, base: Step | None, say: Say, *, is_step: bool) -> Step:
        """Open it; times, unless they are a step, are of the step of the reference. Raises RequestError if that is
        none, or these times itself."""
        if self.is_times and not is_step:
            if not isinstance(base, Imported):
                raise RequestError(
                    f"{self.text} has times and no step: the reference must be the step that they are of"
                )
            if isinstance(self.found, File):
                return self.found.read(step=base.graph)
            assert isinstance(self.found, Path)
            graph = unrolled(base.graph)
            return Imported(graph, load_durations(self.found, graph))
        if isinstance(self.found, Path):
            return load_status(self.found)
        return opened(self.found, self.capture, say, strict=self.strict)


def answer(asked: CompareRequest, say: Say = silent, names: Sequence[str] = ()) -> Compared:
    """Open the steps, and compare them, by these ``names`` or those of their targets. Once the times of one are known
    or a machine is asked for, all have times.

    Raises:
        RequestError: a target has times and no step, where there must be one.
        MetricError: a threshold is of a metric that there is not, or that a step does not have.
        Doubtful, UnknownCost: ``strict``, and a step depends on what was assumed, or an op has no cost rule.
    """
    given = [_given(asked, *each) for each in zip(_LETTERS, asked.targets, strict=False)]
    reference, machine = _LETTERS.index(asked.reference), asked.capture.machine
    if machine is not None:
        device_named(machine)  # an error for what has no times, before anything is captured
    # the reference first: others may be times of it; a trace beside a reference that is a trace, too, is a step
    base, is_trace = given[reference].opened(None, say, is_step=given[reference].is_trace), given[reference].is_trace
    steps = [
        base if place == reference else one.opened(base, say, is_step=is_trace and one.is_trace)
        for place, one in enumerate(given)
    ]
    machines: list[str | None] = [None] * len(steps)
    if machine or any(isinstance(step, Imported) and step.durations is not None for step in steps):
        machines = [_predicted_for(one, step, machine) for one, step in zip(given, steps, strict=True)]
        steps = [
            with_durations(step, TimesRequest(), name, say=say) if isinstance(step, Imported) else step
            for step, name in zip(steps, machines, strict=True)
        ]
    say("comparing")
    own = [one.name(step) for one, step in zip(given, steps, strict=True)]
    return compare(
        *steps,
        names=[*names, *own[len(names) :]],
        reference=reference,
        thresholds=asked.threshold,
        machines=[None if name is None or not in_catalogue(name) else name for name in machines],
        strict=asked.strict,
        top=asked.top,
        depth=asked.depth,
    )


def _given(asked: CompareRequest, letter: str, text: str) -> _Given:
    """A target with the settings of its own."""
    pairs = [(one, _OF_ONE.fullmatch(one)) for one in asked.capture.set]
    own = [one if of is None else of[2] for one, of in pairs if of is None or of[1].upper() == letter]
    path = Path(text)
    found = path if text.endswith((STATUS, DURATIONS)) and path.exists() else resolve(text)
    return _Given(text, found, replace(asked.capture, set=tuple(own)), asked.strict)


def _predicted_for(one: _Given, step: Step, machine: str | None) -> str | None:
    """The machine that the times of a step are to be predicted for; None for times of its own, and where none are."""
    if not isinstance(step, Imported) or one.is_times or (machine is None and step.durations is not None):
        return None
    return machine or step.graph.meta.machine or DEFAULT_DEVICE
