"""A step on many devices: one configuration, or a search over all legal ones; strong and weak scaling."""

from __future__ import annotations

from tensortide.studies.scale.captured import Captured
from tensortide.studies.scale.predictors import ClosedForm, Predictor, ScalePrediction
from tensortide.studies.scale.problem import DegreeRequest, Problem
from tensortide.studies.scale.study import Candidate, Scale, ScalingRow, scale

__all__ = [
    "Candidate",
    "Captured",
    "ClosedForm",
    "DegreeRequest",
    "Predictor",
    "Problem",
    "Scale",
    "ScalePrediction",
    "ScalingRow",
    "scale",
]
