"""Profiler's traces and lists of times as a row of the table of importers.

A trace with shapes is a step by itself. A list of times, or a trace without shapes, has no tensors: the step is given
beside it (any other target), and its ops are joined to the calls in the trace, or to the names in the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tensortide.errors import TimesError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, SizedOptions
from tensortide.importers.textfile import head

_LIST = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:op,[ \t]*ns|[^,\s{][^,\n{]*,[ \t]*[0-9.]+(?:[eE][+-]?[0-9]+)?"
    rb"|\{(?=[^{}\n]*\"op\"[ \t]*:)(?=[^{}\n]*\"ns\"[ \t]*:)[^{}\n]*\})[ \t]*\r?(?:\n|\Z)"
)
"""The first line of a list: a header, or an op and its nanoseconds."""


@dataclass(frozen=True)
class ProfilerOptions(SizedOptions):
    """``step``: the step that was timed, as a Graph or as a target, and ``symbols``: its hyperparameters; without it
    ``profiler_step`` of the trace is read as a step."""

    step: Annotated[Any, "The step that was traced: any other target."] = None
    profiler_step: Annotated[int | None, "The ProfilerStep# to read (default: the last one)."] = None


def is_list(path: Path) -> bool:
    """Tell a list of times from a trace."""
    return _LIST.match(head(path)) is not None


def _sniff(path: Path) -> bool:
    start = head(path).lstrip()
    return (start.startswith(b"{") and (b'"traceEvents"' in start or b'"deviceProperties"' in start)) or is_list(path)


def _read(path: Path, options: ProfilerOptions) -> Imported:
    from tensortide.graph import Graph, unrolled
    from tensortide.importers.door import open
    from tensortide.recorder import resolver
    from tensortide.timing.kineto import read_trace
    from tensortide.timing.listed import from_list
    from tensortide.timing.traced import from_trace

    given = options.step
    if given is None and is_list(path):
        raise TimesError(f"{path} is a list of times, with no tensors. Which step is it of? --step TARGET")
    if given is None:
        return _traced(path, options)
    graph = unrolled(given if isinstance(given, Graph) else open(given, hyperparameters=options.symbols).graph)
    if is_list(path):
        return Imported(graph, from_list(graph, path, resolver=resolver))
    return Imported(graph, from_trace(graph, read_trace(path), resolver=resolver))


def _traced(path: Path, options: ProfilerOptions) -> Imported:
    """Read the trace itself as a step."""
    from tensortide.importers.kineto.calls import read_calls
    from tensortide.importers.kineto.graph import durations_of, graph_of
    from tensortide.timing.kineto import read_trace

    if options.symbols:
        raise TimesError(f"{path} is a profiler's trace, whose sizes are numbers: settings go with --step TARGET")
    trace = read_trace(path)
    traced = graph_of(read_calls(path), str(path), options.profiler_step, "cuda:0" if trace.kernels else "cpu")
    return Imported(traced.graph, durations_of(traced, trace) if options.durations else None)


IMPORTER = Importer(
    "profiler",
    "a profiler's trace (.json) or a list of times (.csv, .jsonl: op, ns), also .gz",
    _sniff,
    _read,
    ProfilerOptions,
)
