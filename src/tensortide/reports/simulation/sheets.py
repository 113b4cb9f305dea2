"""Telemetry of a run as CSV files: tensors, storages, ops, and memory at every event."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from tensortide.replays.remat.telemetry import Moments, OpRecord, StorageRecord, Telemetry, TensorRecord
from tensortide.timelines.events import Kind

TIMELINE = (
    "event",
    "kind",
    "index",
    "for_op",
    "clock_ns",
    "pinned_bytes",
    "locked_bytes",
    "evictable_bytes",
    "total_bytes",
    "pressure_bytes",
)


def sheets(told: Telemetry) -> dict[str, str]:
    """The files by name. Events are numbered from 0; what there is none of is empty."""
    return {
        "tensors.csv": _records(TensorRecord, told.tensors),
        "storages.csv": _records(StorageRecord, told.storages),
        "ops.csv": _records(OpRecord, told.ops),
        "timeline.csv": _csv(TIMELINE, _events(told.moments)),
    }


def _records(kind: type[msgspec.Struct], records: Iterable[msgspec.Struct]) -> str:
    names = kind.__struct_fields__
    return _csv(names, ([_cell(getattr(record, name)) for name in names] for record in records))


def _cell(value: object) -> object:
    """Truth as 1 and 0, nothing as nothing."""
    return int(value) if isinstance(value, bool) else "" if value is None else value


def _events(moments: Moments) -> Iterable[Sequence[object]]:
    columns = (
        moments.indexes,
        moments.goal,
        moments.clock_ns,
        moments.pinned_bytes,
        moments.locked_bytes,
        moments.evictable_bytes,
        moments.total_bytes,
        moments.pressure_bytes,
    )
    rows = zip(moments.kinds.tolist(), *(column.tolist() for column in columns), strict=True)
    return ((event, Kind(kind).name.lower(), *rest) for event, (kind, *rest) in enumerate(rows))


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return out.getvalue()
