"""From a graph, its count and its timelines to a Document."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING

from tensortide.graph.model import Graph, Phase
from tensortide.graph.roles import looks
from tensortide.reports.columns import OpTable, StorageTable
from tensortide.reports.document import (
    Coverage,
    Curve,
    Document,
    Environment,
    Irregular,
    Memory,
    Overview,
    PhaseRow,
    Resident,
    RoleBytes,
    Work,
)
from tensortide.reports.layout import device_text
from tensortide.reports.modules import module_rows, op_groups
from tensortide.reports.tables import PHASES, op_table, phase_of, source_rows, storage_table

if TYPE_CHECKING:
    from tensortide.cost import Count, Resolver, Total
    from tensortide.timelines import StorageTimeline

POINTS = 480
"""Most instants of a curve."""

CONVENTIONS = (
    (
        "A FLOP is one multiply or one add; a multiply-accumulate (MAC) is 2 FLOP. FLOPs are algorithmic: what the "
        "mathematics needs, not what the hardware issues. Products and elementwise work are counted apart."
    ),
    "Bytes accessed are algorithmic too: what an op must read of its inputs and write of its outputs. Views move none.",
    (
        "Memory is bytes of tensors as requested, and what kernels are known to take while they run: the allocator's "
        "rounding and caching and the framework's own context come on top."
    ),
    (
        "Eager: a tensor is released when the framework released it in this step. Last use: right after the last op "
        "that reads it, as a compiler could."
    ),
)
"""What the numbers of every report mean."""


def former_report(graph: Graph, *, top: int = 25, resolver: Resolver | None = None) -> Document:
    """The Document of ``graph``, for pages that are not blocks yet."""
    from tensortide import __version__
    from tensortide.cost import count
    from tensortide.graph import unrolled
    from tensortide.timelines import timeline

    graph = unrolled(graph)
    last_use = timeline(graph, lifetimes="last_use")
    return build(graph, count(graph, resolver=resolver), timeline(graph), last_use, top=top, version=__version__)


def build(
    graph: Graph, count: Count, eager: StorageTimeline, last_use: StorageTimeline, *, top: int, version: str
) -> Document:
    """The Document of ``graph``; ``top`` bounds the lists of the most expensive groups of ops."""
    ops = op_table(graph, count, eager)
    storages = storage_table(graph, ops.paths, eager.device)
    groups = op_groups(ops)
    overview = _overview(graph, count, eager, last_use)
    return Document(
        overview=overview,
        phases=tuple(_phases(count, eager)),
        modules=module_rows(graph, count, ops, storages, eager.peak_op),
        top_by_flops=tuple(sorted((g for g in groups if g.flops), key=lambda g: -g.flops)[:top]),
        top_by_bytes=tuple(sorted((g for g in groups if g.accessed_bytes), key=lambda g: -g.accessed_bytes)[:top]),
        memory=Memory(
            eager=_curve(eager),
            last_use=_curve(last_use),
            roles_at_peak=_roles(eager),
            at_peak=tuple(_at_peak(ops, storages, eager.peak_op)),
        ),
        sources=source_rows(graph),
        ops=ops,
        storages=storages,
        environment=Environment(
            tensortide=version,
            framework=graph.meta.framework,
            python=graph.meta.python,
            captured_on=graph.meta.captured_on,
        ),
        assumptions=graph.meta.assumptions,
        notes=_notes(graph, eager, overview),
    )


def work(total: Total) -> Work:
    """``total`` as a report shows it."""
    cost = total.cost
    return Work(
        ops=total.ops,
        unknown_ops=total.unknown,
        flops=cost.flops,
        macs=cost.macs,
        active_macs=cost.active_macs,
        recompute_macs=cost.recompute_macs,
        product_flops=2 * cost.macs,
        elementwise_flops=cost.elementwise_flops,
        transcendentals=cost.transcendentals,
        comparisons=cost.comparisons,
        int_ops=cost.int_ops,
        random_draws=cost.random_draws,
        read_bytes=cost.bytes_read,
        written_bytes=cost.bytes_written,
    )


def _phases(count: Count, eager: StorageTimeline) -> Iterable[PhaseRow]:
    peaks = _peaks(eager)
    for phase, total in count.by_phase.items():
        if phase in peaks:
            yield PhaseRow(phase=phase, work=work(total), peak_bytes=peaks[phase])


def _peaks(timeline: StorageTimeline) -> dict[str, int]:
    """Most bytes resident during any op of each phase that occurs."""
    members: dict[str, list[int]] = {}
    for i, op in enumerate(timeline.graph.ops):
        members.setdefault(phase_of(op), []).append(i)
    return {phase: int(timeline.resident[members[phase]].max()) for phase in PHASES if phase in members}


def _overview(graph: Graph, count: Count, eager: StorageTimeline, last_use: StorageTimeline) -> Overview:
    total, held = work(count.total), count.holdings
    return Overview(
        workload=graph.meta.workload,
        hyperparameters=graph.meta.hyperparameters,
        kind=_kind(graph),
        step=graph.meta.step,
        ops=len(graph),
        total=total,
        arithmetic_intensity_flops_per_byte=total.intensity,
        parameters=held.parameters,
        trainable_parameters=held.trainable,
        parameter_bytes=held.parameter_bytes,
        input_bytes=held.input_bytes,
        output_bytes=held.output_bytes,
        peak_bytes=eager.peak_bytes,
        peak_op=eager.peak_op,
        last_use_peak_bytes=last_use.peak_bytes,
        footprint_bytes=eager.footprint_bytes,
        persistent_bytes=eager.persistent_bytes,
        coverage=_coverage(count),
    )


def _kind(graph: Graph) -> str:
    phases = {op.phase for op in graph.ops}
    if Phase.OPTIMIZER in phases:
        return "training"
    return "forward and backward" if Phase.BACKWARD in phases else "inference"


def _coverage(count: Count) -> Coverage:
    coverage = count.coverage
    groups = {
        "unknown": coverage.missing,
        "default": coverage.by_default,
        "framework": coverage.by_framework,
        "decomposition": coverage.by_decomposition,
        "bound": coverage.by_bound,
    }
    return Coverage(
        line=coverage.line(),
        ops=coverage.ops,
        covered=coverage.covered,
        accessed_bytes=coverage.nbytes,
        covered_bytes=coverage.covered_bytes,
        irregular=tuple(
            Irregular(how=how, op=row.name, count=row.count, shapes=row.shapes, module=row.module, reason=row.reason)
            for how, rows in groups.items()
            for row in rows
        ),
    )


def _curve(timeline: StorageTimeline) -> Curve:
    """``timeline`` at the highest instant of each of at most ``POINTS`` stretches of equal length."""
    count, resident = len(timeline.graph), timeline.resident
    edges = [count * i // POINTS for i in range(POINTS + 1)] if count > POINTS else list(range(count + 1))
    at = [a + int(resident[a:b].argmax()) for a, b in pairwise(edges)]
    split = {str(role): series[at].tolist() for role, series in timeline.by_role.items()}
    return Curve(
        lifetimes=timeline.lifetimes,
        peak_bytes=timeline.peak_bytes,
        peak_op=timeline.peak_op,
        peak_bytes_by_phase=_peaks(timeline),
        op=tuple(at),
        total_bytes=tuple(resident[at].tolist()),
        bytes_by_role={role: tuple(split[role]) for role in looks() if role in split},
    )


def _roles(eager: StorageTimeline) -> tuple[RoleBytes, ...]:
    """Roles alive at the peak, the largest first."""
    if not len(eager.graph):
        return ()
    counts: dict[str, int] = {}
    for row in eager.alive():
        counts[row.role.value] = counts.get(row.role.value, 0) + 1
    sums = {str(role): int(series[eager.peak_op]) for role, series in eager.by_role.items()}
    rows = [RoleBytes(role, counts.get(role, 0), nbytes) for role, nbytes in sums.items() if nbytes]
    return tuple(sorted(rows, key=lambda row: -row.nbytes))


def _at_peak(ops: OpTable, storages: StorageTable, peak: int) -> Iterable[Resident]:
    rows = [i for i in range(len(storages.nbytes)) if storages.birth[i] <= peak < storages.death[i]]
    for i in sorted(rows, key=lambda i: -storages.nbytes[i]):
        birth = storages.birth[i]
        yield Resident(
            storage=i,
            role=storages.roles[storages.role[i]],
            name=storages.labels[storages.label[i]],
            tensor=storages.tensors[storages.tensor[i]],
            nbytes=storages.nbytes[i],
            module=ops.paths[storages.module[i]],
            op=ops.names[ops.name[birth]] if birth >= 0 else "",
            born=birth,
            dies=storages.death[i],
            source=ops.source[birth] if birth >= 0 else -1,
        )


def _notes(graph: Graph, eager: StorageTimeline, overview: Overview) -> tuple[str, ...]:
    """What the numbers mean and what they assume."""
    notes = list(CONVENTIONS)
    if graph.meta.captured_on == "fake":
        notes.append("Captured on fake tensors: shapes are exact; nothing was computed and nothing was measured.")
    if graph.meta.step == "first":
        notes.append("This is the first step: optimizer state is created in it.")
    elif overview.kind == "training":
        notes.append("This is a steady step: optimizer state exists before it.")
    if graph.branches:
        notes.append(
            "Of a conditional whose outcome is unknown, totals take the most expensive arm; all arms are listed."
        )
    others = [device_text(device) for device in eager.devices if device != eager.device]
    if others:
        notes.append(f"Memory is that of {device_text(eager.device)}; the step also uses {', '.join(others)}.")
    return tuple(notes)
