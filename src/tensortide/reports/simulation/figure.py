"""Memory before and after as a figure. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from tensortide.reports.render.figure import COLORS, STYLE, check_figure
from tensortide.reports.simulation.records import SimulationView
from tensortide.units import format_bytes
from tensortide.write import write_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POWERS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def simulation_figure(view: SimulationView, path: str | os.PathLike[str]) -> None:
    """Draw memory before and after over time, with the budget, and with recomputation shaded.

    Raises OutputError if ``path`` cannot be written.
    """
    target = check_figure(path)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure.subplots(), view)
        figure.suptitle(_caption(view), fontsize=9, x=0.01, ha="left")
        out, kind = io.BytesIO(), target.suffix.lower()[1:]
        figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_file(target, out.getvalue())


def _caption(view: SimulationView) -> str:
    return textwrap.fill(f"{view.workload or 'unnamed step'}, {view.policy}: {view.verdict}", 110)


def _draw(axis: Axes, view: SimulationView) -> None:
    curves = view.curves
    most = max(curves.before_bytes + curves.after_bytes, default=1)
    size, unit = next(((s, u) for s, u in _POWERS if most >= s), _POWERS[-1])
    times = [ns / 1e6 for ns in (*curves.start_ns, view.clock_ns)]
    for start, end in _again(view):
        axis.axvspan(times[start], times[end], color=COLORS[3], alpha=0.25, lw=0)
    if curves.op:
        before = [nbytes / size for nbytes in curves.before_bytes]
        after = [nbytes / size for nbytes in curves.after_bytes]
        axis.stairs(before, times, color="#777777", linewidth=1.0, label="before")
        axis.stairs(after, times, color=COLORS[0], linewidth=1.2, label="after", fill=False)
    if view.budget_bytes is not None and view.budget_bytes <= 2 * most:
        label = f"budget, {format_bytes(view.budget_bytes)}"
        axis.axhline(view.budget_bytes / size, color=COLORS[1], linestyle="--", linewidth=1.0, label=label)
    if view.recomputed:
        axis.fill_between([], [], color=COLORS[3], alpha=0.25, label="computed again")
    axis.set(xlabel="ms", ylabel=unit, ylim=(0, None), xlim=(times[0], max(times[-1], times[0] + 1e-6)))
    axis.set_title("Memory over the step")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _again(view: SimulationView) -> Iterator[tuple[int, int]]:
    """Stretches of recomputation, in executed ops."""
    at = 0
    for again, members in groupby(view.curves.again):
        length = len(list(members))
        if again:
            yield at, at + length
        at += length
