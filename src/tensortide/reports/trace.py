"""The step as a Chrome trace, for Perfetto and chrome://tracing. Time is that of durations, or else the op's index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from tensortide.reports.document import Document
from tensortide.reports.series import memory_by_role

if TYPE_CHECKING:
    from tensortide.reports.liveness.records import LifeBar
    from tensortide.reports.liveness.study import LivenessStudy

Event: TypeAlias = dict[str, Any]

AXIS = "The time axis is the index of the op: 1 us per op. Durations are not measured and not estimated."

_STEP, _LIVES = 1, 2
_PHASES, _MODULES = 1, 2


def render_trace(document: Document, study: LivenessStudy | None = None) -> bytes:
    """Trace Event JSON: phases, modules with their ops inside, and memory by role as counters.

    With ``study``, an analysis of the same step, the time axis is that of its durations; memory in use is a counter
    too, and the storages with most bytes times idle time are tracks that show when each is in use and idle.
    """
    clock = _clock(document, study)
    ops = document.ops
    phases = [ops.phases[phase] for phase in ops.phase]
    stacks = [_stack(ops.paths[module]) for module in ops.module]
    runs = [(_PHASES, run) for run in _runs([(phase,) for phase in phases])]
    runs += [(_MODULES, run) for run in _runs(stacks)]
    events = [
        *_names(document, study),
        *(_slice(_STEP, track, name, clock[start], clock[end]) for track, (name, start, end) in runs),
        *_op_slices(document, clock),
        *_counters("memory", memory_by_role(document), document.ops.resident_bytes, clock),
    ]
    if study is not None:
        idle = study.idle
        split = {role: series.tolist() for role, series in idle.active_by_role.items()}
        events += _counters("memory in use", split, idle.active.tolist(), clock)
        events += _counters("memory alive", {}, idle.live.tolist(), clock)
        for track, bar in enumerate(study.view.lives):
            events += _life(track, bar)
    events.sort(key=lambda event: (event.get("ts", -1), -event.get("dur", 0)))
    about = {
        "time_axis": AXIS if study is None else f"Durations of ops: {study.view.durations or 'unknown'}.",
        "workload": document.overview.workload,
        "written_by": f"tensortide {document.environment.tensortide}",
    }
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms", "otherData": about})


def _clock(document: Document, study: LivenessStudy | None) -> Sequence[float]:
    """When each op starts, and when the last one ends, in microseconds."""
    if study is None:
        return range(len(document.ops.name) + 1)
    return [ns / 1000 for ns in study.idle.clock_ns]


def _names(document: Document, study: LivenessStudy | None) -> Iterator[Event]:
    """Names of the tracks."""
    known = "time = op index, 1 us per op; not measured" if study is None else study.view.durations.partition(" (")[0]
    title = f"{document.overview.workload or 'step'} ({known})"
    names = [
        ("process_name", _STEP, 0, title),
        ("thread_name", _STEP, _PHASES, "phases"),
        ("thread_name", _STEP, _MODULES, "modules and ops"),
    ]
    tracks = [(_STEP, _PHASES), (_STEP, _MODULES)]
    if study is not None:
        names.append(("process_name", _LIVES, 0, "tensors with most bytes times idle time"))
        for track, bar in enumerate(study.view.lives):
            names.append(("thread_name", _LIVES, track, f"{bar.stored.module} {bar.stored.name or bar.stored.role}"))
            tracks.append((_LIVES, track))
    for kind, process, track, name in names:
        yield {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}
    for process, track in tracks:
        yield {"ph": "M", "name": "thread_sort_index", "pid": process, "tid": track, "args": {"sort_index": track}}


def _slice(process: int, track: int, name: str, start: float, end: float) -> Event:
    """A slice between two times; its length is rounded to the nanoseconds that times are in."""
    return {"ph": "X", "name": name, "pid": process, "tid": track, "ts": start, "dur": round(end - start, 3)}


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


def _op_slices(document: Document, clock: Sequence[float]) -> Iterator[Event]:
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
        yield {**_slice(_STEP, _MODULES, ops.names[name], clock[i], clock[i + 1]), "cat": args["phase"], "args": args}


def _counters(
    name: str, by_role: dict[str, list[int]], total: Sequence[int], clock: Sequence[float]
) -> Iterator[Event]:
    """Bytes while each op runs, wherever they change; zero after the last."""
    last: dict[str, int] | None = None
    for i in range(len(total)):
        values = {role: values[i] for role, values in by_role.items()}
        if by_role and values != last:
            yield _counter(f"{name} by role (bytes)", clock[i], values)
        if not i or total[i] != total[i - 1]:
            yield _counter(f"{name} (bytes)", clock[i], {"bytes": total[i]})
        last = values
    if total:
        yield _counter(f"{name} (bytes)", clock[-1], {"bytes": 0})


def _counter(name: str, at: float, values: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "pid": _STEP, "ts": at, "args": values}


def _life(track: int, bar: LifeBar) -> Iterator[Event]:
    """When a storage is in use, and idle in between, as slices of a track of its own."""
    stored = bar.stored
    args = {
        "nbytes": stored.nbytes,
        "role": stored.role,
        "tensor": stored.tensor,
        "module": stored.module,
        "made_by": stored.op_name,
        "source": stored.source,
        "code": stored.code,
    }
    at = bar.birth_ns
    for start, end in (*bar.used_ns, (bar.death_ns, bar.death_ns)):
        for name, first, last in (("idle", at, start), ("in use", start, end)):
            if last > first:
                yield {**_slice(_LIVES, track, name, first / 1000, last / 1000), "cat": "memory", "args": args}
        at = end
