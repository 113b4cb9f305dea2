"""Linear networks of growing length: what is computed again against known bounds, and what is resident when."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.remat.canvas import Dashes, Look, label, legend, looks, page
from tensortide.studies.remat.linear import chen, treeverse
from tensortide.studies.remat.residency import residency
from tensortide.studies.remat.results import Growth

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from tensortide.replays.remat.simulation import Simulation

__all__ = ["RULE_NAMES", "growth_figure", "residency_figure"]

RULE_NAMES = {
    "n": "n",
    "n/2": "n / 2",
    "8sqrt": "8 sqrt n",
    "6sqrt": "6 sqrt n",
    "4sqrt": "4 sqrt n",
    "2sqrt": "2 sqrt n",
    "sqrt+3": "sqrt n + 3",
    "sqrt": "sqrt n",
    "3log2": "3 log2 n",
    "log2": "log2 n",
}
"""Budgets as functions of n, as they are written."""
BOUNDS: dict[str, tuple[Callable[[float], float], Dashes]] = {
    "Chen et al., 2 sqrt n": (chen, "-."),
    "Treeverse, log2 n": (treeverse, ":"),
}
STATES = {"made": "#0072B2", "made again": "#D55E00", "resident": "#cfe3f1"}


def growth_figure(growth: Growth, path: str | os.PathLike[str]) -> None:
    """Draw extra ops against n, a panel per budget, with what Chen's and Griewank's strategies need in each."""
    styles = looks(growth.policies)
    with page(path, len(growth.rules)) as (figure, axes):
        for axis, rule in zip(axes, growth.rules, strict=True):
            _panel(axis, growth, rule, styles)
        label(axes, "layers n", "ops computed again")
        legend(figure, _entries(growth.policies, styles))


def mathematical(text: str) -> str:
    """``text`` with its functions of n as formulas."""
    return text.replace("sqrt n", r"$\sqrt{n}$").replace("log2 n", r"$\log_2\,n$")


def _panel(axis: Axes, growth: Growth, rule: str, styles: dict[str, Look]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    for name in growth.policies:
        points = [growth.point(n, rule, name) for n in growth.sizes]
        good = [(point.n, point.run.remat_ns) for point in points if point.run.status == "ok" and point.run.remat_ns]
        look = styles[name]
        axis.plot(
            [n for n, _ in good],
            [extra for _, extra in good],
            color=look.color,
            marker=look.marker,
            markeredgecolor="white",
            markeredgewidth=0.4,
            linestyle=look.style,
            linewidth=look.width,
            markersize=look.size,
        )
    for bound, style in BOUNDS.values():
        axis.plot(growth.sizes, [bound(n) for n in growth.sizes], color="#222222", linestyle=style, linewidth=1.2)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = sorted(growth.sizes)[:: max(1, (len(growth.sizes) + 3) // 4)]
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
    axis.set_title(f"budget {mathematical(RULE_NAMES[rule])}", fontweight="normal")


def _entries(policies: Sequence[str], styles: dict[str, Look]) -> list[tuple[Artist, str]]:
    from matplotlib.lines import Line2D

    entries: list[tuple[Artist, str]] = [
        (Line2D([], [], color=look.color, marker=look.marker, linestyle=look.style, linewidth=look.width), name)
        for name, look in ((name, styles[name]) for name in policies)
    ]
    for name, (_, style) in BOUNDS.items():
        entries.append((Line2D([], [], color="#222222", linestyle=style, linewidth=1.2), mathematical(name)))
    return entries


def residency_figure(runs: Sequence[tuple[str, Simulation]], path: str | os.PathLike[str]) -> None:
    """Draw which tensor is resident when, a panel per titled run: time to the right, one row per tensor upward."""
    with page(path, len(runs), panel=(2.6, 2.4)) as (figure, axes):
        for axis, (title, simulation) in zip(axes, runs, strict=True):
            _residency(axis, simulation)
            axis.set_title(mathematical(title), fontweight="normal")
        label(axes, "ops that ran", "tensor, in order of first use")
        from matplotlib.patches import Patch

        legend(figure, [(Patch(color=color, lw=0), name) for name, color in STATES.items()])


def _residency(axis: Axes, simulation: Simulation) -> None:
    from matplotlib.colors import ListedColormap

    colors = ListedColormap(["#ffffff", STATES["resident"], STATES["made"], STATES["made again"]])
    table = residency(simulation)
    axis.imshow(table, cmap=colors, vmin=0, vmax=3, aspect="auto", interpolation="nearest", origin="lower")
    axis.grid(visible=False)
