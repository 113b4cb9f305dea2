"""One training step on many devices: the Graph of one rank, from the Graph of the whole step."""

from __future__ import annotations

from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.divided_step import Replicated
from tensortide.parallelism.pipeline import Transfer
from tensortide.parallelism.ranks import Exchanged, Ranks, per_rank
from tensortide.parallelism.tensor import product_flops

__all__ = ["Degrees", "Exchanged", "Ranks", "Replicated", "Transfer", "per_rank", "product_flops"]
