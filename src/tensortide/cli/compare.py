"""``tensortide compare``: steps beside each other, what differs and where, and limits on it as an exit status."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions, with_durations
from tensortide.cli.local import in_catalogue
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    TARGET,
    CaptureOptions,
    Depth,
    OutputOptions,
    Strict,
    Top,
    opened,
    option,
    progress,
    require_certain,
)
from tensortide.errors import WorkloadError
from tensortide.importers.door import File, resolve
from tensortide.importers.imported import Imported
from tensortide.recorder import resolver
from tensortide.recorder.script import Script
from tensortide.timing import DEFAULT_DEVICE, load_durations
from tensortide.timing.durations import SUFFIX as DURATIONS

if TYPE_CHECKING:
    from tensortide.metrics.status import Status
    from tensortide.recorder.target import Workload

_OF_ONE = re.compile(r"([A-Za-z]):(.*)", re.DOTALL)
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HELP = (
    f"Two or more of: {TARGET[0].lower()}{TARGET[1:]}; the times of the reference's step, as a profiler's trace or a "
    f"file of durations; a saved status. They are called A, B, C, ... in their order."
)


@dataclass
class _Given:
    """A target: its letter, its text, and what it is; a Path holds times of the reference, or a saved status."""

    letter: str
    text: str
    found: Workload | Script | File | Path
    options: CaptureOptions


def compare(
    *targets: Annotated[str, Parameter(help=_HELP)],
    reference: Annotated[str, option("--reference", "The one that the others are compared with (default: A).")] = "A",
    threshold: Annotated[
        tuple[str, ...],
        option(
            "--threshold",
            "The most that a metric may change for the worse: peak=+2%, flops=+1G, time=+5ms. Else the exit status is "
            "1. Repeatable.",
        ),
    ] = (),
    depth: Depth = 3,
    top: Top = 15,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare steps: what changed and why, metrics beside each other, and where the difference is: by module, op,
    phase, tensor at the peak, and over time.

    --set goes to all workloads, --set B:batch=2 to one: tensortide compare gpt2 gpt2 --set B:batch=2. --machine adds
    predicted times, beside measured ones where a target has them. Exits 0 within all thresholds, 1 if one is exceeded,
    2 on an error.
    """
    from tensortide.metrics.differences.compared import compare as compare_steps
    from tensortide.reports.sections.comparison import document

    files.check()
    if strict:
        options.require_full_names()
    given = _given(targets, options, strict=strict)
    chosen = _reference(reference, given)
    steps, machines = _steps(given, chosen, strict=strict, quiet=out.quiet)
    with progress(out.quiet) as say:
        say("comparing")
        found = compare_steps(
            *steps,
            names=[_name(one, step) for one, step in zip(given, steps, strict=True)],
            reference=chosen,
            thresholds=threshold,
            machines=[None if name is None or not in_catalogue(name) else name for name in machines],
            resolver=resolver,
            strict=strict,
            top=top,
            depth=depth,
        )
        made = document(found)
        wrote = files.write(made, table="modules" if len(steps) == 2 else "all_metrics")
    show(made, out, wrote=wrote)
    if found.exceeded:
        raise SystemExit(1)


def _given(targets: Sequence[str], options: CaptureOptions, *, strict: bool) -> list[_Given]:
    """Resolve every target, with its own settings. Raises WorkloadError for a setting of none of them."""
    if not 2 <= len(targets) <= len(_LETTERS):
        raise WorkloadError(f"compare takes two steps or more (at most {len(_LETTERS)}), not {len(targets)}")
    letters = _LETTERS[: len(targets)]
    own: dict[str, list[str]] = {letter: [] for letter in letters}
    for text in options.set:
        one = _OF_ONE.fullmatch(text)
        if one is not None and one[1].upper() not in own:
            raise WorkloadError(f"--set {text}: there is no step {one[1].upper()}, only {', '.join(letters)}")
        for letter in letters if one is None else one[1].upper():
            own[letter].append(text if one is None else one[2])
    return [
        _Given(letter, text, _found(text), replace(options, set=tuple(own[letter]), compare=strict))
        for letter, text in zip(letters, targets, strict=True)
    ]


