"""Experiments as CSV: one line per run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from tensortide.studies.remat.results import Experiment, Growth, Run

__all__ = ["sheet"]


def sheet(result: Experiment | Growth) -> str:
    """A line for each run, with all that is known of it, under a line of names."""
    return _experiment(result) if isinstance(result, Experiment) else _growth(result)


def _experiment(experiment: Experiment) -> str:
    head = ("step", "compat", "curve", "policy", "deallocation", "exhaustive", "overhead_limit", "budget_bytes")
    rows = (
        (
            study.step.name,
            study.step.compat,
            curve.name,
            policy,
            curve.deallocation,
            curve.exhaustive,
            experiment.overhead_limit,
            row.budget_bytes,
            row.ratio,
            *_figures(run),
        )
        for study in experiment.studies
        for curve in study.curves
        for row in curve.rows
        for policy, run in zip(curve.policies, row.runs, strict=True)
    )
    return _csv((*head, "ratio", *Run.__struct_fields__), rows)


def _growth(growth: Growth) -> str:
    head = ("n", "budget", "budget_bytes", "policy", "compat", "overhead_limit")
    rows = (
        (
            *(point.n, point.rule, point.budget_bytes, point.policy),
            *(growth.compat, growth.overhead_limit),
            *_figures(point.run),
        )
        for point in growth.points
    )
    return _csv((*head, *Run.__struct_fields__), rows)


def _figures(run: Run) -> tuple[object, ...]:
    return msgspec.structs.astuple(run)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_plain(value) for value in row] for row in rows)
    return text.getvalue()


def _plain(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else value
