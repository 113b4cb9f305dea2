"""Bytes of the fullest rank: states of the model, and activations under recomputation and a schedule.

Activations: Korthikanti et al., "Reducing activation recomputation in large transformer models" (arXiv 2205.05198),
equations 1 to 5, with activations of the dtype and 1-byte dropout masks. States: Rajbhandari et al., "ZeRO"
(1910.02054), with gradients accumulated in 4 bytes. Micro-batches in flight: those of the schedule
(``pipelines.schedules``).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from tensortide.parallelism.closed.configuration import (
    HALF,
    LOSS_BYTES,
    Configuration,
    layers_of_ranks,
    with_shared_heads,
)
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.parallelism.pipelines import SCHEDULES

MOMENT_BYTES = 8
"""Of a parameter: two moments of Adam in 32 bits."""
MASK_BYTES = 1
"""Of an element of a dropout mask."""


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
    """The memory of the fullest rank of the pipeline."""
    return max(memory_of_ranks(shape, one), key=lambda found: found.total)


def memory_of_ranks(shape: Transformer, one: Configuration) -> list[RankMemory]:
    """The memory of each rank of the pipeline. The first and the last have the word embedding."""
    shape = with_shared_heads(shape, one)
    experts = shape.layer_weights - shape.attention_weights
    layer = shape.attention_weights + experts / one.expert
    states = state_bytes(one)
    found = []
    for rank, own in enumerate(layers_of_ranks(shape.layers, one, one.chunks)):
        ends = shape.embedding_weights if rank in (0, one.pipeline - 1) else 0
        ends += shape.head_weights if one.pipeline == 1 else 0  # of a pipeline, the table of the last rank is the head
        parameters = (layer * own + ends) / one.tensor
        weights, gradients, optimizer = (nbytes * parameters for nbytes in states)
        found.append(RankMemory(weights, gradients, optimizer, activation_bytes(shape, one, rank, own)))
    return found


def state_bytes(one: Configuration) -> tuple[float, float, float]:
    """Bytes of a parameter's weight, gradient and optimizer state on a rank. Weights of 16 bits have a master copy of
    32 beside the moments of Adam; wider ones are their own, with moments as wide."""
    width = one.element_bytes
    optimizer = MOMENT_BYTES + 4 if width == HALF else 2 * width
    each = (width, 3), (max(width, one.gradient_bytes), 2), (optimizer, 1)
    weight, gradient, state = (nbytes / (one.shards if one.zero >= stage else 1) for nbytes, stage in each)
    return weight, gradient, state


def activation_bytes(shape: Transformer, one: Configuration, rank: int = 0, own: float | None = None) -> float:
    """Activations of the ``own`` layers of a pipeline rank, and, if it is the last one, those of head and loss."""
    own = layers_of_ranks(shape.layers, one, one.chunks)[rank] if own is None else own
    activation = one.micro_batch * shape.seq / one.context * shape.hidden
    held = own * layer_bytes(shape, one) * in_flight(one, rank)
    if one.recompute in ("full", "ops"):  # one layer at a time has all of them again
        held += layer_bytes(shape, without_recompute(one))
    if rank == one.pipeline - 1:
        width = one.element_bytes
        held += activation / one.tensor * (2 * width + max(LOSS_BYTES, width) * shape.vocab / shape.hidden)
    return held


def layer_bytes(shape: Transformer, one: Configuration) -> float:
    """Bytes that a layer keeps of one micro-batch for its backward pass."""
    h, t = shape.hidden, one.tensor
    activation = one.micro_batch * shape.seq / one.context * h
    undivided = t if one.sequence else 1
    e = one.element_bytes
    wide = (shape.active if shape.experts else 1) * shape.ffn / h
    kv = shape.kv / shape.heads
    if one.recompute == "full":
        return e * activation / undivided
    if one.recompute == "ops":  # its input; queries, values, the wide product, attention; of three products the last
        return e * activation * ((1 + shape.gated) / undivided + (2 + kv + wide) / t)
    scores = (2 * e + MASK_BYTES) * shape.heads * shape.seq / h
    kept = 0.0 if one.recompute == "selective" or one.fused_attention else scores
    projections = e * (2 + 2 * kv + (4 if shape.gated else 2) * wide)
    return activation * ((4 * e + 2 * MASK_BYTES) / undivided + (projections + kept) / t)


def in_flight(one: Configuration, rank: int = 0) -> float:
    """Micro-batches whose activations a rank holds at once."""
    return SCHEDULES[one.schedule].in_flight(rank, one.pipeline, one.micro_batches, one.chunks)


def without_recompute(one: Configuration, *, sequence: bool | None = None) -> Configuration:
    """``one`` with all activations kept; ``sequence``: divided along the sequence or not."""
    return replace(one, recompute="none", sequence=one.sequence if sequence is None else sequence)
