"""The step as a Chrome trace, for Perfetto and chrome://tracing. Time in it is the index of the op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from tensortide.report.document import Document
from tensortide.report.series import memory_by_role

Event: TypeAlias = dict[str, Any]

AXIS = "The time axis is the index of the op: 1 us per op. Durations are not measured and not estimated."

_STEP = 1
_PHASES, _MODULES = 1, 2


def render_trace(document: Document) -> bytes:
    """Trace Event JSON: phases, modules with their ops inside, and memory by role as counters."""
    ops = document.ops
    phases = [ops.phases[phase] for phase in ops.phase]
    stacks = [_stack(ops.paths[module]) for module in ops.module]
    events = [
        *_names(document),
        *(_slice(_PHASES, name, start, end) for name, start, end in _runs([(phase,) for phase in phases])),
        *(_slice(_MODULES, name, start, end) for name, start, end in _runs(stacks)),
        *_op_slices(document),
        *_counters(document),
    ]
    events.sort(key=lambda event: (event.get("ts", -1), -event.get("dur", 0)))
    workload = document.overview.workload
    about = {"time_axis": AXIS, "workload": workload, "written_by": f"tensortide {document.environment.tensortide}"}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _names(document: Document) -> Iterator[Event]:
    """Names of the tracks."""
    title = f"{document.overview.workload or 'step'} (time = op index, 1 us per op; not measured)"
    names = [
        ("process_name", 0, title),
        ("thread_name", _PHASES, "phases"),
        ("thread_name", _MODULES, "modules and ops"),
    ]
    for kind, track, name in names:
        yield {"ph": "M", "name": kind, "pid": _STEP, "tid": track, "args": {"name": name}}
    for track in (_PHASES, _MODULES):
        yield {"ph": "M", "name": "thread_sort_index", "pid": _STEP, "tid": track, "args": {"sort_index": track}}


def _slice(track: int, name: str, start: int, end: int) -> Event:
    return {"ph": "X", "name": name, "pid": _STEP, "tid": track, "ts": start, "dur": end - start}


def _stack(path: str) -> tuple[str, ...]:
    """Enclosing modules of an op, the outermost first, each by its whole path."""
    if path.startswith("("):
        return (path,)
    parts = path.split(".")
    return tuple(".".join(parts[: i + 1]) for i in range(len(parts)))


def _runs(stacks: Sequence[tuple[str, ...]]) -> Iterator[tuple[str, int, int]]:
    """Stretches of consecutive entries that share a name at the same level, below the same names."""
    open_: list[tuple[str, int]] = []
    for i, stack in enumerate([*stacks, ()]):
        common = 0
        while common < min(len(open_), len(stack)) and open_[common][0] == stack[common]:
            common += 1
        while len(open_) > common:
            name, start = open_.pop()
            yield name, start, i
        open_.extend((name, i) for name in stack[common:])


def _op_slices(document: Document) -> Iterator[Event]:
    ops = document.ops
    for i, name in enumerate(ops.name):
        args: Event = {
            "op": i,
            "module": ops.paths[ops.module[i]],
            "phase": ops.phases[ops.phase[i]],
            "shapes": ops.signatures[ops.shapes[i]],
            "flops": ops.flops[i],
            "accessed_bytes": ops.accessed_bytes[i],
            "resident_bytes": ops.resident_bytes[i],
        }
        if ops.source[i] >= 0:
            source = document.sources[ops.source[i]]
            args |= {"source": f"{source.file}:{source.line}", "code": source.code}
        yield {**_slice(_MODULES, ops.names[name], i, i + 1), "cat": args["phase"], "args": args}


def _counters(document: Document) -> Iterator[Event]:
    """Memory while each op runs, wherever it changes; zero after the last."""
    series = memory_by_role(document)
    total = document.ops.resident_bytes
    last: dict[str, int] | None = None
    for i in range(len(total)):
        values = {role: values[i] for role, values in series.items()}
        if values != last:
            yield _counter("memory by role (bytes)", i, values)
        if not i or total[i] != total[i - 1]:
            yield _counter("memory (bytes)", i, {"bytes": total[i]})
        last = values
    if total:
        yield _counter("memory (bytes)", len(total), {"bytes": 0})


def _counter(name: str, at: int, values: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "pid": _STEP, "ts": at, "args": values}
