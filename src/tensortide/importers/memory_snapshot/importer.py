"""Memory snapshots of PyTorch as a row of the table of importers."""

from __future__ import annotations

import re
from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

_START = re.compile(rb"\x80[\x02-\x05](?:\x95.{8})?\}.{0,40}?(?:segments|device_traces)", re.DOTALL)


def _sniff(path: Path) -> bool:
    return _START.match(head(path, 1 << 10)) is not None


def _read(path: Path, options: Options) -> Imported:
    from tensortide.importers.memory_snapshot.graph import graph_of
    from tensortide.importers.memory_snapshot.records import read_snapshot

    snapshot = read_snapshot(path)
    graph, durations = graph_of(snapshot)
    return Imported(graph, durations if options.durations else None, recording=snapshot)


IMPORTER = Importer(
    "memory_snapshot", "a memory snapshot of PyTorch (.pickle of torch.cuda.memory._dump_snapshot, also .gz)",
    _sniff, _read,
)  # fmt: skip
