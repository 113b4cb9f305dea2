"""Bytes of the fullest rank: states of the model, and activations under recomputation and a schedule.

Activations: Korthikanti et al., "Reducing activation recomputation in large transformer models" (arXiv 2205.05198),
equations 1 to 5, with 2-byte activations and 1-byte dropout masks. States: Rajbhandari et al., "ZeRO" (1910.02054),
with gradients accumulated in 4 bytes. Micro-batches in flight: those of the schedule (``pipelines.schedules``).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tensortide.parallelism.closed.configuration import Configuration, with_shared_heads
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.parallelism.pipelines import SCHEDULES

WEIGHT, STATES = 2, 12
"""Bytes of a parameter: 16-bit weight; 32-bit master weight and two moments of Adam."""


class RankMemory(NamedTuple):
    """Bytes of the fullest rank."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def states(self) -> float:
        """Bytes that stay through the step."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All bytes."""
        return self.states + self.activations


def rank_memory(shape: Transformer, one: Configuration) -> RankMemory:
    """The memory of the first rank of the pipeline, which has most activations in flight, and the word embedding."""
    shape = with_shared_heads(shape, one)
    experts = shape.layer_weights - shape.attention_weights
    layer = shape.attention_weights + experts / one.expert
    parameters = (layer * shape.layers / one.pipeline + shape.embedding_weights) / one.tensor
    shards = one.shards
    weights, gradients, optimizer = (
        nbytes * parameters / (shards if one.zero >= stage else 1)
        for nbytes, stage in ((WEIGHT, 3), (one.gradient_bytes, 2), (STATES, 1))
    )
    return RankMemory(weights, gradients, optimizer, activation_bytes(shape, one))


def activation_bytes(shape: Transformer, one: Configuration) -> float:
    """Activations of the layers of the first rank, and, if it is the last too, those of head and loss."""
    own = shape.layers / one.pipeline
    activation = one.micro_batch * shape.seq / one.context * shape.hidden
    held = own * layer_bytes(shape, one) * in_flight(one)
    if one.recompute == "full":  # one layer at a time has all of them again
        held += layer_bytes(shape, without_recompute(one))
    if one.pipeline == 1:
        held += 4 * activation / one.tensor * (1 + shape.vocab / shape.hidden)
    return held


def layer_bytes(shape: Transformer, one: Configuration) -> float:
    """Bytes that a layer keeps of one micro-batch for its backward pass."""
    h, t = shape.hidden, one.tensor
    activation = one.micro_batch * shape.seq / one.context * h
    undivided = t if one.sequence else 1
    if one.recompute == "full":
        return 2 * activation / undivided
    scores = 5 * shape.heads * shape.seq / h
    kept = 0.0 if one.recompute == "selective" or one.fused_attention else scores
    wide = (shape.active if shape.experts else 1) * shape.ffn / h
    projections = 4 + 4 * shape.kv / shape.heads + (8 if shape.gated else 4) * wide
    return activation * (10 / undivided + (projections + kept) / t)


def in_flight(one: Configuration) -> float:
    """Micro-batches whose activations the first rank holds at once."""
    return SCHEDULES[one.schedule].in_flight(0, one.pipeline, one.micro_batches, one.chunks)


def without_recompute(one: Configuration, *, sequence: bool | None = None) -> Configuration:
    """``one`` with all activations kept; ``sequence``: divided along the sequence or not."""
    return replace(one, recompute="none", sequence=one.sequence if sequence is None else sequence)
