"""Section ``about``: what the numbers of a report mean, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator

from tensortide.reports.blocks import Fact, Note, Section
from tensortide.reports.names import device_text
from tensortide.reports.of_records import facts
from tensortide.reports.sections import Step
from tensortide.version import VERSION

ORDER = 90

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
"""Meaning of the numbers of every report."""


def of_step(step: Step) -> Section:
    """Make the section; text has no room for it."""
    notes = [Note(text=text, only="page") for text in (*CONVENTIONS, *_conventions(step))]
    kind, version = Fact("kind", "Step", step.kind), Fact("tensortide", "tensortide", VERSION)
    origin = facts(step.graph.meta, kind, "step", "framework", "python", "captured_on", version, only="page")
    return Section("about", "About these numbers", blocks=(*notes, origin))


def _conventions(step: Step) -> Iterator[str]:
    """Say what the numbers of this step mean beyond those of every report."""
    meta = step.graph.meta
    if meta.captured_on == "fake":
        yield "Captured on fake tensors: shapes are exact; nothing was computed and nothing was measured."
    if meta.step == "first":
        yield "This is the first step: optimizer state is created in it."
    elif step.kind == "training":
        yield "This is a steady step: optimizer state exists before it."
    if text := elsewhere(step):
        yield text


def elsewhere(step: Step) -> str:
    """Name the devices whose memory is not shown."""
    eager = step.eager
    others = [device_text(device) for device in eager.devices if device != eager.device]
    shown = f"Memory is that of {device_text(eager.device)}; the step also uses {', '.join(others)}."
    return shown if others else ""
