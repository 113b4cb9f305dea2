"""Planning under a budget: plans that policies and static strategies find, and the search that starts from them."""

from __future__ import annotations

from tensortide.studies.planning.frontier import frontier
from tensortide.studies.planning.planning import plan

__all__ = ["frontier", "plan"]
