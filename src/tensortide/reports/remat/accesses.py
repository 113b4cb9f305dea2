"""How many storages are looked at to choose what to evict, against memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tensortide.reports.remat.canvas import Look, label, legend, looks, page, ratios
from tensortide.studies.remat.results import Curve, Experiment

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = ["accesses_figure"]


def accesses_figure(experiment: Experiment, path: str | os.PathLike[str]) -> None:
    """Draw accesses on a logarithmic axis: full lines for looking around every candidate, dashed ones with bounds."""
    policies = list(dict.fromkeys(curve.policies[0] for curve in experiment.studies[0].curves))
    styles = looks(policies)
    with page(path, len(experiment.studies)) as (figure, axes):
        for axis, study in zip(axes, experiment.studies, strict=True):
            for curve in study.curves:
                _curve(axis, curve, styles[curve.policies[0]])
            axis.set_yscale("log")
            axis.set_title(study.step.name)
            ratios(axis, max((row.ratio for curve in study.curves for row in curve.rows), default=1))
        label(axes, "memory budget / peak", "storages looked at")
        legend(figure, _entries(policies, styles))


def _curve(axis: Axes, curve: Curve, look: Look) -> None:
    rows = [row for row in curve.rows if row.status == "ok"]
    axis.plot(
        [row.ratio for row in rows],
        [row.runs[0].accesses or float("nan") for row in rows],
        color=look.color,
        marker=look.marker if curve.exhaustive else None,
        linestyle="-" if curve.exhaustive else (0, (3, 1.5)),
    )


def _entries(policies: list[str], styles: dict[str, Look]) -> list[tuple[Artist, str]]:
    from matplotlib.lines import Line2D

    entries: list[tuple[Artist, str]] = [
        (Line2D([], [], color=styles[name].color, marker=styles[name].marker), name) for name in policies
    ]
    entries.append((Line2D([], [], color="#444444"), "around all"))
    entries.append((Line2D([], [], color="#444444", linestyle=(0, (3, 1.5))), "with bounds"))
    return entries
