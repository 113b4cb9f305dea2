"""Section ``metrics``: the computed metrics of one subject, with units, definitions, and what is not available."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from tensortide.metrics.metric import Missing
from tensortide.metrics.profiler import Profiler
from tensortide.metrics.status import Entry, Status
from tensortide.reports.blocks import AnyBlock, Column, Document, Fact, Facts, Note, Section, Table

__all__ = ["FIRST", "document", "of_status", "ordered"]

FIRST = (
    "eval_metric",
    "model_size",
    "macs",
    "flops",
    "total_params",
    "trainable_params",
    "activation_peak",
    "step_peak",
    "saved_activations",
    "execution_time",
    "inference_time",
    "step_time",
)
"""Metrics in the order of rows; ``eval_metric`` stands for all that an evaluation returns. Others follow."""
_PARTS = ("step_peak_", "execution_time_", "step_time_")
"""Beginnings of the names of metrics that detail another one."""


def document(profiler: Profiler | Status) -> Document:
    """Show every metric that was computed."""
    status = profiler if isinstance(profiler, Status) else profiler.status
    extent = "one step" if status.kind == "step" else "an inference forward"
    return of_status(status).document(status.name, f"metrics of {extent}")


def of_status(
    status: Status,
    *,
    first: Sequence[str] = FIRST,
    rest: bool = True,
    exclude: Collection[str] = (),
    long: bool = False,
) -> Section:
    """Make the section: metrics in the order ``first``, then the ``rest``, without those to ``exclude``.

    ``long`` adds the definition of each.
    """
    names = [name for name in ordered(status.entries, first, rest=rest) if name not in exclude]
    entries = {name: status.entries[name] for name in names}
    rows = tuple(_fact(name, entry, long) for name, entry in entries.items() if _is_shown(name, entry))
    return Section("metrics", "Metrics", blocks=(Facts(rows=rows), *_reasons(entries), _values(entries)))


def ordered(names: Iterable[str], first: Sequence[str] = FIRST, *, rest: bool = True) -> list[str]:
    """Put names in the order ``first``; the ``rest`` follows each that it details, or comes last."""
    names = [*names]

    def rank(name: str) -> int:
        return next((place for place, head in enumerate(first) if _belongs(name, head)), len(first))

    return [name for name in sorted(names, key=rank) if rest or rank(name) < len(first)]


def _belongs(name: str, head: str) -> bool:
    return name == head or name.startswith((f"{head}[", f"{head}_"))


def _is_shown(name: str, entry: Entry) -> bool:
    """Return whether a metric is a row: zeros that detail another one are not."""
    return not isinstance(entry.value, Missing) and bool(entry.value or not name.startswith(_PARTS))


def _fact(name: str, entry: Entry, long: bool) -> Fact:
    metric, value = entry.metric, entry.value
    batch = entry.options.get("batch_size")
    remarks = [metric.description] if long else []
    if batch and isinstance(value, int | float) and metric.unit in ("flops", "macs"):
        remarks.append(f"batch of {batch}")
    level = int(name.startswith(_PARTS))
    return Fact(name, metric.title, _number(entry), metric.unit, remark="; ".join(remarks), level=level)


def _values(entries: dict[str, Entry]) -> Table:
    """Every metric in its base unit, for data."""
    columns = (
        Column("metric", "", "text", tuple(entries)),
        Column("value", "", "number", tuple(_number(entry) for entry in entries.values())),
        Column("unit", "", "text", tuple(entry.metric.unit for entry in entries.values())),
        Column("reason", "", "text", tuple(_reason(entry) for entry in entries.values())),
    )
    return Table(key="values", columns=columns, top=0, only="text")


def _number(entry: Entry) -> int | float | str | None:
    return None if isinstance(entry.value, Missing) else entry.value


def _reason(entry: Entry) -> str:
    return entry.value.reason if isinstance(entry.value, Missing) else ""


def _reasons(entries: dict[str, Entry]) -> Iterator[AnyBlock]:
    """Say what is not available, and why: those with one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name, entry in entries.items():
        if isinstance(entry.value, Missing):
            by_reason.setdefault(entry.value.reason, []).append(name)
    for reason, names in by_reason.items():
        yield Note(text=f"not available: {', '.join(names)} ({reason})", kind="coverage")
