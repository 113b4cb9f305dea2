"""What the figures of experiments have in common: the page, a look for every line, one legend. Needs matplotlib."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tensortide.plans.remat.policies import contenders
from tensortide.reports.render.figure import COLORS, STYLE, check_figure
from tensortide.write import write_file

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Dashes", "Look", "label", "legend", "looks", "page", "ratios"]

PANEL = (2.2, 1.9)
"""Inches: four panels fill the width of a page at a readable size."""
PAGE: Any = {**STYLE, "pdf.fonttype": 42, "axes.titlesize": 9.5, "legend.fontsize": 8.5}
LETTER, HANDLE, LINE = 0.062, 0.62, 0.18
"""Inches that a letter, a sample of a line and a row take in a legend."""
_MARKUP = re.compile(r"\\\w+|\\,|[${}_]")
MARKERS = "osD^vXP"


Dashes: TypeAlias = Literal["-", "--", "-.", ":"]


class Look(NamedTuple):
    """Of a line: told apart by colour and by marker. Earlier ones are wider, so that they show below later ones."""

    color: str
    marker: str
    style: Dashes = "-"
    width: float = 1.5

    @property
    def size(self) -> float:
        """Of its markers."""
        return 2.7 + 1.3 * self.width


def looks(names: Iterable[str]) -> dict[str, Look]:
    """A look for each of ``names``; those that are well known keep theirs."""
    names = list(names)
    every = [Look(color, MARKERS[i % len(MARKERS)]) for i, color in enumerate(COLORS)]
    every += [Look(color, MARKERS[(i + 3) % len(MARKERS)], "--") for i, color in enumerate(COLORS)]
    familiar = {name: every[i] for i, name in enumerate(contenders()) if name in names}
    free = [look for look in every if look not in familiar.values()]
    others = [name for name in names if name not in familiar]
    found = familiar | {name: free[i % len(free)] for i, name in enumerate(others)}
    widths = [2.6 - 1.4 * i / max(1, len(names) - 1) for i in range(len(names))]
    return {name: found[name]._replace(width=width) for name, width in zip(names, widths, strict=True)}


def grid_of(panels: int) -> tuple[int, int]:
    """Rows and columns for ``panels``: one row of up to four, else two or more."""
    if panels <= 4:
        return 1, panels
    rows = math.ceil(panels / 4)
    return rows, math.ceil(panels / rows)


@contextmanager
def page(
    path: str | os.PathLike[str],
    panels: int,
    *,
    panel: tuple[float, float] = PANEL,
    single: float = 1.5,
    columns: int | None = None,
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure of ``panels``, written when the body is done; a lone one is ``single`` times as large.

    ``columns``: beside each other, if not as ``grid_of`` has it.
    """
    target = check_figure(path)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows, columns = grid_of(panels) if columns is None else (math.ceil(panels / columns), columns)
    scale = single if panels == 1 else 1.0
    with rc_context(PAGE):
        size = (panel[0] * columns * scale, panel[1] * rows * scale + 0.2)
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for empty in axes[panels:]:
            empty.set_axis_off()
        yield figure, axes[:panels]
        out, kind = io.BytesIO(), target.suffix.lower()[1:]
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        figure.savefig(out, format=kind, metadata=metadata)
    write_file(target, out.getvalue())


def label(axes: Sequence[Axes], x: str, y: str) -> None:
    """Name the axes at the left and at the lower edge of a page."""
    columns = grid_of(len(axes))[1]
    for i, axis in enumerate(axes):
        if i % columns == 0:
            axis.set_ylabel(y)
        if i + columns >= len(axes):
            axis.set_xlabel(x)


def legend(figure: Figure, entries: Sequence[tuple[Artist, str]]) -> None:
    """One legend for all panels: where a panel is missing, beside a lone one, else below; the page grows by it."""
    artists, names = zip(*entries, strict=True)
    width, height = figure.get_size_inches()
    last = figure.axes[-1]
    if not last.axison:
        box = last.legend(artists, names, loc="lower center", handlelength=2.2, labelspacing=0.3, borderpad=0)
        box.set_bbox_to_anchor((0.5, -0.3), last.transAxes)  # down to where the others have their labels
        box.set_in_layout(False)
        return
    if len(figure.axes) == 1:
        longest = max(len(_MARKUP.sub("", name)) for name in names)
        figure.set_size_inches(width + HANDLE + LETTER * longest, height)
        figure.legend(artists, names, loc="outside right center", handlelength=2.2)
        return
    columns = _columns(names, width - 0.1)
    rows = math.ceil(len(names) / columns)
    order = [i for column in range(columns) for i in range(column, len(names), columns)]
    figure.set_size_inches(width, height + LINE * rows)
    figure.legend(
        [artists[i] for i in order],
        [names[i] for i in order],
        loc="outside lower center",
        ncols=columns,
        handlelength=2.2,
        columnspacing=1.2,
    )


def _columns(names: Sequence[str], width: float) -> int:
    """The most columns that ``names``, row by row, fit ``width`` inches in."""
    lengths = [HANDLE + LETTER * len(_MARKUP.sub("", name)) for name in names]
    fitting = [n for n in range(1, len(names) + 1) if sum(max(lengths[i::n]) for i in range(n)) <= width]
    return max(fitting, default=1)


def ratios(axis: Axes, most: float = 1.0) -> None:
    """Let the horizontal axis show budgets as parts of the peak."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_xlim(0, 1.1 * max(1.0, most))
    axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.2g}"))
    axis.grid(axis="x", visible=False)
