"""Metrics of a step or a model: named figures in one table, compared, and checked."""

from __future__ import annotations

from tensortide.metrics.comparison import Comparison, compare_statuses
from tensortide.metrics.data import Data
from tensortide.metrics.evaluation import Evaluation
from tensortide.metrics.forward_pass import ForwardPass
from tensortide.metrics.metric import Comparative, Metric, Missing
from tensortide.metrics.profiler import Profiler
from tensortide.metrics.registry import MetricFunction, Registry, default_registry, metric
from tensortide.metrics.status import Status, load_status

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
