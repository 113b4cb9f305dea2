"""Closed forms of a step of a transformer on a cluster: its time in parts, its memory per rank."""

from __future__ import annotations

from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.closed.constants import StepConstants, shipped
from tensortide.parallelism.closed.memory import RankMemory, rank_memory
from tensortide.parallelism.closed.predict import StepPrediction, predict_step
from tensortide.parallelism.closed.transformer import Transformer, transformer

__all__ = [
    "Configuration",
    "RankMemory",
    "StepConstants",
    "StepPrediction",
    "Transformer",
    "predict_step",
    "rank_memory",
    "shipped",
    "transformer",
]
