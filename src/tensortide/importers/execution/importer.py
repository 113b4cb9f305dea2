"""Execution traces of PyTorch as a row of the table of importers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

_START = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"schema"\s*:\s*"[^"]*"\s*,')


@dataclass(frozen=True)
class ExecutionOptions(Options):
    """The profiler's trace of the same run, which has the times, and which step of the run to read."""

    kineto: Annotated[Path | None, "The profiler's trace of the same run, for the times."] = None
    profiler_step: Annotated[int | None, "The ProfilerStep# to read (default: the last one)."] = None


def _sniff(path: Path) -> bool:
    start = head(path)
    return _START.match(start) is not None and b'"nodes"' in start


def _read(path: Path, options: ExecutionOptions) -> Imported:
    from tensortide.importers.execution.graph import durations_of, graph_of
    from tensortide.importers.execution.nodes import read_nodes
    from tensortide.timing.kineto import read_trace

    traced = graph_of(read_nodes(path), str(path), options.profiler_step)
    if options.kineto is None:
        return Imported(traced.graph)
    return Imported(traced.graph, durations_of(traced, read_trace(options.kineto)))


IMPORTER = Importer(
    "execution",
    "a PyTorch execution trace (.json of ExecutionTraceObserver, also .gz)",
    _sniff,
    _read,
    ExecutionOptions,
)
