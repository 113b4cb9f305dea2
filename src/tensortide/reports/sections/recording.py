"""Section ``recording``: the allocator at the peak of a recording or where memory ran out, which lines hold the memory,
and how that differs from a prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath

from tensortide.graph import Graph, Phase, Role
from tensortide.importers.memory_snapshot.graph import OUT_OF_MEMORY
from tensortide.importers.memory_snapshot.records import Snapshot
from tensortide.importers.memory_snapshot.stacks import holder
from tensortide.importers.memory_snapshot.state import State, peak_reserved, state_at
from tensortide.reports.blocks import AnyBlock, Column, Fact, Facts, Note, Section, Table
from tensortide.reports.sections import Step
from tensortide.timelines import Resident
from tensortide.units import format_bytes, format_percent

__all__ = ["section"]

STATE = (Role.PARAMETER, Role.BUFFER, Role.OPTIMIZER_STATE, Role.INPUT, Role.LIBRARY, Role.GRADIENT)
"""Roles that are compared as such; other memory by the line or the op that asked for it."""


def section(step: Step, recording: Snapshot, against: Step | None = None) -> Section:
    """Make the section of a step that was read from ``recording``, beside the prediction ``against``."""
    failed = [op for op in range(len(step.graph)) if step.graph[op].name == OUT_OF_MEMORY]
    op = failed[0] if failed else step.eager.peak_op
    state = state_at(recording, op)
    blocks: list[AnyBlock] = [Facts(rows=tuple(_facts(step, recording, state, op)))]
    if failed:
        blocks.append(Note(text=_verdict(state), kind="failure"))
    blocks.append(_lines(step, op))
    if against is not None:
        blocks += _compared(step, op, against)
    where = "where memory ran out" if failed else "at the peak of the recording"
    return Section("recording", "The allocator", where, tuple(blocks))


def _facts(step: Step, recording: Snapshot, state: State, op: int) -> Iterator[Fact]:
    most = peak_reserved(recording, state.event.device)
    yield Fact("reserved", "Reserved", state.reserved, "bytes", f"at op {op}; {format_bytes(most)} at most")
    yield Fact("peak_reserved", "", most, "bytes", data=True)
    yield Fact("allocated", "in use", state.allocated, "bytes", "blocks of 512 bytes", level=1)
    pieces = f"in {len(state.gaps)} pieces, the largest {format_bytes(state.largest)}"
    yield Fact("free", "free", state.free, "bytes", pieces, level=1)
    yield Fact("largest_free", "", state.largest, "bytes", data=True)
    yield Fact("fragmentation", "fragmented", state.fragmentation, "share", "of the free bytes, not in one piece", 1)
    if state.event.action == "oom":
        yield Fact("asked", "Asked for", state.event.nbytes, "bytes", _failed_at(step.graph, op))
        yield Fact("device_free", "left on the device", state.event.free_bytes, "bytes", level=1)


def _failed_at(graph: Graph, op: int) -> str:
    """Name the line of the request that failed."""
    source = graph[op].source
    return f"by {holder(source)}, {graph[op].phase}" if source is not None and source.function else ""


def _verdict(state: State) -> str:
    asked = format_bytes(state.event.nbytes)
    if state.event.nbytes <= state.free:
        return (
            f"{asked} were asked for and {format_bytes(state.free)} were reserved and free, but in pieces of at most "
            f"{format_bytes(state.largest)}: fragmentation. PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True joins "
            f"them; memory in use is {format_percent(state.allocated, state.reserved)} of what is reserved."
        )
    return (
        f"{asked} were asked for; of what the allocator had, {format_bytes(state.free)} were free, and it got no more "
        "from the device: memory in use, not fragmentation, fills it."
    )


def _lines(step: Step, op: int) -> Table:
    """List what holds the memory: lines of the program, and ops of the backward pass, the largest first."""
    sums, counts, roles = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    for one in step.eager.alive(op):
        key = _line(step.graph, one)
        sums[key] += one.nbytes
        counts[key] += 1
        roles.setdefault(key, Counter())[one.role.value] += one.nbytes
    rows = sums.most_common()
    whole = sum(sums.values())
    return Table(
        key="lines",
        title="Lines that hold the memory",
        columns=(
            Column("line", "Line", "text", tuple(key for key, _ in rows), fold=True),
            Column("blocks", "Blocks", "count", tuple(counts[key] for key, _ in rows)),
            Column("size", "Bytes", "bytes", tuple(nbytes for _, nbytes in rows)),
            Column("share", "share", "share", tuple(nbytes / whole for _, nbytes in rows), bar=1),
            Column("role", "Mostly", "role", tuple(roles[key].most_common(1)[0][0] for key, _ in rows)),
        ),
        top=step.top,
    )


def _line(graph: Graph, one: Resident) -> str:
    """Name who asked for a storage: a line with its function; an op of the backward pass; or nobody known."""
    if one.op is None:
        return one.name or "before the recording"
    source = graph[one.op].source
    return holder(source if source is not None and source.function else None)


def _compared(step: Step, op: int, against: Step) -> Iterator[AnyBlock]:
    """Show what each role and each line has, recorded and predicted, each at its own peak."""
    ours, theirs = _keys(step, op), _keys(against, against.eager.peak_op)
    keys = sorted({*ours, *theirs}, key=lambda key: -abs(ours[key] - theirs[key]))
    peak, predicted = sum(ours.values()), sum(theirs.values())
    yield Facts(
        key="against",
        title="Beside the prediction",
        remark=f"{against.graph.meta.workload}, at op {against.eager.peak_op}",
        rows=(
            Fact("recorded", "Recorded", peak, "bytes"),
            Fact("predicted", "Predicted", predicted, "bytes", f"{predicted / peak - 1:+z.1%}" if peak else ""),
        ),
    )
    yield Table(
        key="differences",
        columns=(
            Column("holder", "What holds it", "text", tuple(keys), fold=True),
            Column("recorded", "Recorded", "bytes", tuple(ours[key] for key in keys)),
            Column("predicted", "Predicted", "bytes", tuple(theirs[key] for key in keys)),
            Column("more", "More recorded", "bytes", tuple(ours[key] - theirs[key] for key in keys)),
        ),
        top=step.top,
    )


def _keys(step: Step, op: int) -> Counter[str]:
    """Bytes resident during an op: of state by role, of the rest by phase and line, or op of the backward pass."""
    sums = Counter[str]()
    for one in step.eager.alive(op) if op >= 0 else ():
        sums[_key(step.graph, one)] += one.nbytes
    return sums


def _key(graph: Graph, one: Resident) -> str:
    if one.role in STATE or one.op is None:
        return one.role.value.replace("_", " ")
    view = graph[one.op]
    if view.phase is Phase.FORWARD and view.source is not None and view.source.line:
        return f"{PurePath(view.source.file).name}:{view.source.line}"
    return f"{view.phase.value}: {view.name.partition('.')[2].partition('.')[0]}"
