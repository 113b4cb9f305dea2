"""A step under a memory budget, simulated: online policies, engines, and outcomes of runs."""

from __future__ import annotations

from tensortide.replays.remat.simulation import Deallocation, Shortage, Simulation, Status
from tensortide.replays.remat.simulator import Simulator

__all__ = ["Deallocation", "Shortage", "Simulation", "Simulator", "Status"]
