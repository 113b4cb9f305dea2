"""Plans made ahead against online policies: overhead over peak, as played. Needs matplotlib."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tensortide.reports.remat.canvas import Look, legend, looks, page
from tensortide.reports.remat.pareto import BANDS
from tensortide.studies.remat.verdicts import Comparison, Entry, Point, Strategy

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

__all__ = ["comparison_figure"]

STATIC = {
    "no recomputation": Look("#56B4E9", "o"),
    "checkpoint all": Look("#E69F00", "s"),
    "checkpoint last": Look("#E69F00", "P"),
    "Chen sqrt n": Look("#009E73", "^"),
    "Chen greedy": Look("#009E73", "v", ":"),
    "Revolve": Look("#CC79A7", "X", "--"),
    "Checkmate": Look("#000000", "D", "-"),
    "LP rounding": Look("#8c8c8c", "p", "--"),
}
"""Strategies that are told apart; those at articulation points look the same but hollow."""
HOLLOW = " (art.)"


def comparison_figure(found: Comparison, path: str | os.PathLike[str]) -> None:
    """Draw each schedule of ``found`` within its limit as overhead over peak, both as played.

    Of each strategy only what no other one of it beats: sweeps as steps; what is known at the budgets alone is joined
    by lines. Filled diamonds: optima that are proved; where they are not, ticks are at what none takes less than. At
    the upper edge: strategies of which every schedule is over the limit, with their least overhead.
    """
    drawn = [strategy for strategy in found.strategies if strategy.points]
    online = looks(strategy.name for strategy in drawn if strategy.kind == "online")
    styles = {s.name: online[s.name] if s.name in online else STATIC[s.name.removesuffix(HOLLOW)] for s in drawn}
    sizes = _sizes(drawn)
    with page(path, 1, panel=(5.0, 3.0)) as (figure, (axis,)):
        whole = found.step.baseline_bytes or 1
        top = _top(found, drawn)
        for place, strategy in enumerate(drawn):
            look, above = styles[strategy.name], 3 + place / len(drawn)
            if _within(strategy, found):
                _draw(axis, strategy, look, sizes[strategy.name], found, above)
            else:
                _beyond(axis, strategy, look, whole, top)
        constant = found.step.constant_bytes / whole
        axis.axvspan(0, constant, color=BANDS["constants"], lw=0)
        axis.axvspan(constant, constant + found.step.bottleneck_bytes / whole, color=BANDS["one op"], lw=0)
        axis.axhline(1, color="#444444", linewidth=0.9, linestyle="--", zorder=1)
        axis.set(xlim=(_left(found, drawn), _right(found)), ylim=(1 - (top - 1) / 25, top))
        axis.set(xlabel="peak / peak without a budget", ylabel="time / time without recomputation")
        axis.set_title(found.step.name)
        axis.set_axisbelow(True)
        legend(figure, _entries(drawn, styles))


def _sizes(drawn: Sequence[Strategy]) -> dict[str, tuple[float, float]]:
    """Width of the line and size of the markers: what is drawn later is smaller, so that equals show one in another."""
    found = {strategy.name: (1.2, 5.0) for strategy in drawn}
    late = [strategy.name for strategy in drawn if strategy.name == "Checkmate" or strategy.kind == "online"]
    for place, name in enumerate(late):
        part = place / max(1, len(late) - 1)
        found[name] = (2.6 - 1.4 * part, 7.5 - 3.5 * part)
    return found


def _front(points: Sequence[Point]) -> list[Point]:
    """Those that no other one beats, by peak."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (p.peak_bytes, p.overhead)):
        if not front or point.overhead < front[-1].overhead:
            front.append(point)
    return front


def _within(strategy: Strategy, found: Comparison) -> list[Point]:
    return [point for point in strategy.points if point.overhead <= found.overhead_limit]


def _top(found: Comparison, drawn: Sequence[Strategy]) -> float:
    """Where the axis ends: just above what there is to see."""
    most = max((point.overhead for s in drawn for point in _front(_within(s, found))), default=found.overhead_limit)
    return 1 + max(0.05, 1.08 * (most - 1))


