"""Profilers' traces as a row of the table of importers: durations, of the step that was traced.

A trace has no storages and no lifetimes, so the step is given beside it (any other target), and its ops are joined to
the calls in the trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tensortide.errors import TimesError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

__all__ = ["IMPORTER", "ProfilerOptions"]


@dataclass(frozen=True)
class ProfilerOptions(Options):
    """``step``: the step that was traced, as a Graph or as a target, and ``symbols``: its hyperparameters."""

    step: Annotated[Any, "The step that was traced: any other target."] = None
    symbols: Mapping[str, int] = field(default_factory=dict)


def _sniff(path: Path) -> bool:
    start = head(path).lstrip()
    return start.startswith(b"{") and (b'"traceEvents"' in start or b'"deviceProperties"' in start)


def _read(path: Path, options: ProfilerOptions) -> Imported:
    from tensortide.graph import Graph, unrolled
    from tensortide.importers.door import open
    from tensortide.recorder.resolver import resolver
    from tensortide.timing.kineto import read_trace
    from tensortide.timing.traced import from_trace

    given = options.step
    if given is None:
        raise TimesError(f"{path} is a profiler's trace, with times and no tensors. Which step is it of? --step TARGET")
    graph = unrolled(given if isinstance(given, Graph) else open(given, hyperparameters=options.symbols).graph)
    return Imported(graph, from_trace(graph, read_trace(path), resolver=resolver))


IMPORTER = Importer("profiler", "a profiler's trace (.json, also .gz)", _sniff, _read, ProfilerOptions)
