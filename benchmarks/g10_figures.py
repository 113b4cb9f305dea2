"""Figures of ``g10_policies.py``, one file each: bars by trace and policy, and lines over sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensortide.replays.g10 import POLICIES
from tensortide.studies.planning.policies import OURS

COLORS = ("#7f7f7f", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#000000")
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "")
NAMES = (*POLICIES, OURS)
TITLES = {**{name: row.title for name, row in POLICIES.items()}, OURS: "ours"}
Rows = list[dict[str, Any]]


def draw(tables: dict[str, Rows], folder: Path) -> None:
    """Draw the recorded ``tables`` to PNG files in ``folder``."""
    memory = tables.get("By device memory", [])
    at_40 = [row for row in memory if row["gib"] == 40]
    if at_40:
        _grouped(at_40, "ratio", "ideal time / time", folder / "g10_policies_ideal.png")
        _stacked(at_40, folder / "g10_policies_breakdown.png")
        _traffic(at_40, folder / "g10_policies_traffic.png")
        _batches(at_40, folder / "g10_policies_batches.png")
        _lines(_by(memory, "gib", "BERT_Base-256"), "device memory, GiB", folder / "g10_policies_memory.png")
    sweeps = tables.get("Sweeps", [])
    for what, label in (("host", "host memory, GB"), ("drive", "rate of the drive, GB/s")):
        rows = [{**row, "at": row["value"]} for row in sweeps if row["what"] == what]
        if rows:
            _lines(rows, label, folder / f"g10_policies_{what}.png")
    errors = [{**row, "at": row["percent"]} for row in tables.get("Error of durations", [])]
    if errors:
        _lines(errors, "error of durations, %", folder / "g10_policies_error.png", bottom=0.9)


def _axes(width: float = 9.0) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(width, 3.6), layout="constrained")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#dddddd", lw=0.6)
    axis.set_axisbelow(True)
    return figure, axis


def _finish(figure: Any, axis: Any, path: Path) -> None:
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    figure.savefig(path, dpi=130)


def _by(rows: Rows, key: str, trace: str) -> Rows:
    return [{**row, "at": row[key]} for row in rows if row["trace"] == trace]


def _find(rows: Rows, **wanted: object) -> dict[str, Any]:
    return next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), {})


def _traces(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["trace"] for row in rows))


def _grouped(rows: Rows, key: str, label: str, path: Path) -> None:
    figure, axis = _axes()
    traces = _traces(rows)
    for number, policy in enumerate(NAMES):
        values = [_find(rows, trace=trace, policy=policy).get(key) or 0 for trace in traces]
        at = [x + (number - 3.5) * 0.1 for x in range(len(traces))]
        axis.bar(at, values, 0.1, color=COLORS[number], hatch=HATCHES[number], ec="white", lw=0.3, label=TITLES[policy])
    axis.set_xticks(range(len(traces)), traces)
    axis.set_ylabel(label)
    _finish(figure, axis, path)


def _stacked(rows: Rows, path: Path) -> None:
    parts = (
        ("stall", "stall_ns", "#d55e00"),
        ("overlap", "overlap_ns", "#0072b2"),
        ("compute only", "compute_ns", "#999999"),
    )
    _stack(
        rows,
        [(label, color, lambda row, key=key: _share(row, key)) for label, key, color in parts],
        "part of the step",
        path,
    )


def _share(row: dict[str, Any], key: str) -> float:
    return (row.get(key) or 0) / row["time_ns"] if row.get("time_ns") else 0.0


def _traffic(rows: Rows, path: Path) -> None:
    ways = (
        ("host to device", "host_in", "#0072b2"),
        ("device to host", "host_out", "#56b4e9"),
        ("drive to device", "ssd_in", "#d55e00"),
        ("device to drive", "ssd_out", "#e69f00"),
    )
    parts = [(label, color, lambda row, key=key: _gib(row, key)) for label, key, color in ways]
    _stack(rows, parts, "GiB in a step", path)


def _gib(row: dict[str, Any], key: str) -> float:
    return row["traffic"].get(key, 0) / 2**30 if row.get("traffic") else 0.0


def _stack(rows: Rows, parts: Sequence[tuple[str, str, Any]], label: str, path: Path) -> None:
    figure, axis = _axes(11.0)
    places, names = [], []
    for group, trace in enumerate(_traces(rows)):
        for number, policy in enumerate(NAMES):
            row, at, bottom = _find(rows, trace=trace, policy=policy), group * 9.5 + number, 0.0
            for name, color, value in parts:
                height = value(row) if row else 0.0
                axis.bar(at, height, 0.8, bottom=bottom, color=color, label=name if not group and not number else None)
                bottom += height
            places.append(at)
            names.append(TITLES[policy])
        axis.text(group * 9.5 + 3.5, 1.02, trace, ha="center", transform=axis.get_xaxis_transform())
    axis.set_xticks(places, names, rotation=90, fontsize=7)
    axis.set_ylabel(label)
    _finish(figure, axis, path)


def _batches(rows: Rows, path: Path) -> None:
    """Samples per second over the batch sizes that there are traces of."""
    figure, axis = _axes()
    models: dict[str, list[int]] = {}
    for trace in _traces(rows):
        model, _, batch = trace.rpartition("-")
        models.setdefault(model, []).append(int(batch))
    for number, policy in enumerate(NAMES):
        for model, sizes in models.items():
            found = [_find(rows, trace=f"{model}-{batch}", policy=policy).get("s") for batch in sizes]
            rates = [batch / s if s else None for batch, s in zip(sizes, found, strict=True)]
            label = TITLES[policy] if model == next(iter(models)) else None
            axis.plot(sizes, rates, color=COLORS[number], marker="osv^D*Px"[number], label=label, alpha=0.85)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel(f"batch size ({', '.join(models)})")
    axis.set_ylabel("samples per second")
    _finish(figure, axis, path)


def _lines(rows: Rows, label: str, path: Path, bottom: float = 0.0) -> None:
    figure, axis = _axes()
    for number, policy in enumerate(NAMES):
        mine = sorted((row for row in rows if row["policy"] == policy), key=_at)
        if mine:
            x, y = [row["at"] for row in mine], [row["ratio"] or 0 for row in mine]
            axis.plot(x, y, color=COLORS[number], marker="osv^D*Px"[number], label=TITLES[policy], alpha=0.85)
    axis.set_ylim(bottom, 1.05)
    axis.set_xlabel(label)
    axis.set_ylabel("ideal time / time")
    _finish(figure, axis, path)


def _at(row: dict[str, Any]) -> float:
    return float(row["at"])