def _found(text: str) -> Workload | Script | File | Path:
    from tensortide.metrics.status import SUFFIX as STATUS

    path = Path(text)
    return path if text.endswith((STATUS, DURATIONS)) and path.exists() else resolve(text)


def _reference(letter: str, given: Sequence[_Given]) -> int:
    letters = [one.letter for one in given]
    if letter.upper() not in letters:
        raise WorkloadError(f"--reference takes one of {', '.join(letters)}, not {letter!r}")
    return letters.index(letter.upper())


def _steps(
    given: Sequence[_Given], reference: int, *, strict: bool, quiet: bool
) -> tuple[list[Imported | Status], list[str | None]]:
    """Open every target, the reference first: others may be times of it. With each, the machine that its times are
    predicted for.

    A profiler's trace has times of the reference; where that is a trace too, both are steps. Once the times of one are
    known, or a machine is asked for, those of the others are predicted.
    """
    steps: list[Imported | Status | None] = [None] * len(given)
    traced = _is_trace(given[reference])
    for place in sorted(range(len(given)), key=lambda place: place != reference):
        one, base = given[place], steps[reference]
        is_step = traced and _is_trace(one)
        steps[place] = _times(one, base, quiet) if _is_times(one) and not is_step else _opened(one, quiet)
    found = [step for step in steps if step is not None]
    if strict:
        for step in found:
            if isinstance(step, Imported):
                require_certain(step.graph)
    machine = given[0].options.machine
    if machine is None and all(not isinstance(step, Imported) or step.durations is None for step in found):
        return found, [None] * len(found)
    machines = [_predicted_for(one, step, machine) for one, step in zip(given, found, strict=True)]
    timed = [
        with_durations(step, TimeOptions(), name, quiet=quiet) if isinstance(step, Imported) else step
        for step, name in zip(found, machines, strict=True)
    ]
    return timed, machines


def _predicted_for(one: _Given, step: Imported | Status, machine: str | None) -> str | None:
    """The machine that the times of a step are to be predicted for; None for times of its own, and where none are."""
    if not isinstance(step, Imported) or _is_times(one) or (machine is None and step.durations is not None):
        return None
    return machine or step.graph.meta.machine or DEFAULT_DEVICE


def _is_times(one: _Given) -> bool:
    """Tell times of the reference's step, in which no step stands, from a step."""
    if isinstance(one.found, Path):
        return one.text.endswith(DURATIONS)
    return isinstance(one.found, File) and one.found.importer.name == "profiler" and one.options.step is None


def _is_trace(one: _Given) -> bool:
    """Tell whether a target is a profiler's trace, which may be a step by itself."""
    from tensortide.importers.profiler import is_list

    return _is_times(one) and isinstance(one.found, File) and not is_list(one.found.path)


def _times(one: _Given, base: Imported | Status | None, quiet: bool) -> Imported:
    """Read times of the step of the reference. Raises WorkloadError if that is none, or these times itself."""
    if not isinstance(base, Imported):
        raise WorkloadError(f"{one.text} has times and no step: the reference must be the step that they are of")
    if isinstance(one.found, Path):
        from tensortide.graph import unrolled

        graph = unrolled(base.graph)
        return Imported(graph, load_durations(one.found, graph))
    assert isinstance(one.found, File)
    return one.found.read(step=base.graph)


def _opened(one: _Given, quiet: bool) -> Imported | Status:
    if isinstance(one.found, Path):
        from tensortide.metrics.status import load_status

        return load_status(one.found)
    return opened(one.found, one.options, quiet=quiet)


def _name(one: _Given, step: Imported | Status) -> str:
    """Name a step as the command line does, and a script as its graph does."""
    return step.graph.meta.workload if isinstance(one.found, Script) and isinstance(step, Imported) else one.text
