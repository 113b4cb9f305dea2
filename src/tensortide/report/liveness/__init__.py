"""What is shown of liveness: how long memory lies idle, and what to do about it."""

from __future__ import annotations

from tensortide.report.liveness.build import study
from tensortide.report.liveness.records import LivenessView, with_liveness
from tensortide.report.liveness.study import LivenessStudy

__all__ = ["LivenessStudy", "LivenessView", "study", "with_liveness"]
