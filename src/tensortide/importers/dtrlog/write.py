"""Steps as DTR logs."""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tensortide.errors import OutputError
from tensortide.graph.model import Graph
from tensortide.graph.unroll import unrolled
from tensortide.importers.dtrlog.export import Exporting, Result, Text
from tensortide.importers.dtrlog.read import COPY_ON_WRITE, WRITTEN, LogRecording
from tensortide.plans.remat.schedule import CONSTANT, Event, Recording
from tensortide.write import write_file

_SUFFIXES = (".log", ".jsonl", ".log.gz", ".jsonl.gz")


def write_log(step: Graph | Recording, durations_ns: Sequence[int] | None, path: str | os.PathLike[str]) -> Path:
    """Write a step as a DTR log, all or nothing; compressed with gzip if the name ends in ``.gz``.

    ``durations_ns`` are nanoseconds, one number for each op of the graph (of an op in a loop: for one iteration; loops
    are written out). None: those of the Recording.

    A Recording that was read from a log is written event by event, with its names. Of any other step the log has a
    constant for every storage that exists before it, a call for every op that makes something, and the names of a
    storage are released where it dies. In-place ops are ``MUTATE`` lines; one that also makes something is a call
    followed by a ``MUTATE`` of no duration, whose name ends in ``.write``. What a normalisation only keeps count of
    (running statistics) is not written. A log has one device: storages of all devices are in it.

    Raises:
        OutputError: the file cannot be written, or the durations do not fit the step.
        GraphError: the graph has loops that are too long to be written out.
    """
    graph = step if isinstance(step, Graph) else step.graph
    if durations_ns is None and isinstance(step, Recording):
        durations_ns = step.durations_ns
    durations = tuple(durations_ns or ())
    if len(durations) != len(graph):
        raise OutputError(f"cannot write {path}: {len(durations):,} durations for {len(graph):,} ops")
    if min(durations, default=0) < 0:
        raise OutputError(f"cannot write {path}: an op lasts {min(durations)} ns")
    if isinstance(step, LogRecording):
        if len(step.names) != len(step.kinds) or len(step.operands) != len(graph):
            raise OutputError(f"cannot write {path}: the events of this recording are not those that were read")
        content = _written_again(step, durations)
    else:
        content = Exporting(*_written_out(graph, durations)).content()
    if os.fspath(path).endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    return write_file(path, content)


def is_log_file(path: str | os.PathLike[str]) -> bool:
    """Tell from the name whether a DTR log is to be written there."""
    return os.fspath(path).endswith(_SUFFIXES)


def _written_out(graph: Graph, durations: tuple[int, ...]) -> tuple[Graph, tuple[int, ...]]:
    """The graph without loops, and the duration of each of its ops."""
    if not graph.loops:
        return graph, durations
    replace = msgspec.structs.replace
    numbered = replace(graph, ops=tuple(replace(op, label=str(i)) for i, op in enumerate(graph.ops)))
    flat = unrolled(numbered)
    origins = [int(op.label) for op in flat.ops]
    ops = tuple(replace(op, label=graph.ops[i].label) for op, i in zip(flat.ops, origins, strict=True))
    return replace(flat, ops=ops), tuple(durations[i] for i in origins)


def _written_again(recording: LogRecording, durations: tuple[int, ...]) -> bytes:
    """A log from what was read of it, event by event, with its names."""
    text, known, sources = Text(recording.graph), set[str](), iter(recording.sources)
    events = list(zip(recording.kinds.tolist(), recording.indexes.tolist(), recording.names, strict=True))
    implied = 0  # releases that the line before stands for
    for (kind, index, name), following in zip(events, [*events[1:], (None, 0, "")], strict=True):
        if kind == Event.COMPUTE:
            implied = _compute(recording, index, text, durations[index], known)
        elif kind == Event.RELEASE and implied:
            implied -= 1
        elif kind == Event.RELEASE and (following[0] != Event.GET or following[2] != name):
            text.add("RELEASE", NAME=name)
        elif kind == Event.GET:
            text.add("COPY_FROM" if name in known else "COPY", DST=name, SRC=next(sources))
            known.add(name)
    return text.content()


def _compute(recording: LogRecording, index: int, text: Text, duration: int, known: set[str]) -> int:
    """Write one op, whose results are ``known`` from then on; return how many releases it stands for."""
    graph, names = recording.graph, recording.operands[index]
    op = graph.ops[index]
    call, args, results = graph.calls[op.call], names[: len(op.inputs)], names[len(op.inputs) :]
    text.at(index)
    if COPY_ON_WRITE in call.tags:
        slots = dict(call.arguments)[WRITTEN]
        assert isinstance(slots, tuple)
        text.mutate(op.label, args, slots, duration)
        return len(slots)
    made = [
        Result(name, graph.tensors[tensor].numel, recording.aliases[tensor])
        for name, tensor in zip(results, op.outputs, strict=False)
    ]
    if CONSTANT in call.tags:
        text.constant(made[0])
    elif call.mutated:
        text.mutate(op.label, args, call.mutated, duration)
    else:
        text.call(op.label, args, made, duration)
    known.update(results)
    return 0
