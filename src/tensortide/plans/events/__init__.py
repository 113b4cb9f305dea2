"""Plans played on a machine with copy engines: what is legal, when each step starts, and the bytes of every place."""

from __future__ import annotations

from tensortide.plans.events.play import play, steady_ns
from tensortide.plans.events.played import Change, Played, Stall, engine_name

__all__ = ["Change", "Played", "Stall", "engine_name", "play", "steady_ns"]
