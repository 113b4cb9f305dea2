"""Section ``placement_comparison``: searches for placements side by side, and measured against predicted times."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter

if TYPE_CHECKING:
    from tensortide.studies.placement.comparison import SeedRuns
    from tensortide.studies.placement.measured import Validation

__all__ = ["document", "section", "validation_document"]

NS = 1e6
SHOWN = 8
"""Scores above this many times the best of a problem are left out of its picture."""


def document(lines: Sequence[SeedRuns]) -> Document:
    """Show a comparison."""
    count = len(lines[0].outcomes)
    seeds = "1 seed" if count == 1 else f"{count} seeds"
    subtitle = f"{seeds} each, {max(one.proposals for line in lines for one in line.outcomes):,} placements"
    return section(lines).document("Searches for placements compared", subtitle)


def section(lines: Sequence[SeedRuns]) -> Section:
    """Make the section of a comparison."""
    best = {name: min(min(line.scores) for line in lines if line.problem == name) for name in _problems(lines)}
    columns = (
        Column("problem", "Problem", "name", tuple(line.problem for line in lines)),
        Column("algorithm", "Algorithm", "code", tuple(line.algorithm for line in lines), fold=True),
        Column("median", "Median", "ns", tuple(round(line.median_ms * NS) for line in lines)),
        Column("least", "Best", "ns", tuple(round(min(line.scores) * NS) for line in lines)),
        Column("most", "Worst", "ns", tuple(round(max(line.scores) * NS) for line in lines)),
        Column("against", "Over the best", "change", tuple(line.median_ms / best[line.problem] - 1 for line in lines)),
        Column("gap", "Gap to bound", "share", tuple(line.gap for line in lines), at_width=90),
        Column("fits", "Fit", "count", tuple(sum(one.fits for one in line.outcomes) for line in lines), at_width=90),
        Column("simulated", "Simulated", "count", _medians(lines, "evaluations"), at_width=120),
        Column("cpu", "CPU time", "s", _medians(lines, "cpu_s"), at_width=120),
    )
    note = "Median, best and worst over seeds. Over the best: of the median, against the best of any algorithm."
    blocks: list[AnyBlock] = [Table(key="algorithms", columns=columns, heads=2, note=note)]
    blocks += [_history(name, [line for line in lines if line.problem == name]) for name in _problems(lines)]
    blocks.append(_runs(lines))
    return Section("comparison", "Algorithms compared", blocks=tuple(blocks))


def _problems(lines: Sequence[SeedRuns]) -> list[str]:
    return list(dict.fromkeys(line.problem for line in lines))


def _medians(lines: Sequence[SeedRuns], name: str) -> tuple[float, ...]:
    found = (statistics.median(getattr(one, name) for one in line.outcomes) for line in lines)
    return tuple(round(value) if name == "evaluations" else value for value in found)


def _history(problem: str, lines: Sequence[SeedRuns]) -> Scatter:
    """Draw the median over seeds of the best score so far, with its range, against the placements tried."""
    bound = lines[0].outcomes[0].bound_ms
    ceiling = SHOWN * min(min(line.scores) for line in lines)
    return Scatter(
        key=f"history.{problem}",
        title=problem,
        remark="from 1 % of the budget on",
        x=Axis("placements proposed", "count", log=True),
        y=Axis("time of the best, ms (median over seeds)", "number", log=True),
        points=tuple(_progress(line, ceiling) for line in lines),
        across=(Limit("no placement takes less", bound),) if bound else (),
    )


def _progress(line: SeedRuns, ceiling: float) -> Points:
    ends = max(one.proposals for one in line.outcomes)
    moments = {moment for one in line.outcomes for moment, _ in one.history}
    first = max(1, ends // 100)  # before, all algorithms try single devices, the slowest placements of all
    at = sorted({first, *(moment for moment in moments if moment > first), ends})
    best = [[_best_at(one.history, moment) for one in line.outcomes] for moment in at]
    kept = [(moment, scores) for moment, scores in zip(at, best, strict=True) if max(scores) <= ceiling]
    x, scores = tuple(moment for moment, _ in kept), [found for _, found in kept]
    middle = tuple(map(statistics.median, scores))
    low, high = tuple(map(min, scores)), tuple(map(max, scores))
    return Points(line.algorithm, x, middle, joined="step", low=low, high=high)


def _best_at(history: Sequence[tuple[int, float]], moment: int) -> float:
    return min((score for at, score in history if at <= moment), default=float("inf"))


def _runs(lines: Sequence[SeedRuns]) -> Table:
    """List every run, for files."""
    outcomes = [one for line in lines for one in line.outcomes]
    columns = (
        Column("problem", "Problem", "name", tuple(one.problem for one in outcomes)),
        Column("algorithm", "Algorithm", "code", tuple(one.algorithm for one in outcomes)),
        Column("seed", "Seed", "count", tuple(one.seed for one in outcomes)),
        Column("score", "Score, ms", "number", tuple(one.score_ms for one in outcomes)),
        Column("fits", "Fits", "flag", tuple(one.fits for one in outcomes)),
        Column("evaluations", "Simulated", "count", tuple(one.evaluations for one in outcomes)),
        Column("proposals", "Proposed", "count", tuple(one.proposals for one in outcomes)),
        Column("cpu", "CPU time", "s", tuple(one.cpu_s for one in outcomes)),
        Column("placement", "Placement", "code", tuple(" ".join(map(str, one.placement)) for one in outcomes)),
    )
    return Table(key="runs", title="Every run", columns=columns, top=0)


def validation_document(title: str, found: Validation) -> Document:
    """Show predicted against measured times."""
    return Section("validation", "Predicted and measured", blocks=tuple(_validation(found))).document(title)


def _validation(found: Validation) -> Iterator[AnyBlock]:
    pairs = found.worst
    yield Facts(
        rows=(
            Fact("placements", "Placements measured", len(pairs), "count"),
            Fact("rank", "Rank correlation", found.rank, "ratio", "Spearman: 1 where the order is the same"),
            Fact("pearson", "Correlation of times", found.pearson, "ratio", "Pearson"),
            Fact("slope", "Measured per predicted", found.slope, "factor", f"and {found.offset_ms:.4g} ms more"),
        )
    )
    if found.out_of_memory:
        names = ", ".join(found.out_of_memory)
        yield Note(text=f"Out of memory, and left out: {names}.", kind="warning")
    line = [pair.predicted_ms * found.slope + found.offset_ms for pair in pairs]
    columns = (
        Column("placement", "Placement", "path", tuple(pair.name for pair in pairs), fold=True),
        Column("predicted", "Predicted", "ns", tuple(round(pair.predicted_ms * NS) for pair in pairs)),
        Column("measured", "Measured", "ns", tuple(round(pair.measured_ms * NS) for pair in pairs)),
        Column(
            "off",
            "Off the line",
            "change",
            tuple(pair.measured_ms / fit - 1 if fit > 0 else None for pair, fit in zip(pairs, line, strict=True)),
        ),
    )
    yield Table(key="placements", title="Farthest from the line first", columns=columns, top=15)
    x = tuple(pair.predicted_ms for pair in pairs)
    ends = (min(x), max(x))
    yield Scatter(
        key="scatter",
        title="Measured against predicted time of a batch",
        x=Axis("predicted, ms"),
        y=Axis("measured, ms"),
        points=(
            Points(
                "placements", x, tuple(pair.measured_ms for pair in pairs), names=tuple(pair.name for pair in pairs)
            ),
            Points("line of best fit", ends, tuple(at * found.slope + found.offset_ms for at in ends), joined="line"),
        ),
    )
