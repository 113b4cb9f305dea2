"""Pictures of liveness on one axis each. Needs matplotlib (the extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tensortide.graph.roles import looks
from tensortide.reports.liveness.words import name_text
from tensortide.reports.render.figure import COLORS
from tensortide.timing import LINKS
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from tensortide.reports.liveness.records import LifeBar, LivenessView, Stored
    from tensortide.reports.liveness.study import LivenessStudy

USED, IDLE = "#1b1f24", "#d7dce2"
ROWS, COLUMNS = 20, 300
"""Most storages in a picture, and stretches of time on an axis."""
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns"))
_POWERS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def scale(most: int, units: Sequence[tuple[int, str]]) -> tuple[int, str]:
    """The largest of ``units`` of which ``most`` holds one."""
    return next((unit for unit in units if most >= unit[0]), units[-1])


def by_role(axis: Axes, study: LivenessStudy) -> None:
    """Memory over time, stacked by role, with what is in use."""
    view = study.view
    times, edges, size = _axis(axis, view)
    levels = [0.0] * len(view.curves.op)
    for role, series in view.curves.live_by_role.items():
        above = [level + nbytes / size for level, nbytes in zip(levels, series, strict=True)]
        axis.stairs(
            above, edges, baseline=levels, fill=True, color=looks()[role].light, lw=0, label=role.replace("_", " ")
        )
        levels = above
    active = [nbytes / size for nbytes in view.curves.active_bytes]
    axis.stairs(active, edges, color=USED, linewidth=0.8, label="in use")
    axis.set(title="Memory over the step", xlim=(0, edges[-1] or 1), ylim=(0, None), xlabel=times)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)


def live_and_active(axis: Axes, study: LivenessStudy) -> None:
    """All memory and what is in use over time, logarithmic: the most in each of a few hundred stretches of time."""
    idle = study.idle
    unit, name = scale(idle.step_ns, _TIMES)
    edges = [idle.step_ns * i / COLUMNS / unit for i in range(COLUMNS + 1)]
    for label_, series, color in (("alive", idle.live, COLORS[0]), ("in use", idle.active, COLORS[1])):
        most = [nbytes or float("nan") for nbytes in _most_in(series.tolist(), idle.clock_ns)]
        axis.stairs(most, edges, baseline=None, color=color, linewidth=1.1, label=label_)
    axis.set_yscale("log", base=2)
    axis.yaxis.set_major_formatter(lambda nbytes, _: _short_bytes(nbytes))
    axis.set(title="Alive and in use", xlim=(0, edges[-1] or 1), xlabel=name, ylabel="bytes")
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)


def _most_in(series: Sequence[int], clock_ns: Sequence[int]) -> list[int]:
    """The most of ``series`` during each of ``COLUMNS`` stretches of equal time."""
    most = [0] * COLUMNS
    step = max(1, clock_ns[-1])
    for value, start, end in zip(series, clock_ns, clock_ns[1:], strict=False):
        for column in range(start * COLUMNS // step, min(COLUMNS - 1, max(start, end - 1) * COLUMNS // step) + 1):
            most[column] = max(most[column], value)
    return most


def _axis(axis: Axes, view: LivenessView) -> tuple[str, list[float], int]:
    """The unit of time, the edges of the stretches in it, and the unit of bytes; labels the axis of bytes."""
    unit, name = scale(view.step_ns, _TIMES)
    size, label = scale(view.peak.live_bytes, _POWERS)
    axis.set_ylabel(label)
    edges = [ns / unit for ns in (*view.curves.start_ns, view.step_ns)]
    return name, edges if edges[-1] > edges[0] else [*map(float, range(len(edges)))], size


def distribution(axis: Axes, study: LivenessStudy) -> None:
    """The share of inactive periods that are shorter than a time: of their number, bytes and memory-time."""
    spans = sorted((span for span in study.idle.spans() if span.ns), key=lambda span: span.ns)
    if spans:
        x = [span.ns / 1e9 for span in spans]
        weights: tuple[tuple[str, list[int]], ...] = (
            ("periods", [1 for _ in spans]),
            ("their bytes", [span.nbytes for span in spans]),
            ("their memory-time", [span.nbytes * span.ns for span in spans]),
        )
        keep = sorted({*range(0, len(x), max(1, len(x) // 1000)), len(x) - 1})
        for (name, values), color in zip(weights, COLORS, strict=False):
            sums = list(accumulate(values))
            shares = [100 * part / max(1, sums[-1]) for part in sums]
            axis.step([x[i] for i in keep], [shares[i] for i in keep], where="post", color=color, label=name)
        axis.set_xscale("log")
        axis.legend(loc="upper left", handlelength=1.2)
    _seconds(axis.xaxis)
    axis.set(title="How long memory lies idle", xlabel="length of inactive period", ylabel="% at most as long")
    axis.set_ylim(0, 100)


def sizes(axis: Axes, study: LivenessStudy) -> None:
    """Length of every inactive period against the bytes that lie idle, with what links can hide (to the right)."""
    idle = study.idle
    groups: dict[str, list[tuple[int, int]]] = {}
    roles = {life.index: idle.role(life).value for life in idle.lives}
    for span in idle.spans():
        if span.ns and span.nbytes:
            groups.setdefault(roles[span.index], []).append((span.ns, span.nbytes))
    for role in (role for role in looks() if role in groups):
        x, y = zip(*groups[role], strict=True)
        axis.scatter(
            [ns / 1e9 for ns in x],
            y,
            s=9,
            color=looks()[role].light,
            alpha=0.55,
            lw=0,
            label=role.replace("_", " "),
            rasterized=len(x) > 2000,
        )
    if groups:
        axis.set_xscale("log")
        axis.set_yscale("log", base=2)
        _frontiers(axis, study, max(n for points in groups.values() for _, n in points))
        told = axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)
        for handle in told.legend_handles:
            if handle is not None:
                handle.set_alpha(1)
    _seconds(axis.xaxis)
    axis.yaxis.set_major_formatter(lambda nbytes, _: _short_bytes(nbytes))
    axis.set(title="Length and size of inactive periods", xlabel="length of inactive period", ylabel="bytes")


def _frontiers(axis: Axes, study: LivenessStudy, most: int) -> None:
    """From which length on a link hides a move, by bytes."""
    low, high = axis.get_ylim()
    grid = sorted({min(most * 2, 2**i) for i in range(most.bit_length() + 2)} | {1})
    for link, style in ((study.link, "-"), (LINKS["nvme"], "--")):
        if style == "-" or link != study.link:
            x = [link.hidden_above_ns(nbytes) / 1e9 for nbytes in grid]
            axis.plot(x, grid, color="#444444", linestyle=style, linewidth=1.1, label=f"hidden by {link.name}")
    axis.set_ylim(low, high)


def _seconds(axis: Any) -> None:
    from matplotlib.ticker import EngFormatter

    axis.set_major_formatter(EngFormatter(unit="s", sep=" ", places=None))


def _short_bytes(nbytes: float) -> str:
    size, unit = scale(int(nbytes), _POWERS)
    return f"{nbytes / size:g} {unit}"


def lives(axis: Axes, study: LivenessStudy) -> None:
    """When the storages with most bytes times idle time are used (dark) and idle (light)."""
    view = study.view
    shown = _most(view.lives)
    unit, name = scale(view.step_ns, _TIMES)
    for row, life in enumerate(shown):
        color = looks()[life.stored.role].light
        axis.barh(
            row, (life.death_ns - life.birth_ns) / unit, 0.62, life.birth_ns / unit, color=color, alpha=0.38, lw=0
        )
        least = view.step_ns / 400  # an op is seen
        used = [(start / unit, max(end - start, least) / unit) for start, end in life.used_ns]
        axis.broken_barh(used, (row - 0.31, 0.62), color=color, lw=0)
    _named(axis, [life.stored for life in shown])
    axis.set(title="Lives: in use dark, idle light", xlabel=name, xlim=(0, max(view.step_ns, 1) / unit))


def largest(axis: Axes, study: LivenessStudy) -> None:
    """Storages by bytes times idle time, which is bytes on average over the step."""
    view = study.view
    shown = sorted(_most(view.lives), key=lambda life: -life.stored.nbytes * life.idle_ns)
    values = [life.stored.nbytes * life.idle_ns / max(1, view.step_ns) for life in shown]
    size, unit = scale(int(max(values, default=0)), _POWERS)
    for row, (life, value) in enumerate(zip(shown, values, strict=True)):
        axis.barh(row, value / size, 0.66, color=looks()[life.stored.role].light, lw=0)
        axis.annotate(
            format_bytes(life.stored.nbytes),
            (value / size, row),
            xytext=(3, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
            color="#555555",
        )
    _named(axis, [life.stored for life in shown])
    axis.margins(x=0.14)
    axis.set(title="Most bytes times idle time", xlabel=f"{unit} idle on average over the step")


def _most(bars: Sequence[LifeBar]) -> list[LifeBar]:
    """The first rows by bytes times idle time, in the order of their births."""
    most = sorted(bars, key=lambda life: -life.stored.nbytes * life.idle_ns)[:ROWS]
    return sorted(most, key=lambda life: (life.birth_ns, life.stored.index))


def _named(axis: Axes, rows: Sequence[Stored]) -> None:
    """Rows from above, by name."""
    axis.set_yticks(range(len(rows)), [label(stored) for stored in rows], fontsize=6.5)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.grid(axis="y", visible=False)
    axis.set_axisbelow(True)
    axis.tick_params(axis="y", length=0)


def label(stored: Stored, most: int = 44) -> str:
    """Module and name, the end of what is too long."""
    inside = stored.module if stored.module not in ("", "(outside)", "(root)") else ""
    name = name_text(stored) if stored.name else f"{name_text(stored)} {stored.index}"
    text = f"{inside}: {name}" if inside else name
    return text if len(text) <= most else "..." + text[3 - most :]
