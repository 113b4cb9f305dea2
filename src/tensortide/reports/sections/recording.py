"""Section ``recording``: the allocator at the peak of a recording or where memory ran out, which lines hold the memory,
and how that differs from a prediction."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import PurePath
from typing import Annotated

import msgspec

from tensortide.graph import Graph, Phase, Role, Source
from tensortide.importers.memory_snapshot.graph import OUT_OF_MEMORY
from tensortide.importers.memory_snapshot.records import Snapshot, holder
from tensortide.importers.memory_snapshot.state import State, state_at
from tensortide.reports.blocks import Facts, Note, Section, Table
from tensortide.reports.of_records import fact, facts, table
from tensortide.reports.sections import Step
from tensortide.shown import Show
from tensortide.units import format_bytes, format_percent

STATE = (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT, Role.CACHE, Role.LIBRARY, Role.GRADIENT)
"""Roles that are compared as such; other memory by the line or the op that asked for it."""


class _Line(msgspec.Struct, frozen=True):
    line: Annotated[str, Show("Line", fold=True)]
    blocks: Annotated[int, Show("Blocks")]
    size_bytes: Annotated[int, Show("Bytes")]
    share: Annotated[float, Show("share", bar=1)]
    role: Annotated[str, Show("Mostly", "role")]


class _Difference(msgspec.Struct, frozen=True):
    holder: Annotated[str, Show("What holds it", fold=True)]
    recorded_bytes: Annotated[int, Show("Recorded")]
    predicted_bytes: Annotated[int, Show("Predicted")]
    more_bytes: Annotated[int, Show("More recorded")]


def section(step: Step, recording: Snapshot, against: Step | None = None) -> Section:
    """Make the section of a step that was read from ``recording``, beside the prediction ``against``."""
    failed = [op for op in range(len(step.graph)) if step.graph[op].name == OUT_OF_MEMORY]
    op = failed[0] if failed else step.eager.peak_op
    state = state_at(recording, op)
    verdict = (Note(text=_verdict(state), kind="failure"),) if failed else ()
    compared = () if against is None else _compared(step, op, against)
    blocks = (_state(step, state, op), *verdict, _lines(step, op), *compared)
    where = "where memory ran out" if failed else "at the peak of the recording"
    return Section("recording", "The allocator", where, blocks)


def _state(step: Step, state: State, op: int) -> Facts:
    source, most = _source(step.graph, op), format_bytes(state.peak_reserved_bytes)
    pieces = f"in {len(state.gaps)} pieces, the largest {format_bytes(state.largest_free_bytes)}"
    by = f"by {holder(source)}, {step.graph[op].phase}" if source is not None else ""
    asked = (fact(state, "event.asked_bytes", by), fact(state, "event.device_free_bytes"))
    return facts(
        state,
        *(fact(state, "reserved_bytes", f"at op {op}; {most} at most"), "peak_reserved_bytes"),
        *(fact(state, "allocated_bytes", "blocks of 512 bytes"), fact(state, "free_bytes", pieces)),
        *("largest_free_bytes", fact(state, "fragmentation_share", "of the free bytes, not in one piece")),
        *(asked if state.event.action == "oom" else ()),
    )


def _source(graph: Graph, op: int) -> Source | None:
    """The place that asked for memory, if it is known."""
    source = graph[op].source
    return source if source is not None and source.function else None


def _verdict(state: State) -> str:
    asked, free = format_bytes(state.event.asked_bytes), format_bytes(state.free_bytes)
    if state.event.asked_bytes <= state.free_bytes:
        return (
            f"{asked} were asked for and {free} were reserved and free, but in pieces of at most "
            f"{format_bytes(state.largest_free_bytes)}: fragmentation. PYTORCH_CUDA_ALLOC_CONF="
            "expandable_segments:True joins them; memory in use is "
            f"{format_percent(state.allocated_bytes, state.reserved_bytes)} of what is reserved."
        )
    return (
        f"{asked} were asked for; of what the allocator had, {free} were free, and it got no more from the device: "
        "memory in use, not fragmentation, fills it."
    )


def _lines(step: Step, op: int) -> Table:
    """List what holds the memory: lines of the program, and ops of the backward pass, the largest first."""
    sums, blocks, roles = Counter[str](), Counter[str](), defaultdict[str, Counter[str]](Counter)
    for one in step.eager.alive(op):
        line = (one.name or "before the recording") if one.op is None else holder(_source(step.graph, one.op))
        sums[line] += one.nbytes
        blocks[line] += 1
        roles[line][one.role.value] += one.nbytes
    rows = [
        _Line(line, blocks[line], size, size / sums.total(), roles[line].most_common(1)[0][0])
        for line, size in sums.most_common()
    ]
    return table(_Line, rows, key="lines", title="Lines that hold the memory", top=step.top)


def _compared(step: Step, op: int, against: Step) -> tuple[Facts, Table]:
    """Show what each role and each line has, recorded and predicted, each at its own peak."""
    ours, theirs = _keys(step, op), _keys(against, against.eager.peak_op)
    rows = [_Difference(key, ours[key], theirs[key], ours[key] - theirs[key]) for key in sorted({*ours, *theirs})]
    rows.sort(key=lambda row: -abs(row.more_bytes))
    whole = _Difference("", peak := ours.total(), theirs.total(), 0)
    predicted = fact(whole, "predicted_bytes", f"{whole.predicted_bytes / peak - 1:+z.1%}" if peak else "")
    title, remark = "Beside the prediction", f"{against.graph.meta.workload}, at op {against.eager.peak_op}"
    totals = facts(whole, "recorded_bytes", predicted, key="against", title=title, remark=remark)
    return totals, table(_Difference, rows, key="differences", top=step.top)


def _keys(step: Step, op: int) -> Counter[str]:
    """Bytes resident during an op: of state by role, of the rest by phase and line, or op of the backward pass."""
    sums = Counter[str]()
    for one in step.eager.alive(op) if op >= 0 else ():
        view = None if one.op is None or one.role in STATE else step.graph[one.op]
        if view is None:
            key = one.role.value.replace("_", " ")
        elif view.phase is Phase.FORWARD and view.source is not None and view.source.line:
            key = f"{PurePath(view.source.file).name}:{view.source.line}"
        else:
            key = f"{view.phase.value}: {view.name.partition('.')[2].partition('.')[0]}"
        sums[key] += one.nbytes
    return sums
