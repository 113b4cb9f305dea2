"""Heat maps of an archive of placements, as figures and as an animation."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tensortide.reports.render.figure import check_figure
from tensortide.write import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tensortide.placements.search.session import Elite

AXES = ("device used most", "devices used beyond one", "edges across devices")
BRIGHT = 4.0
"""Scores above this many times the best have the last colour."""


def render_archive(elites: Sequence[Elite], sizes: Sequence[int], axes: Sequence[int], path: Path, title: str) -> Path:
    """Write a heat map of the mean time in the cells along ``axes``: the last two, one panel per value of a first of
    three."""
    target = check_figure(path)
    out = io.BytesIO()
    _drawn(elites, sizes, axes, title).savefig(out, format=target.suffix[1:], dpi=150)
    return write_file(target, out.getvalue())


def render_animation(
    archives: Sequence[tuple[int, Sequence[Elite]]],
    sizes: Sequence[int],
    axes: Sequence[int],
    path: Path,
    frames_per_s: float,
) -> Path:
    """Write the archive after so many steps each as one frame of a GIF."""
    from PIL import Image

    best = min(elite.score_ms for _, elites in archives for elite in elites)
    frames = []
    for steps, elites in archives:
        out = io.BytesIO()
        _drawn(elites, sizes, axes, f"after {steps:,} placements", best).savefig(out, format="png", dpi=80)
        frames.append(Image.open(out).convert("P"))
    made = io.BytesIO()
    frames[0].save(
        made, format="GIF", save_all=True, append_images=frames[1:], duration=round(1000 / frames_per_s), loop=0
    )
    return write_file(path, made.getvalue())


def _drawn(
    elites: Sequence[Elite], sizes: Sequence[int], axes: Sequence[int], title: str, best: float | None = None
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    best = min((elite.score_ms for elite in elites), default=1.0) if best is None else best
    across, along = axes[-2], axes[-1]
    values = range(sizes[axes[0]]) if len(axes) == 3 else (None,)
    maps = [_means([e for e in elites if v is None or e.cell[axes[0]] == v], sizes, across, along) for v in values]
    shown = [(value, found) for value, found in zip(values, maps, strict=True) if np.isfinite(found).any()]
    columns = min(3, max(1, len(shown)))
    rows = -(-len(shown) // columns) or 1
    figure = Figure(figsize=(4.2 * columns + 1, 3.2 * rows + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    every: Any = figure.subplots(rows, columns, squeeze=False)
    image = None
    for axis, panel in itertools.zip_longest(every.ravel(), shown):
        if panel is None:
            axis.set_axis_off()
            continue
        value, found = panel
        image = axis.imshow(
            found,
            origin="lower",
            aspect="auto",
            cmap="viridis_r",
            vmin=best,
            vmax=BRIGHT * best,
            interpolation="nearest",
        )
        axis.set_xlabel(_label(along, sizes))
        axis.set_ylabel(_label(across, sizes))
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.yaxis.get_major_locator().set_params(integer=True)
        if value is not None:
            axis.set_title(f"{AXES[axes[0]]}: {value}", fontsize=10)
    if image is not None:
        bar = figure.colorbar(image, ax=every.ravel().tolist(), extend="max")
        bar.set_label("mean time, ms")
        figure.supxlabel("darkest: longer, or over memory; blank: none found", fontsize=8, color="#555555")
    figure.suptitle(title)
    return figure


def _label(axis: int, sizes: Sequence[int]) -> str:
    return f"edges across devices, 0 (none) to {sizes[axis] - 1} (all)" if axis == 2 else AXES[axis]


def _means(elites: Sequence[Elite], sizes: Sequence[int], across: int, along: int) -> np.ndarray[Any, Any]:
    """Mean score of the cells at each place along two axes [across, along]; NaN where there is none."""
    sums, counts = np.zeros((sizes[across], sizes[along])), np.zeros((sizes[across], sizes[along]))
    for elite in elites:
        place = int(elite.cell[across]), int(elite.cell[along])
        sums[place] += elite.score_ms
        counts[place] += 1
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
