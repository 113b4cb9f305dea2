"""Section ``collectives``: communication between the processes of a step, by op."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated

import msgspec

from tensortide.graph.communication import moves_data, payload_bytes
from tensortide.reports.blocks import Section
from tensortide.reports.of_records import table
from tensortide.reports.sections import Step
from tensortide.shown import Show

ORDER = 45


class _Moved(msgspec.Struct, frozen=True):
    op: Annotated[str, Show("Collective", "name")]
    phase: Annotated[str, Show("Phase")]
    runs: Annotated[int, Show("Runs")]
    payload_bytes: Annotated[int, Show("Payload")]


def of_step(step: Step) -> Section | None:
    """Make the section for a step that communicates."""
    payloads = defaultdict[tuple[str, str], list[int]](list)
    for op in step.graph:
        if moves_data(op.name):
            payloads[op.name.split(".")[1].strip("_"), op.op.phase.value].append(payload_bytes(op))
    moved = [_Moved(*key, len(some), sum(some)) for key, some in payloads.items()]
    rows = sorted(moved, key=lambda row: -row.payload_bytes)
    return Section("collectives", "Communication", blocks=(table(_Moved, rows, key="collectives"),)) if rows else None
