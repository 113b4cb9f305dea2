"""Plans played: what happens to memory when a Graph is executed by a Plan."""

from __future__ import annotations

from tensortide.replay.order import reordered, replay

__all__ = ["reordered", "replay"]
