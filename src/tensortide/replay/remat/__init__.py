"""A step under a memory budget, simulated: online policies, engines, and what came of a run."""

from __future__ import annotations

from tensortide.replay.remat.outcome import Deallocation, Shortage, Status
from tensortide.replay.remat.simulation import Simulation
from tensortide.replay.remat.simulator import Simulator

__all__ = ["Deallocation", "Shortage", "Simulation", "Simulator", "Status"]
