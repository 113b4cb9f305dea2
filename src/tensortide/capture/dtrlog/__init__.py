"""Operator logs of dynamic tensor rematerialization (DTR): read as a Recording, written from any Graph."""

from __future__ import annotations

from tensortide.capture.dtrlog.files import is_log_file
from tensortide.capture.dtrlog.read import read_recording
from tensortide.capture.dtrlog.write import write_log

__all__ = ["is_log_file", "read_recording", "write_log"]
