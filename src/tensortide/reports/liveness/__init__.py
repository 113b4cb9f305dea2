"""What is shown of liveness: how long memory lies idle, and what to do about it."""

from __future__ import annotations

from tensortide.reports.liveness.build import study
from tensortide.reports.liveness.records import LivenessView, with_liveness
from tensortide.reports.liveness.study import LivenessStudy

__all__ = ["LivenessStudy", "LivenessView", "study", "with_liveness"]
