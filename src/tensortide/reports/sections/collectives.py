"""Section ``collectives``: communication between the processes of a step, by op."""

from __future__ import annotations

from collections import Counter

from tensortide.graph.collectives import moves_data
from tensortide.reports.blocks import Column, Section, Table
from tensortide.reports.sections import Step
from tensortide.timing.collectives.recorded import payload_bytes

__all__ = ["ORDER", "of_step", "section"]

ORDER = 45


def of_step(step: Step) -> Section | None:
    """Make the section for a step that communicates."""
    return section(step) if any(moves_data(op.name) for op in step.graph) else None


def section(step: Step) -> Section:
    """Make the section."""
    runs: Counter[tuple[str, str]] = Counter()
    nbytes: Counter[tuple[str, str]] = Counter()
    for op in step.graph:
        if not moves_data(op.name):
            continue
        key = op.name.split(".")[1].strip("_"), op.op.phase.value
        runs[key] += 1
        nbytes[key] += payload_bytes(op)
    rows = sorted(runs, key=lambda key: -nbytes[key])
    columns = (
        Column("op", "Collective", "name", tuple(name for name, _ in rows)),
        Column("phase", "Phase", "text", tuple(phase for _, phase in rows)),
        Column("runs", "Runs", "count", tuple(runs[row] for row in rows)),
        Column("payload", "Payload", "bytes", tuple(nbytes[row] for row in rows)),
    )
    table = Table(key="collectives", columns=columns)
    return Section("collectives", "Communication", blocks=(table,))
