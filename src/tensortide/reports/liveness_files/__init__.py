"""Liveness as files: the layouts of other tools, and the same as tables."""

from __future__ import annotations

from tensortide.reports.liveness_files.config import LivenessConfig, liveness_of_config, read_config
from tensortide.reports.liveness_files.files import FORMATS, write_liveness_files

__all__ = ["FORMATS", "LivenessConfig", "liveness_of_config", "read_config", "write_liveness_files"]
