"""A step under a memory budget, simulated: online policies, engines, and outcomes of runs."""

from __future__ import annotations

from tensortide.replays.remat.outcome import Deallocation, Shortage, Status
from tensortide.replays.remat.simulation import Simulation
from tensortide.replays.remat.simulator import Simulator

__all__ = ["Deallocation", "Shortage", "Simulation", "Simulator", "Status"]
