"""How long memory lies idle in the kernel traces of G10's reference data."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tensortide.importers.g10.read import read_trace
from tensortide.timelines import Idleness, idleness

TRACES = ("BERT_Base-128", "BERT_Base-256", "VIT-512", "Inceptionv3-512")


@cache
def idleness_of(folder: Path) -> Idleness:
    trace = read_trace(folder)
    assert trace.times is not None
    return idleness(trace.graph, trace.times.durations(trace.graph, "recorded").ns, mode="compat")
