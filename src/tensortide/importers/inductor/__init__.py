"""Graphs that PyTorch's compiler dumps as text, and the same graphs taken from a model directly."""

from __future__ import annotations

from tensortide.importers.inductor.files import Dumps, find_dumps
from tensortide.importers.inductor.read import read_dumps, trace_of_texts

__all__ = ["Dumps", "find_dumps", "read_dumps", "trace_of_texts"]
