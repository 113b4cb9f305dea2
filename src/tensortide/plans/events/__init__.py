"""Plans played on a machine with copy engines: what is legal, when each step starts, and the bytes of every place."""

from __future__ import annotations

from tensortide.plans.events.levels import Levels, levels
from tensortide.plans.events.play import check, play, steady_ns
from tensortide.plans.events.played import Change, Played, Stall, engine_name

__all__ = ["Change", "Levels", "Played", "Stall", "check", "engine_name", "levels", "play", "steady_ns"]
