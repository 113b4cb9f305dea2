"""Plans, how to execute a Graph, and the planners that make them."""

from __future__ import annotations

from tensortide.plans.model import (
    Compute,
    Evict,
    Fetch,
    Lane,
    Offload,
    Plan,
    Receive,
    Send,
    in_order,
    load_plan,
    save_plan,
)
from tensortide.plans.order.minimal import MinimalFootprint, footprint
from tensortide.plans.validate import validate

__all__ = [
    "Compute",
    "Evict",
    "Fetch",
    "Lane",
    "MinimalFootprint",
    "Offload",
    "Plan",
    "Receive",
    "Send",
    "footprint",
    "in_order",
    "load_plan",
    "save_plan",
    "validate",
]
