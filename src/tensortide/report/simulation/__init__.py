"""What is shown of a step under a memory budget: terminal, HTML panes, figure and files."""

from __future__ import annotations

from tensortide.report.simulation.build import view, view_of_plan
from tensortide.report.simulation.records import Simulated, SimulationView, with_simulation

__all__ = ["Simulated", "SimulationView", "view", "view_of_plan", "with_simulation"]
