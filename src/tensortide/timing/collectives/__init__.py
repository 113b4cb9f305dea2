"""Times of collectives: a ladder of bound, fitted constants and measured sweeps; nodes; groups that share NICs."""

from __future__ import annotations

from tensortide.timing.collectives.cluster import Cluster, cluster
from tensortide.timing.collectives.kinds import KINDS, Kind
from tensortide.timing.collectives.predict import CollectivePrediction, collective, predict_collective
from tensortide.timing.collectives.sweep import Sweep, sweep

__all__ = [
    "KINDS",
    "Cluster",
    "CollectivePrediction",
    "Kind",
    "Sweep",
    "cluster",
    "collective",
    "predict_collective",
    "sweep",
]
