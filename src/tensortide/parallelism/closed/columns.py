"""Columns of numbers of many steps, so that one formula serves a fit of a thousand of them and a single prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from tensortide.dtypes import DTYPES, is_float
from tensortide.errors import TensortideError
from tensortide.parallelism.closed.configuration import HALF, Configuration, layers_of_ranks, with_shared_heads
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, SCHEDULES
from tensortide.timing.attention import Shares, speed_of
from tensortide.timing.collectives import Nodes
from tensortide.timing.rates import matrix_tflops
from tensortide.timing.sustained import sustained_products

Floats = NDArray[np.float64]


FITTED_SHARE = 0.869
"""Of the peak, that products of steps reach on the A100s that the constants are fitted on (``sustained.csv``)."""
_SETTINGS = sorted(Configuration.__struct_fields__)
"""In the order in which they name a layer, wherever they are declared."""


class Step(NamedTuple):
    """A transformer, how it is divided, and the nodes that it trains on."""

    shape: Transformer
    configuration: Configuration
    nodes: Nodes


def layer_of(step: Step) -> str:
    """Name what the time of a layer of ``step`` depends on: the device, and each setting that is not usual; not what
    says how many layers there are, and how often they run. Types of 16 bits are as fast as each other."""
    shape = replace(step.shape, layers=1, vocab=1)
    one = replace(
        step.configuration,
        batch=1,
        data=1,
        pipeline=1,
        chunks=1,
        schedule=DEFAULT_SCHEDULE,
        zero=0,
        overlap_data=False,
        overlap_pipeline=False,
        gradient_bytes=4,
        dtype="float16" if step.configuration.dtype == "bfloat16" else step.configuration.dtype,
    )
    usual = (Transformer(layers=1, hidden=1, heads=1, vocab=1), Configuration(batch=1))
    settings = [
        f"{name}={getattr(given, name)}"
        for given, plain, names in zip((shape, one), usual, (shape.__struct_fields__, _SETTINGS), strict=True)
        for name in names
        if getattr(given, name) != getattr(plain, name)
    ]
    across = one.tensor * one.context > step.nodes.devices_per_node
    return " ".join([step.nodes.device.name, *(["nodes"] if across else []), *settings])


class Columns(NamedTuple):
    """Float arrays with an entry per step. Flags are 0 or 1; rates are per second, of one device and direction.

    ``most_layers`` are those of the fullest pipeline rank, ``first_layers`` and ``last_layers`` those at either end;
    ``micro_batches`` are those of a data rank; ``bubble`` is that of the schedule, in times of a rank for one of them;
    ``attention`` and ``feedforward`` are elements of a layer (all experts), ``met`` those that a token meets,
    ``routed`` the experts that it is sent to; ``kv_share`` key heads over heads; ``shards`` ranks among which ZeRO
    shards; ``full`` and ``selective`` recomputation; ``peak`` of the layers' products and ``wide_peak`` of those that
    take 16 bits at least; ``node`` devices of a node; ``element`` bytes of an element of weights and activations, and
    ``gradient`` of one of a gradient as it is exchanged; ``factor`` of the time of a layer, 1 where it is not known
    better; ``sustained`` and ``wide_sustained``: shares of both peaks that products of steps reach, over that of the
    device that the constants are fitted on; ``score_forward`` and ``score_backward``: of the wide peak, that fused
    attention does; ``again`` elements of a layer whose products ``ops`` computes again.
    """

    layers: Floats
    most_layers: Floats
    first_layers: Floats
    last_layers: Floats
    hidden: Floats
    heads: Floats
    seq: Floats
    vocab: Floats
    attention: Floats
    feedforward: Floats
    met: Floats
    kv_share: Floats
    routed: Floats
    micro_batch: Floats
    micro_batches: Floats
    data: Floats
    tensor: Floats
    pipeline: Floats
    context: Floats
    expert: Floats
    chunks: Floats
    bubble: Floats
    zero: Floats
    shards: Floats
    full: Floats
    selective: Floats
    ops: Floats
    again: Floats
    sequence: Floats
    fused: Floats
    causal: Floats
    overlap_data: Floats
    overlap_tensor: Floats
    overlap_pipeline: Floats
    launch_graph: Floats
    compiled: Floats
    gated: Floats
    untied: Floats
    peak: Floats
    wide_peak: Floats
    memory: Floats
    link: Floats
    nic: Floats
    node: Floats
    element: Floats
    gradient: Floats
    factor: Floats
    sustained: Floats
    wide_sustained: Floats
    score_forward: Floats
    score_backward: Floats

    def where(self, mark: NDArray[np.bool_] | NDArray[np.int64]) -> Columns:
        """The steps that ``mark`` selects."""
        return Columns(*(column[mark] for column in self))


def columns(steps: Sequence[Step]) -> Columns:
    """The columns of ``steps``. Raises TensortideError for a rate that the catalogue does not have."""
    return Columns(*np.array([_row(*step) for step in steps], float).T)


def _row(shape: Transformer, one: Configuration, nodes: Nodes) -> tuple[float, ...]:
    device, shape = nodes.device, with_shared_heads(shape, one)
    peak = _peak(nodes, one.dtype)
    wide_peak = peak if one.element_bytes > HALF else _peak(nodes, "bfloat16")
    own = layers_of_ranks(shape.layers, one, one.chunks)
    routed = shape.active if shape.experts and one.expert > 1 else 0
    inner = one.tensor * one.context  # ranks that communicate most
    link = nodes.joining(range(min(inner if inner > 1 else nodes.size, nodes.devices_per_node)))
    return (
        *(shape.layers, max(own), own[0], own[-1]),
        *(shape.hidden, shape.heads, shape.seq, shape.vocab),
        *(shape.attention_weights, shape.layer_weights - shape.attention_weights, shape.active_weights),
        *(shape.kv / shape.heads, routed),
        *(one.micro_batch, one.micro_batches, one.data, one.tensor, one.pipeline, one.context, one.expert),
        *(one.chunks, SCHEDULES[one.schedule].bubble(one.pipeline, one.chunks), one.zero, one.shards),
        *(one.recompute == "full", one.recompute == "selective", one.recompute == "ops", shape.second_products),
        *(one.sequence, one.fused_attention, one.causal_half),
        *(one.overlap_data, one.overlap_tensor, one.overlap_pipeline, one.launch_graph),
        *(one.compiled, shape.gated, shape.untied),
        *(peak, wide_peak, device.memory_gbytes_per_s * 1e9, float(link.bytes_per_s)),
        float(nodes.nic.bytes_per_s) * nodes.nics / nodes.devices_per_node if nodes.nic else 0.0,
        *(nodes.devices_per_node, one.element_bytes, max(one.element_bytes, one.gradient_bytes), 1.0),
        *(_sustained(nodes, one.dtype), _sustained(nodes, one.dtype if one.element_bytes > HALF else "bfloat16")),
        *_scores(shape, one, nodes),
    )


def _sustained(nodes: Nodes, dtype: str) -> float:
    """The share of the peak that products of steps reach, over that on the device of the fit; 1 where unknown."""
    found = sustained_products(nodes.device, dtype)
    return found.steps / FITTED_SHARE if found is not None else 1.0


def _scores(shape: Transformer, one: Configuration, nodes: Nodes) -> Shares:
    """Shares of the wide peak that the kernel of fused attention reaches."""
    return speed_of(nodes.device, one.kernel).shares(shape.seq, shape.hidden / shape.heads)


def _peak(nodes: Nodes, dtype: str) -> float:
    found = matrix_tflops(nodes.device, dtype)
    if found is None:
        name = nodes.device.name
        if dtype not in DTYPES:
            raise TensortideError(f"no dtype is called {dtype!r}")
        known = ", ".join(each for each in DTYPES if is_float(each) and matrix_tflops(nodes.device, each) is not None)
        raise TensortideError(
            f"the catalogue has no rate of {dtype} products of {name}: it may lack units for them. It has those of "
            f"{known or 'no dtype'}"
        )
    return found * 1e12
