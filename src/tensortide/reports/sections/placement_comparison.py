"""Section ``placement_comparison``: searches for placements side by side, and measured against predicted times."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from tensortide.reports.blocks import AnyBlock, Document, Note, Section
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.pictures import Axis, Limit, Points, Scatter
from tensortide.studies.placement.comparison import FinishedSearch, SeedRuns
from tensortide.studies.placement.measured import Pair, Validation

SHOWN = 8
"""Scores above this many times the best of a problem are left out of its picture."""


def document(lines: Sequence[SeedRuns]) -> Document:
    """Show searches for placements side by side: a row for each algorithm and problem, and every run for files."""
    outcomes = [one for line in lines for one in line.outcomes]
    problems = dict.fromkeys(line.problem for line in lines)
    note = "Median, best and worst over seeds. Over the best: of the median, against the best of any algorithm."
    figures = ("median_ns", "least_ns", "most_ns", "against_change", "gap_share", "fits", "evaluations", "cpu_s")
    runs = ("problem", "algorithm", "seed", "score_ms", "fits", "evaluations", "proposals", "cpu_s", "devices")
    blocks: tuple[AnyBlock, ...] = (
        table(SeedRuns, lines, "problem", "algorithm", *figures, key="algorithms", heads=2, note=note),
        *(_history(name, [line for line in lines if line.problem == name]) for name in problems),
        table(FinishedSearch, outcomes, *runs, key="runs", title="Every run", top=0),
    )
    count = len(lines[0].outcomes)
    subtitle = f"{count} seed{'s' * (count > 1)} each, {max(one.proposals for one in outcomes):,} placements"
    made = Section("comparison", "Algorithms compared", blocks=blocks)
    return made.document("Searches for placements compared", subtitle)


def _history(problem: str, lines: Sequence[SeedRuns]) -> Scatter:
    """Draw the median over seeds of the best score so far, with its range, against the placements tried."""
    bound = lines[0].outcomes[0].bound_ms
    least = min(one.score_ms for line in lines for one in line.outcomes)
    ceiling = SHOWN * least
    return Scatter(
        key=f"history.{problem}",
        title=problem,
        remark="from 1 % of the budget on",
        x=Axis("placements proposed", "count", log=True),
        y=Axis("time of the best, ms (median over seeds)", "number", log=True),
        points=tuple(_progress(line, ceiling) for line in lines),
        across=(Limit("no placement takes less", bound),) if 0 < bound <= least else (),
    )


def _progress(line: SeedRuns, ceiling: float) -> Points:
    kept = {moment: scores for moment, scores in line.progress().items() if max(scores) <= ceiling}
    low, high = tuple(map(min, kept.values())), tuple(map(max, kept.values()))
    middle = tuple(map(statistics.median, kept.values()))
    return Points(line.algorithm, tuple(kept), middle, joined="step", low=low, high=high)


def validation_document(title: str, found: Validation) -> Document:
    """Show predicted against measured times."""
    return Section("validation", "Predicted and measured", blocks=tuple(_validation(found))).document(title)


def _validation(found: Validation) -> Iterator[AnyBlock]:
    pairs = found.worst
    yield facts(
        found,
        "placements",
        fact(found, "rank", "Spearman: 1 where the order is the same"),
        fact(found, "pearson", "Pearson"),
        fact(found, "slope", f"and {found.offset_ms:.4g} ms more"),
    )
    if found.out_of_memory:
        yield Note(text=f"Out of memory, and left out: {', '.join(found.out_of_memory)}.", kind="warning")
    names, title = ("predicted_ns", "measured_ns", "off_change"), "Farthest from the line first"
    yield table(Pair, pairs, "placement", *names, key="placements", title=title, top=15)
    x, y = tuple(pair.predicted_ms for pair in pairs), tuple(pair.measured_ms for pair in pairs)
    ends = (min(x), max(x))
    yield Scatter(
        key="scatter",
        title="Measured against predicted time of a batch",
        x=Axis("predicted, ms"),
        y=Axis("measured, ms"),
        points=(
            Points("placements", x, y, names=tuple(pair.placement for pair in pairs)),
            Points("line of best fit", ends, tuple(at * found.slope + found.offset_ms for at in ends), joined="line"),
        ),
    )