def _left(found: Comparison, drawn: Sequence[Strategy]) -> float:
    """Where the axis begins: at 0, or, if all there is to see lies in the other half, some way before that."""
    whole = found.step.baseline_bytes or 1
    least = min((point.peak_bytes / whole for strategy in drawn for point in strategy.points), default=0.0)
    return least - (_right(found) - least) / 3 if least > 0.5 else 0.0


def _right(found: Comparison) -> float:
    return 1.06 * max(1.0, max((ratio for _, ratio in found.budgets), default=1.0))


def _draw(
    axis: Axes, strategy: Strategy, look: Look, sizes: tuple[float, float], found: Comparison, above: float
) -> None:
    whole = found.step.baseline_bytes or 1
    front = _front(_within(strategy, found))
    x = [point.peak_bytes / whole for point in front]
    y = [point.overhead for point in front]
    if len(strategy.points) > 1 and front:
        where = "steps-post" if strategy.kind == "static" else "default"
        end = max(_right(found), x[-1])
        axis.plot(
            [*x, end],
            [*y, y[-1]],
            drawstyle=where,
            color=look.color,
            linestyle=look.style,
            linewidth=sizes[0],
            zorder=above,
        )
    proved = {entry.point for entry in strategy.entries if entry.proved}
    for point, a, b in zip(front, x, y, strict=True):
        unproved = strategy.name == "Checkmate" and point not in proved
        _mark(axis, a, b, look, sizes[1], unproved or strategy.name.endswith(HOLLOW), above)
    for entry, (nbytes, _) in zip(strategy.entries, found.budgets, strict=True):
        if (bound := _open_bound(entry)) is not None:
            axis.plot([nbytes / whole], [bound], "_", color=look.color, markersize=9, zorder=above)


def _open_bound(entry: Entry) -> float | None:
    """What nothing takes less than, if there may be something faster than what was found."""
    return entry.bound if entry.verdict == "ok" and not entry.proved else None


def _mark(axis: Axes, x: float, y: float, look: Look, size: float, hollow: bool, above: float) -> None:
    inside, edge = ("white", look.color) if hollow else (look.color, "white")
    axis.plot(
        [x],
        [y],
        look.marker,
        color=inside,
        markeredgecolor=edge,
        markeredgewidth=1.0 if hollow else 0.5,
        markersize=size,
        zorder=above,
        clip_on=False,
    )


def _beyond(axis: Axes, strategy: Strategy, look: Look, whole: int, top: float) -> None:
    """A strategy that is over the limit: where its peak is, at the upper edge."""
    point = min(strategy.points, key=lambda p: p.overhead)
    x = point.peak_bytes / whole
    _mark(axis, x, top, look, 5, strategy.name.endswith(HOLLOW), 6)
    axis.annotate(
        f"{point.overhead:.3g} \u2191",
        (x, top),
        xytext=(5, -3),
        textcoords="offset points",
        fontsize=7.5,
        color="#444444",
        va="top",
    )


def _entries(drawn: Sequence[Strategy], styles: Mapping[str, Look]) -> list[tuple[Artist, str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[tuple[Artist, str]] = []
    sizes = _sizes(drawn)
    for strategy in drawn:
        look, hollow = styles[strategy.name], strategy.name.endswith(HOLLOW)
        line = Line2D(
            [],
            [],
            color=look.color,
            linestyle=look.style if len(strategy.points) > 1 else "none",
            marker=look.marker,
            markersize=sizes[strategy.name][1],
            markerfacecolor="white" if hollow else look.color,
            linewidth=sizes[strategy.name][0],
        )
        entries.append((line, strategy.name))
    if any(_open_bound(entry) is not None for strategy in drawn for entry in strategy.entries):
        tick = Line2D([], [], color="black", linestyle="none", marker="_", markersize=8)
        open_ = Line2D([], [], color="black", linestyle="none", marker="D", markersize=5, markerfacecolor="white")
        entries += [(open_, "Checkmate, not proved"), (tick, "Checkmate, at least")]
    return [
        *entries,
        (Patch(color=BANDS["constants"], lw=0), "constants"),
        (Patch(color=BANDS["one op"], lw=0), "most for one op"),
    ]
