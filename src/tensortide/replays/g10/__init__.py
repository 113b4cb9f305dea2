"""G10's policies (MICRO 2023) replayed on kernel traces: how seven policies run a step whose tensors do not fit."""

from __future__ import annotations

from tensortide.replays.g10.machine import G10Machine, Trace, trace_of
from tensortide.replays.g10.outcome import G10Outcome, Traffic
from tensortide.replays.g10.policies import POLICIES, chosen, outcomes

__all__ = ["POLICIES", "G10Machine", "G10Outcome", "Trace", "Traffic", "chosen", "outcomes", "trace_of"]
