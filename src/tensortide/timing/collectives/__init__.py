"""Times of collectives: a ladder of bound, fitted constants and measured sweeps; nodes; groups that share NICs."""

from __future__ import annotations

from tensortide.graph.collectives import COLLECTIVES, Collective
from tensortide.timing.collectives.nodes import Nodes, nodes_of
from tensortide.timing.collectives.predict import CollectivePrediction, collective, predict_collective
from tensortide.timing.collectives.sweep import Sweep, sweep

__all__ = [
    "COLLECTIVES",
    "Collective",
    "CollectivePrediction",
    "Nodes",
    "Sweep",
    "collective",
    "nodes_of",
    "predict_collective",
    "sweep",
]
