"""A Recording that knows what its log called everything."""

from __future__ import annotations

from dataclasses import dataclass

from tensortide.plans.remat.schedule import Recording

COPY_ON_WRITE = "copy_on_write"
"""Tag of in-place ops that are read as ops with new outputs."""
WRITTEN = "mutated"
"""Argument of such ops: the positions of the inputs that the outputs replace."""


@dataclass(frozen=True, slots=True, eq=False)
class LogRecording(Recording):
    """A Recording with the names in its log, which say what re-binds what when it is written again.

    ``names`` has for every event the name that it is about (for COMPUTE nothing), ``sources`` for every GET the name
    that is copied, ``operands`` for every op the names of its inputs, followed by those of its outputs (for an in-place
    op of its inputs only), ``aliases`` for every tensor which input of its op it lies in (-1: none).
    """

    names: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    operands: tuple[tuple[str, ...], ...] = ()
    aliases: tuple[int, ...] = ()
