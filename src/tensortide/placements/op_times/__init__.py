"""Times of layers on devices: the published model, and the corrected one."""

from __future__ import annotations

from tensortide.placements.op_times.optimizers import OPTIMIZERS, Optimizer, update_work
from tensortide.placements.op_times.times import OpTimes, Rates, layer_times
from tensortide.placements.op_times.work import PartWork, layer_work

__all__ = ["OPTIMIZERS", "OpTimes", "Optimizer", "PartWork", "Rates", "layer_times", "layer_work", "update_work"]
