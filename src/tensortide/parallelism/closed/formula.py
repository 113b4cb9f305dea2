"""The closed form of a step of a transformer on a cluster: its time in parts.

    time = m (stage + 2 v transfer) + bubble other + 2 (p - 1) transfer + m head + exposed exchange + optimizer + rest

``stage`` is layers of the slowest rank times the time of a layer: compute and tensor collectives, or the host, the
longer of both (smoothly); ``other`` the mean of the other ranks, which is as long where layers divide evenly; the head
counts with the rank that has it; ``bubble`` that of the schedule: (p - 1) / v. Sources: schedules and scatter-gather of
transfers, Narayanan et al. (arXiv 2104.04473); tensor and sequence parallelism, Korthikanti et al. (2205.05198);
sharded states, Rajbhandari et al. (1910.02054); ring attention, Liu et al. (2310.01889); the backward pass of fused
attention, which computes the scores again, Dao (2307.08691).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.graph.collectives import COLLECTIVES
from tensortide.parallelism.closed.columns import Columns, Floats
from tensortide.parallelism.closed.configuration import HALF, LOSS_BYTES
from tensortide.parallelism.closed.constants import StepConstants
from tensortide.timing.collectives.constants import CONTENTION

NS = 1e9
OPTIMIZER_BYTES = 28
"""Adam in mixed precision, for each parameter: gradient, master weight and two moments read, the latter three and the
weight written; in 32 bits as many."""
CAST_BYTES = 64
"""Of an 8-bit layer, for each element of the activation: inputs of four products (7 hidden wide), and their gradients
(9), are read in 2 bytes and written in 1, twice: as they are and transposed."""
UNDIVIDED = 0.4
"""Share of pointwise bytes of a layer that a tensor group does not divide, unless along the sequence: normalizations,
dropout and residuals, 22 of 52 bytes an element."""
MEMORY_SHARE = 0.8
FUSED_BACKWARD = 2.5
"""Products of the backward pass of fused attention over those of the forward pass: the scores again, and four."""
COMPILED_LAUNCHES = 0.3
"""Launches of a compiled layer over those of an eager one, whose pointwise ops are fused. Assumed."""
COMPILED_LOGITS = 12
"""Bytes that a compiled head moves for each logit: written, read for maximum and sum, read and its gradient written."""
ALIGNED = 16
"""Bytes that tensor cores read at a time."""
REFERENCE_BALANCE = 312e12 / 2039e9
"""FLOP per byte of the A100 that the constants are fitted on: a device that computes more in the time of a byte needs
products larger by as much."""
HOP_NS = 14_000
"""A hop between nodes (``timing.collectives.nodes.NIC_LATENCY_NS``)."""


class Parts(NamedTuple):
    """Nanoseconds of each step by what takes them; they add up to its time.

    ``compute`` of the layers of the slowest pipeline rank for all micro-batches, ``tensor`` collectives, ``host``:
    what the host adds to both; ``context`` and ``expert`` exchanges; ``bubble`` of the schedule; ``transfer`` between
    stages; ``head``; ``data``: exposed exchange of gradients and parameters, among stages too; ``optimizer``;
    ``rest``; ``straggler``.
    """

    compute: Floats
    tensor: Floats
    host: Floats
    context: Floats
    expert: Floats
    bubble: Floats
    transfer: Floats
    head: Floats
    data: Floats
    optimizer: Floats
    rest: Floats
    straggler: Floats

    @property
    def total(self) -> Floats:
        """Nanoseconds of each step."""
        return np.sum(self, axis=0)  # type: ignore[no-any-return]  # of a stack of columns


def parts(one: StepConstants, steps: Columns) -> Parts:
    """The time of each step in parts."""
    m, p, v = steps.micro_batches, steps.pipeline, steps.chunks
    layer = _layer(one, steps)
    whole = _launched_ns(one, steps, layer.busy)
    host = whole - layer.busy
    transfer = transfer_ns(one, steps)
    data = _exchange_ns(one, steps, whole) + between_ns(one, steps)
    head = head_ns(one, steps)
    slowest_is_last = steps.last_layers * whole + head >= steps.most_layers * whole
    own = np.where(slowest_is_last, steps.last_layers, steps.most_layers)
    filled = (steps.layers - own) * whole + np.where(slowest_is_last, 0.0, head)
    made = Parts(
        compute=m * own * layer.compute,
        tensor=m * own * layer.tensor,
        host=m * own * host,
        context=m * own * layer.context,
        expert=m * own * layer.expert,
        bubble=steps.bubble * filled / np.maximum(1, p - 1),
        transfer=2 * (m * v + p - 1) * transfer,
        head=m * np.where(slowest_is_last, head, 0.0),
        data=data,
        optimizer=_optimizer_ns(one, steps),
        rest=np.full_like(m, one.step_ns),
        straggler=np.zeros_like(m),
    )
    ranks = steps.data * steps.tensor * p * steps.context
    return made._replace(straggler=made.total * slowest_share(one.straggler, ranks))


def slowest_share(deviation: float, ranks: Floats) -> Floats:
    """Expected delay of the slowest of ``ranks`` whose times have this relative ``deviation``: the leading term of the
    maximum of as many normal variables."""
    found: Floats = deviation * np.sqrt(2 * np.log(ranks))
    return found


def stage_ns(one: StepConstants, steps: Columns) -> tuple[Floats, Floats]:
    """Forward and backward (with recomputation) of the layers of the fullest rank for one micro-batch, without host."""
    whole = _layer(one, steps).busy
    forward = whole / (3 + steps.full)
    return steps.most_layers * forward, steps.most_layers * (whole - forward)


class _Layer(NamedTuple):
    """Nanoseconds of a layer and micro-batch, forward, backward and recomputation."""

    compute: Floats
    tensor: Floats
    context: Floats
    expert: Floats

    @property
    def busy(self) -> Floats:
        return self.compute + self.tensor + self.context + self.expert


def layer_ns(one: StepConstants, steps: Columns) -> Floats:
    """Nanoseconds of a layer and micro-batch in both passes: of the device, or of the host that launches them."""
    return _launched_ns(one, steps, _layer(one, steps).busy)


def _launched_ns(one: StepConstants, steps: Columns, busy: Floats) -> Floats:
    launches = (one.host_ns + one.host_rank_ns * (steps.tensor - 1)) * (3 + steps.full) * (1 - steps.launch_graph)
    launches = launches * np.where(steps.compiled > 0, COMPILED_LAUNCHES, 1.0)
    found: Floats = np.hypot(busy, steps.factor * launches)
    return found


def _layer(one: StepConstants, steps: Columns) -> _Layer:
    h, t, c = steps.hidden, steps.tensor, steps.context
    tokens = steps.micro_batch * steps.seq / c
    balance = steps.wide_peak / steps.memory / REFERENCE_BALANCE
    wide = steps.element / HALF
    slow = (1 + balance * one.tokens / tokens) * (1 + balance * one.width * t / h)
    products = 2 * tokens * steps.met / t / (steps.peak * one.compute * steps.sustained) * slow
    scored = tokens * steps.seq / t
    scored_flops = 4 * scored * h * (1 - 0.5 * steps.causal)
    unfused = scored_flops / (steps.wide_peak * one.compute * steps.wide_sustained)
    fused = scored_flops / steps.wide_peak
    scores = np.where(steps.fused > 0, fused / steps.score_forward, unfused)
    scores_backward = np.where(steps.fused > 0, FUSED_BACKWARD * fused / steps.score_backward, 2 * unfused)
    moved = one.scores * wide * scored * steps.heads * (1 - steps.fused) / steps.memory
    undivided = UNDIVIDED / np.where(steps.sequence > 0, t, 1)
    shares = undivided + (1 - UNDIVIDED) / t
    pointwise = _pointwise_bytes(one, steps) * wide * tokens * h * shares / steps.memory
    forward = products + scores + moved + pointwise
    by_ops = pointwise + products * steps.again / steps.met
    again = steps.full * forward + steps.selective * (scores + moved) + steps.ops * by_ops
    cast = CAST_BYTES * (steps.peak > steps.wide_peak) * tokens * h / t / steps.memory
    backward = 2 * (products + moved + pointwise) + scores_backward
    compute = (forward + backward + again + cast) * NS
    found = _Layer(
        compute,
        _tensor_ns(one, steps, tokens, compute),
        _context_ns(one, steps, tokens, (scores + moved) * NS),
        _expert_ns(one, steps, tokens),
    )
    return _Layer(*(steps.factor * each for each in found))


def _pointwise_bytes(one: StepConstants, steps: Columns) -> Floats:
    """Bytes that the forward pass of pointwise ops moves for each element of the activation. Compiled, what products
    and attention leave is read once and what they take is written once: two normalizations with the residual before
    them (3 reads and writes of 2 bytes each, and a residual), rotated queries and keys, and the feed-forward layer's
    activation."""
    width = (steps.met - steps.attention) / np.where(steps.gated > 0, 3, 2) / steps.hidden**2
    fused = 2 * (2 * 4 + 2 * (1 + steps.kv_share) + (2 + steps.gated) * width)
    return np.where(steps.compiled > 0, np.minimum(fused, one.pointwise), one.pointwise)


def _tensor_ns(one: StepConstants, steps: Columns, tokens: Floats, compute: Floats) -> Floats:
    """Two all-reduces of the activation forward and backward, and those that are recomputed; overlapped with products
    in as many chunks as there are ranks, one chunk is exposed, and what outlasts the products."""
    t, node = steps.tensor, steps.node
    rate = np.where(t <= node, one.link * steps.link, one.nic * steps.nic * node)
    wire = COLLECTIVES["all_reduce"].phi(t) * steps.element * tokens * steps.hidden / rate * NS
    count = 2 * (2 + steps.full)
    all_reduce = np.where(t > 1, count * (one.latency_ns + one.rank_ns * (t - 1) + wire), 0.0)
    hidden = np.minimum(all_reduce * (1 - 1 / t), compute)
    exposed: Floats = all_reduce - steps.overlap_tensor * (1 - CONTENTION) * hidden
    return exposed


def _context_ns(one: StepConstants, steps: Columns, tokens: Floats, attention: Floats) -> Floats:
    """A ring of keys and values: c - 1 steps forward, twice that backward; overlapped, each beside the attention of a
    part."""
    c = steps.context
    across = steps.tensor * c > steps.node
    rate = np.where(across, one.nic * steps.nic, one.link * steps.link)
    block = 2 * steps.element * tokens * steps.hidden * steps.kv_share / steps.tensor / rate * NS + one.latency_ns
    beside = steps.overlap_data * attention / c
    turns = (1 + steps.full) * np.maximum(0, block - beside) + np.maximum(0, 2 * block - 2 * beside)
    found: Floats = (c - 1) * turns
    return found


def _expert_ns(one: StepConstants, steps: Columns, tokens: Floats) -> Floats:
    """Two all-to-alls forward and two backward, of the tokens of a rank times the experts each is sent to; balanced."""
    x = steps.expert
    across = steps.tensor * steps.context * x > steps.node
    rate = np.where(across, one.nic * steps.nic, one.link * steps.link)
    sent = COLLECTIVES["all_to_all"].phi(x) * steps.element * tokens * steps.hidden * steps.routed
    wire = sent / np.where(steps.sequence > 0, steps.tensor, 1)
    turns = 2 * (2 + steps.full)
    return np.where((x > 1) & (steps.routed > 0), turns * (wire / rate * NS + one.latency_ns), 0.0)


def transfer_ns(one: StepConstants, steps: Columns) -> Floats:
    """One transfer between stages: each tensor rank sends its part of the activation."""
    across = steps.tensor * steps.context * steps.data * steps.pipeline > steps.node
    rate = np.where(across, one.nic * steps.nic, one.transfer_link * steps.link)
    nbytes = steps.element * steps.micro_batch * steps.seq / steps.context * steps.hidden / steps.tensor
    moving = one.transfer_ns + nbytes / np.where(rate > 0, rate, np.inf) * NS
    return np.where(steps.pipeline > 1, (1 - steps.overlap_pipeline) * moving, 0.0)


def head_ns(one: StepConstants, steps: Columns) -> Floats:
    """Products of head and loss of a micro-batch on the last stage, forward and backward, and the bytes of its logits,
    or the host that launches them."""
    width = steps.vocab / steps.tensor
    logits = steps.micro_batch * steps.seq / steps.context * width
    slow = np.where(width * steps.element % ALIGNED > 0, one.unaligned, 1.0)
    products = 6 * logits * steps.hidden * slow / (steps.wide_peak * one.compute * steps.wide_sustained)
    each = np.where(steps.compiled > 0, COMPILED_LOGITS, one.logits) * np.maximum(1, steps.element / LOSS_BYTES)
    busy = (products + each * logits / (MEMORY_SHARE * steps.memory)) * NS
    found: Floats = np.hypot(busy, one.head_ns * (1 - steps.launch_graph))
    return found


def rank_parameters(steps: Columns) -> Floats:
    """Parameters of the rank that has most: its layers, with the word embedding in the first stage and the last."""
    layer = steps.attention + steps.feedforward / steps.expert
    table = steps.vocab * steps.hidden
    ends = layer * np.maximum(steps.first_layers, steps.last_layers) + table
    ends = ends + np.where(steps.pipeline > 1, 0.0, steps.untied * table)  # of a pipeline, one at either end
    found: Floats = np.maximum(layer * steps.most_layers, ends) / steps.tensor
    return found


def _exchange_ns(one: StepConstants, steps: Columns, layer: Floats) -> Floats:
    """Exposed exchange of gradients, and of parameters that are sharded.

    Groups of the same node share its NICs. Overlapped, what is exposed is the part of a last layer, and what outlasts
    the forward and backward passes of a micro-batch. ZeRO 2 and 3 scatter the gradients of every micro-batch, so that
    they stay sharded; ZeRO 3 gathers the parameters for both passes of every micro-batch, and does either layer by
    layer. A ring takes as many turns as it has ranks, less one; all-reduces between nodes are trees. Ranks that shard
    in groups average the parts of gradients over the groups as well, once (Zhang et al., "MiCS", 2205.00119).
    """
    d = steps.data * steps.context
    g = np.where(steps.zero > 0, steps.shards, d)
    span = steps.tensor * g
    groups = np.minimum(steps.tensor, steps.node)
    across = np.minimum(one.nic * steps.nic * steps.node / groups, one.link * steps.link)
    rate = np.where(span <= steps.node, one.link * steps.link, across)
    own = steps.most_layers
    gathered = np.where(steps.zero > 2, 2 * steps.micro_batches, np.where(steps.zero > 0, 1.0, 0.0))
    scattered = np.where(steps.zero > 1, steps.micro_batches, 1.0)
    passes = np.where(steps.zero > 0, steps.gradient * scattered + steps.element * gathered, 2 * steps.gradient)
    nodes = np.maximum(1, span / np.maximum(steps.node, steps.tensor))
    rings = (scattered + gathered) * np.where(steps.zero > 2, own, 1)
    ring = HOP_NS * (nodes - 1) + one.rank_ns * np.maximum(0, g - nodes)
    copies = np.maximum(1, steps.tensor * d / np.maximum(steps.node, span))
    latency = np.where(steps.zero > 0, rings * ring, 2 * HOP_NS * np.log2(nodes)) + 2 * HOP_NS * np.log2(copies)
    wire = (g - 1) / g * passes * rank_parameters(steps) / np.where(rate > 0, rate, np.inf) * NS
    wire = wire + _across_groups(one, steps, g, 2 * (1 - g / d) * steps.gradient)
    whole = np.where(steps.zero > 2, 1.0, one.gradients) * wire + latency
    window = own * layer * np.where(steps.zero > 1, steps.micro_batches, 1)
    hidden = steps.overlap_data * (1 - CONTENTION) * np.minimum(whole * (1 - 1 / own), window)
    return np.where(d > 1, whole - hidden, 0.0)


def _across_groups(one: StepConstants, steps: Columns, shards: Floats, passes: Floats) -> Floats:
    """``passes`` bytes of each parameter of a part, among the ranks that have the same of ``shards`` parts: as many
    rings share the NICs of a node."""
    rings = np.minimum(steps.tensor * shards, steps.node)
    within = steps.tensor * steps.data * steps.context <= steps.node
    link = one.link * steps.link
    rate = np.where(within, link, np.minimum(one.nic * steps.nic * steps.node / rings, link))
    return passes * rank_parameters(steps) / shards / np.where(rate > 0, rate, np.inf) * NS


def between_ns(one: StepConstants, steps: Columns) -> Floats:
    """Nanoseconds [steps] of exchanges among the stages of a pipeline before the update, once a step: the gradient of
    the table that the head shares with the embedding, between the first stage and the last, and the norm of all
    gradients, a few bytes."""
    p, inner = steps.pipeline, steps.tensor * steps.data * steps.context
    across = inner * p > steps.node
    rate = np.where(across, one.nic * steps.nic, one.link * steps.link)
    table = steps.vocab * steps.hidden / steps.tensor / np.where(steps.zero > 0, steps.shards, 1.0)
    wire = one.gradients * steps.gradient * table / np.where(rate > 0, rate, np.inf) * NS
    hop = np.where(across, 2 * HOP_NS, one.latency_ns)
    norm = np.where(across, 2 * HOP_NS * np.log2(p), one.latency_ns + one.rank_ns * (p - 1))
    tied = (wire + hop) * (1 - steps.untied)
    return np.where(p > 1, tied + norm, 0.0)


def _optimizer_ns(one: StepConstants, steps: Columns) -> Floats:
    shards = np.where(steps.zero > 0, steps.shards, 1.0)
    moving = OPTIMIZER_BYTES * rank_parameters(steps) / shards / (MEMORY_SHARE * steps.memory) * NS
    found: Floats = moving + one.optimizer_ns * steps.most_layers
    return found
