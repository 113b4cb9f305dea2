"""Metrics of a step or a model: named figures in one table, compared, and checked."""

from __future__ import annotations

from tensortide.measures.comparison import Comparison, compare_statuses
from tensortide.measures.data import Data
from tensortide.measures.evaluation import Evaluation
from tensortide.measures.forward_pass import ForwardPass
from tensortide.measures.metric import Comparative, Metric, Missing
from tensortide.measures.profiler import Profiler
from tensortide.measures.registry import MetricFunction, Registry, default_registry, metric
from tensortide.measures.status import Status, load_status

__all__ = [
    "Comparative",
    "Comparison",
    "Data",
    "Evaluation",
    "ForwardPass",
    "Metric",
    "MetricFunction",
    "Missing",
    "Profiler",
    "Registry",
    "Status",
    "compare_statuses",
    "default_registry",
    "load_status",
    "metric",
]
