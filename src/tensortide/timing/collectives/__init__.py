"""Times of collectives: a ladder of bound, fitted constants and measured sweeps; nodes; groups that share NICs."""

from __future__ import annotations

from tensortide.graph.collectives import COLLECTIVES, Collective
from tensortide.timing.collectives.cluster import Cluster, cluster
from tensortide.timing.collectives.predict import CollectivePrediction, collective, predict_collective
from tensortide.timing.collectives.sweep import Sweep, sweep

__all__ = [
    "COLLECTIVES",
    "Cluster",
    "Collective",
    "CollectivePrediction",
    "Sweep",
    "cluster",
    "collective",
    "predict_collective",
    "sweep",
]
