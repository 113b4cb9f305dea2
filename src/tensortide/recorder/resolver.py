"""Costs of ops without a rule, where the framework is installed; importing this does not load it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensortide.cost import Cost
    from tensortide.cost.evaluate import How
    from tensortide.graph import OpView

__all__ = ["resolver"]


def resolver(op: OpView) -> tuple[Cost, How] | None:
    """Cost of an op that has no rule, from the framework if it is installed: its formula, or the op's parts."""
    try:
        from tensortide.recorder.fallback import fallback
    except ImportError:
        return None
    return fallback(op)
