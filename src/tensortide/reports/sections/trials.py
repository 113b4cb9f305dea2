"""Sections of experiments: trials, slowdown against memory, every repetition, other results to compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated

import msgspec

from tensortide.errors import RequestError
from tensortide.reports.blocks import AnyBlock, Column, Document, Note, Section, Table
from tensortide.reports.of_records import column, table
from tensortide.reports.pictures import Axis, End, Limit, Points, Scatter, with_one_look
from tensortide.shown import Show
from tensortide.studies.experiment.comparison import Pair, by_name
from tensortide.studies.experiment.results import RESULTS, Outcome, Repetition, read_results
from tensortide.studies.experiment.runner import WIDE
from tensortide.studies.experiment.summary import Line, common

if TYPE_CHECKING:
    from tensortide.studies.experiment.comparison import Compared
    from tensortide.studies.experiment.runner import Conducted

_NOTE = (
    "Step: the median over repetitions of the median of their steps. Slowdown: by the baseline of the same workload. "
    "Peak: bytes of tensors. Of peak: the budget by the peak of the baseline, of a way without a budget its own peak. "
    "From, to: the interval of 95 % of the median before it, by a bootstrap of 10,000 draws. Process: the most memory "
    "of the trial's process, seen from outside. Columns that a narrow screen lacks are on the page."
)
_MODES = (
    "Peaks of the two modes are not of the same bytes: a live one is of all tensors of the process, with the workspace "
    "that kernels took; a simulated one is of the step's tensors, with the workspace that rules know of. A budget that "
    "is a ratio is one of the peak of its own mode."
)
_DRIFT = (
    "Intervals are of repetitions alone. Trials are measured one after the other, minutes apart: where the machine's "
    "load or clock drifted in between, a slowdown has that drift too, and no interval knows of it."
)
_MOST_UNSURE = 6
"""Most trials that the note about chance names."""


def document(found: Conducted) -> Document:
    """Show the trials, what failed and why, a picture for each workload, and every repetition as data."""
    lines = found.lines
    trials: list[AnyBlock] = [_verdict(found), table(Line, lines, key="trials"), *_failures(lines), *_unsure(lines)]
    trials += _above(lines)
    trials += [
        Note(text=_NOTE),
        *_sources(found),
        *([Note(text=_MODES)] if len({line.mode for line in lines}) > 1 else []),
    ]
    settings = " ".join(f"{name}={value}" for name, value in common([line.trial for line in lines]).items())
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    sections = (
        Section("trials", "Trials", blocks=tuple(trials)),
        Section("pareto", "Slowdown against memory", blocks=tuple(with_one_look([*_pictures(lines)]))),
        Section("runs", "Repetitions", blocks=(_repetitions(found),)),
        Section("others", "Other results", blocks=tuple(_others(found))),
    )
    return Document(
        title=f"Experiment {found.experiment.name}",
        subtitle=(f"results in {found.folder}, as of {now}", *([f"all with {settings}"] if settings else [])),
        sections=tuple(section for section in sections if section.blocks),
    )


def _verdict(found: Conducted) -> Note:
    return Note(text=found.summary, kind="failure" if found.status else "verdict")


def _failures(lines: Sequence[Line]) -> Iterator[Table]:
    """List the trials without a result, each with the reason."""
    if failed := [line for line in lines if line.reason]:
        names = Column("trial", "trial", "text", tuple(_name(line) for line in failed), fold=True)
        why = Column("reason", "reason", "text", tuple(shorten(line.reason, WIDE) for line in failed), fold=True)
        yield Table(key="failures", title="Without a result", columns=(names, column(Line, failed, "status"), why))


def _sources(found: Conducted) -> Iterator[Note]:
    """Tell where the durations of simulated ops are from."""
    sources = dict.fromkeys(each.durations for one in found.own for each in one.repetitions if each.durations)
    if sources:
        yield Note(text=f"Simulated times are sums of durations of ops: {'; '.join(sources)}.")


def _unsure(lines: Sequence[Line]) -> Iterator[Note]:
    """Name the trials whose slowdowns tell nothing, or that they are faster, by their intervals."""
    known = [
        (line, line.slowdown_low, line.slowdown_high)
        for line in lines
        if line.slowdown_low is not None and line.slowdown_high is not None
    ]
    unsure = [one for one in known if one[1] <= 1 <= one[2]]
    faster = [one for one in known if one[2] < 1]
    for text, each in (("No slowdown beyond chance", unsure), ("Faster than the baseline", faster)):
        if found := [f"{_name(line)} ({low:.2f} to {high:.2f})" for line, low, high in each]:
            more = f", {len(found) - _MOST_UNSURE} others" if len(found) > _MOST_UNSURE else ""
            yield Note(text=f"{text}, by the interval of 95 %: {', '.join(found[:_MOST_UNSURE])}{more}.")
    if known:
        yield Note(text=_DRIFT)


def _above(lines: Sequence[Line]) -> Iterator[Note]:
    """Name the budgets that limit nothing."""
    limited = [line for line in lines if line.budget not in ("", "unlimited") and line.trial.has_limit]
    if above := [_name(line) for line in limited if line.ratio_share is not None and line.ratio_share > 1]:
        more = f", {len(above) - _MOST_UNSURE} others" if len(above) > _MOST_UNSURE else ""
        yield Note(text=f"Budgets above the peak of the baseline: {', '.join(above[:_MOST_UNSURE])}{more}.")


def _name(line: Line) -> str:
    return " ".join(part for part in (line.workload, line.mode, line.policy, line.budget) if part)


def _pictures(lines: Sequence[Line]) -> Iterator[Scatter]:
    """Draw slowdown against memory, for each workload and mode, a line for each policy. Panels of a mode have the same
    axes, which hold every interval."""
    panels: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        panels.setdefault((line.workload, line.mode), []).append(line)
    drawn = {name: points for name, own in panels.items() if (points := tuple(_points(own)))}
    for number, ((workload, mode), points) in enumerate(drawn.items()):
        alike = [one for (_, other), each in drawn.items() if other == mode for one in each]
        y = [value for one in alike for part in (one.y, one.low, one.high) for value in part if value is not None]
        yield Scatter(
            key=f"pareto_{number}",
            title=f"{workload}, {mode}",
            x=Axis("memory / peak of the baseline", covers=(0, 1)),
            y=Axis("step / step of the baseline", covers=(min(1, *y), max(1, *y))),
            points=points,
            across=(Limit("baseline", 1),),
        )


def _points(lines: Sequence[Line]) -> Iterator[Points]:
    """The points of each policy, from the least memory on."""
    policies: dict[str, list[tuple[float, float, Line]]] = {}
    for line in lines:
        if line.ratio_share is not None and line.slowdown is not None:
            policies.setdefault(line.policy, []).append((line.ratio_share, line.slowdown, line))
    for name, found in policies.items():
        found.sort(key=lambda point: point[:2])
        each = [line for *_, line in found]
        measured = each if any(line.slowdown_low is not None for line in each) else []
        yield Points(
            name,
            tuple(share for share, *_ in found),
            tuple(slowdown for _, slowdown, _ in found),
            end=_end(lines, name, *found[0][:2]),
            joined="line" if len(found) > 1 else "",
            low=tuple(line.slowdown if line.slowdown_low is None else line.slowdown_low for line in measured),
            high=tuple(line.slowdown if line.slowdown_high is None else line.slowdown_high for line in measured),
            between="95 %" if measured else "",
        )


def _end(lines: Sequence[Line], policy: str, start: float, y: float) -> End | None:
    """The largest budget below ``start`` that is too small for ``policy``, whose line is as high as ``y`` there."""
    small = [line for line in lines if line.policy == policy and line.status == "infeasible" and line.ratio_share]
    below = [(line.ratio_share, line) for line in small if line.ratio_share is not None and line.ratio_share < start]
    if not below:
        return None
    share, line = max(below, key=lambda each: each[0])
    return End("thrash" if line.reason.startswith("given up") else "oom", share, start, y)


class _Run(msgspec.Struct, frozen=True):
    """A repetition of a trial."""

    line: Line
    outcome: Outcome
    repetition: Annotated[int, Show("repetition")]
    found: Repetition


def _repetitions(found: Conducted) -> Table:
    """List every repetition with all that is known of it."""
    runs = [
        _Run(line, outcome, number, each)
        for line in found.lines
        if (outcome := found.outcomes.get(line.key)) is not None
        for number, each in enumerate(outcome.repetitions, 1)
    ]
    of_line = ("key", "workload", "settings", "mode", "policy", "budget", "ratio_share", "status")
    of_trial = (
        "budget_bytes",
        "batch",
        "process_start_bytes",
        "process_peak_bytes",
        "attempts",
        "took_s",
        "began",
        "experiment",
    )
    of_run = ("step_ns", *(name for name in Repetition.__struct_fields__ if name != "times_ns"))
    names = (*(f"line.{name}" for name in of_line), *(f"outcome.{name}" for name in of_trial), "repetition")
    return table(_Run, runs, *names, *(f"found.{name}" for name in of_run), key="repetitions", top=0)


def _others(found: Conducted) -> Iterator[Table]:
    """List the folders of results beside that of the experiment that have trials of it, each with the command that
    compares them."""
    own, names = found.folder.resolve(), by_name(found.outcomes).keys()
    beside = (path for path in sorted(own.parent.glob(f"*/{RESULTS}")) if path.parent != own)
    if others := [path for path in beside if names & _names_in(path.parent, path.stat().st_mtime_ns)]:
        ended = (datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC") for path in others)
        folders = [found.folder.parent / path.parent.name for path in others]
        commands = tuple(f"tensortide experiment compare {folder} {found.folder}" for folder in folders)
        yield Table(
            key="others",
            title="Beside this one",
            columns=(
                Column("folder", "folder", "path", tuple(map(str, folders))),
                Column("ended", "last result", "text", tuple(ended)),
                Column("command", "to compare", "code", commands, fold=True),
            ),
        )


@cache
def _names_in(folder: Path, changed_ns: int) -> Set[bytes]:
    """Names of the trials of a folder, as of its last change; nothing if it cannot be read."""
    del changed_ns
    try:
        return by_name(read_results(folder)).keys()
    except RequestError:
        return set()


def of_comparison(found: Compared) -> Document:
    """Show two folders of results trial by trial, those that differ first."""
    pairs = sorted(found.pairs, key=lambda pair: not pair.differs)
    differ = sum(pair.differs for pair in pairs)
    first, second = found.folders
    text = f"{differ} of {len(pairs)} trials differ by more than chance; {first} has {found.alone[0]} others"
    note = (
        "times: the median step of the second by that of the first. Wider screens and the page have more columns: peak "
        f"(its change), from, to (the interval of 95 % of times, by a bootstrap). {_DRIFT}"
    )
    blocks: tuple[AnyBlock, ...] = (
        Note(text=f"{text}, {second} {found.alone[1]}.", kind="verdict"),
        table(Pair, pairs, key="pairs", title="Trials in both"),
        *_ended_otherwise(pairs),
        Note(text=note),
    )
    return Section("comparison", "Two experiments", blocks=blocks).document(f"{first} against {second}")


def _ended_otherwise(pairs: Sequence[Pair]) -> Iterator[Table]:
    """List the pairs of which a trial has no times, with how each ended."""
    if otherwise := [pair for pair in pairs if {pair.first, pair.second} != {"ok"}]:
        ends = (column(Pair, otherwise, name, at_width=0) for name in ("first", "second"))
        names = ("workload", "mode", "policy", "budget")
        yield table(Pair, otherwise, *names, *ends, key="ends", title="Without a result")
