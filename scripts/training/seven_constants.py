"""The closed form with seven constants that published work compares with: a transformer on A100s, eight to a node.

Full recomputation, vocabulary 51200, everything else as written in ``step_seconds``. It is the baseline of
``benchmarks/scale_accuracy.py``; ``parallelism/closed/formula.py`` is the model to use.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensortide.graph.collectives import COLLECTIVES
from tensortide.parallelism.closed.columns import Columns, Floats
from tensortide.parallelism.closed.transformer import Transformer

PEAK, NODE, LINK, NIC, MEMORY = 312e12, 8, 300e9, 25e9, 1.5e12
"""FLOP/s, devices of a node, and bytes per second: of NVLink and a NIC in one direction, and of the optimizer."""
VOCABULARY = 51200.0


class Seven(NamedTuple):
    """Constants: ``efficiency`` of products and ``saturation``, in 1e6 elements of an activation on a rank; ``layer_s``
    of a layer whatever its size; shares of the rates ``within`` a node and ``between`` nodes; ``hop_s`` of an
    all-reduce, for each doubling of ranks; ``exposed`` share of the gradients' all-reduce."""

    efficiency: float = 0.6
    saturation: float = 0.3
    layer_s: float = 2e-4
    within: float = 0.6
    between: float = 0.8
    hop_s: float = 2e-5
    exposed: float = 0.7


START = Seven()
LOW = Seven(0.2, 0.001, 1e-6, 0.1, 0.1, 1e-7, 0.1)
HIGH = Seven(0.95, 20.0, 5e-3, 1.0, 1.5, 5e-4, 1.5)
RECOMPUTED = 1.0


def step_seconds(constants: Seven, steps: Columns) -> Floats:
    """Seconds of each step: ``(m + p - 1) (stage + transfer) + m head + exposed gradients + optimizer``."""
    one, r = constants, RECOMPUTED
    b, s, h, t, d, p = steps.micro_batch, steps.seq, steps.hidden, steps.tensor, steps.data, steps.pipeline
    own, m = steps.layers / p, steps.micro_batches
    flops = 24 * b * s * h * h * (1 + s / (6 * h)) / t
    efficiency = one.efficiency / (1 + one.saturation * 1e6 / (b * s * h / t))
    layer = flops * (3 + r) / (PEAK * efficiency) + one.layer_s * (3 + r) / 3
    rate = np.where(t <= NODE, one.within * LINK, one.between * NIC * NODE / (t / NODE))
    all_reduce = COLLECTIVES["all_reduce"].phi(t) * 2 * b * s * h / rate + one.hop_s * np.log2(t)
    stage = own * (layer + 2 * (2 + r) * all_reduce)
    link = one.between * NIC * np.where(t * p <= NODE, 12.0, 1.0)
    transfer = np.where(p > 1, 2 * 2 * b * s * h / link, 0.0)
    head = 6 * b * s * h * VOCABULARY / t / (PEAK * one.efficiency)
    parameters = (12 * h * h * own + VOCABULARY * h / p) / t
    ring = np.where(d * t <= NODE, one.within * LINK, one.between * NIC)
    gradients = COLLECTIVES["all_reduce"].phi(d) * 2 * parameters / ring
    found: Floats = (m + p - 1) * (stage + transfer) + m * head + one.exposed * gradients + 16 * parameters / MEMORY
    return found


def published_flops(shape: Transformer, samples: int) -> float:
    """FLOPs as the tables of 2021 count them, full recomputation included: 96 G s L h**2 (1 + s/6h + V/16Lh)
    (Narayanan et al., arXiv 2104.04473, equation 3)."""
    h, s, layers = shape.hidden, shape.seq, shape.layers
    return 96 * samples * s * layers * h * h * (1 + s / (6 * h) + shape.vocab / (16 * layers * h))
