"""Modules of a step in shards, in the Graph of the whole: slices, concatenations and sums are its ops."""

from __future__ import annotations

from tensortide.parallelism.shards.regions import Along, Shard
from tensortide.parallelism.shards.sharded import Piece, Sharded, ShardedModule, WholeOp, sharded

__all__ = ["Along", "Piece", "Shard", "Sharded", "ShardedModule", "WholeOp", "sharded"]
