"""What is shown of a step under a memory budget: terminal, HTML panes, figure and files."""

from __future__ import annotations

from tensortide.reports.simulation.build import view, view_of_plan
from tensortide.reports.simulation.records import Simulated, SimulationView, with_simulation

__all__ = ["Simulated", "SimulationView", "view", "view_of_plan", "with_simulation"]
