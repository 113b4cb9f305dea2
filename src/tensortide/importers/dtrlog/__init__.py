"""Operator logs of dynamic tensor rematerialization (DTR): read as a Recording, written from any Graph."""

from __future__ import annotations

from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.dtrlog.write import is_log_file, write_log

__all__ = ["is_log_file", "read_recording", "write_log"]
