"""Times of ops as a row of the table of importers: durations, of a step that stands in another file.

A profiler's trace and a list of times have no storages and no lifetimes, so the step is given beside them (any other
target), and its ops are joined to the calls in the trace, or to the names in the list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from tensortide.errors import TimesError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

_LIST = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:op,[ \t]*ns|[^,\s{][^,\n{]*,[ \t]*[0-9.]+(?:[eE][+-]?[0-9]+)?"
    rb"|\{(?=[^{}\n]*\"op\"[ \t]*:)(?=[^{}\n]*\"ns\"[ \t]*:)[^{}\n]*\})[ \t]*\r?(?:\n|\Z)"
)
"""The first line of a list: a header, or an op and its nanoseconds."""


@dataclass(frozen=True)
class ProfilerOptions(Options):
    """``step``: the step that was timed, as a Graph or as a target, and ``symbols``: its hyperparameters."""

    step: Annotated[Any, "The step that was traced: any other target."] = None
    symbols: Mapping[str, int] = field(default_factory=dict)


def _is_list(path: Path) -> bool:
    return _LIST.match(head(path)) is not None


def _sniff(path: Path) -> bool:
    start = head(path).lstrip()
    return (start.startswith(b"{") and (b'"traceEvents"' in start or b'"deviceProperties"' in start)) or _is_list(path)


def _read(path: Path, options: ProfilerOptions) -> Imported:
    from tensortide.graph import Graph, unrolled
    from tensortide.importers.door import open
    from tensortide.recorder import resolver
    from tensortide.timing.kineto import read_trace
    from tensortide.timing.listed import from_list
    from tensortide.timing.traced import from_trace

    given, what = options.step, "a list of times" if _is_list(path) else "a profiler's trace"
    if given is None:
        raise TimesError(f"{path} is {what}, with times and no tensors. Which step is it of? --step TARGET")
    graph = unrolled(given if isinstance(given, Graph) else open(given, hyperparameters=options.symbols).graph)
    if _is_list(path):
        return Imported(graph, from_list(graph, path, resolver=resolver))
    return Imported(graph, from_trace(graph, read_trace(path), resolver=resolver))


IMPORTER = Importer(
    "profiler",
    "a profiler's trace (.json) or a list of times (.csv, .jsonl: op, ns), also .gz",
    _sniff,
    _read,
    ProfilerOptions,
)
