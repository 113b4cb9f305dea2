"""Plans, how to execute a Graph, and the planners that make them."""

from __future__ import annotations

from tensortide.plans.legal import validate
from tensortide.plans.model import (
    Compute,
    Copy,
    Drop,
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

__all__ = [
    "Compute",
    "Copy",
    "Drop",
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
