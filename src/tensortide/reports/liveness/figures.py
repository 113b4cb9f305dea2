"""Figures of liveness as files. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tensortide.errors import OutputError
from tensortide.reports.liveness import panels
from tensortide.reports.liveness.study import LivenessStudy
from tensortide.reports.remat.canvas import page
from tensortide.reports.render.figure import check_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["FIGURES", "draw_all", "overview_figure"]

FIGURES: dict[str, tuple[Callable[[Axes, LivenessStudy], None], tuple[float, float]]] = {
    "memory": (panels.by_role, (6.4, 2.9)),
    "memory_log": (panels.live_and_active, (6.4, 2.7)),
    "periods": (panels.distribution, (4.4, 3.0)),
    "sizes": (panels.sizes, (5.8, 3.4)),
    "lives": (panels.lives, (7.0, 4.0)),
    "largest": (panels.largest, (6.4, 4.0)),
}
"""What is drawn, and its size in inches."""
SUFFIXES = ("png", "svg")


def overview_figure(study: LivenessStudy, path: str | os.PathLike[str]) -> None:
    """Draw the four pictures that tell most on one page. Raises OutputError if ``path`` cannot be written."""
    with page(path, 4, panel=(5.4, 3.2), columns=2) as (figure, axes):
        for axis, draw in zip(axes, (panels.by_role, panels.sizes, panels.distribution, panels.lives), strict=True):
            draw(axis, study)
        figure.suptitle(caption(study, 150), fontsize=9, x=0.01, ha="left")


def draw_all(study: LivenessStudy, folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG into ``folder``, which is made if need be. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror}.") from error
    paths = [check_figure(folder / f"{name}.{suffix}") for name in FIGURES for suffix in SUFFIXES]
    for target in paths:
        draw, size = FIGURES[target.stem]
        with page(target, 1, panel=size, single=1.0) as (figure, (axis,)):
            draw(axis, study)
            figure.suptitle(caption(study, int(15 * size[0])), fontsize=8, x=0.01, ha="left")
    return paths


def caption(study: LivenessStudy, width: int) -> str:
    """The step, its settings, and how durations are known, in lines of at most ``width``."""
    view = study.view
    settings = " ".join(f"{name}={value}" for name, value in view.hyperparameters.items())
    known = view.durations.partition(" (")[0]
    return textwrap.fill("   ".join(part for part in (view.workload or "unnamed step", settings, known) if part), width)
