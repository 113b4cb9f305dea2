"""Targets that are DTR logs, by their names."""

from __future__ import annotations

import os

__all__ = ["LOG_FILES", "is_log_file"]

LOG_FILES = (".log", ".jsonl", ".log.gz", ".jsonl.gz")
"""How the names of DTR logs end."""


def is_log_file(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` names a DTR log. The file need not exist."""
    return os.fspath(path).endswith(LOG_FILES)
