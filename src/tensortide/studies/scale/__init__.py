"""A step on many devices: one configuration, or a search over all legal ones; strong and weak scaling."""

from __future__ import annotations

from tensortide.studies.scale.captured import Captured
from tensortide.studies.scale.predictors import ClosedForm, Found, Predictor
from tensortide.studies.scale.request import Request
from tensortide.studies.scale.study import Outcome, Scale, ScalingRow, scale

__all__ = ["Captured", "ClosedForm", "Found", "Outcome", "Predictor", "Request", "Scale", "ScalingRow", "scale"]
