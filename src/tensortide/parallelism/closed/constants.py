"""Constants of the closed form, each with a meaning and a prior; the shipped ones, and the residuals they leave."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from tensortide.timing.intervals import WIDE, Pool, Quantiles


class StepConstants(msgspec.Struct, frozen=True):
    """Constants of a training step on a cluster.

    Args:
        compute: share of the peak that large products reach.
        tokens: tokens of a micro-batch at which products take twice as long as their FLOPs.
        width: columns of a rank at which they do.
        pointwise: bytes that pointwise ops of a layer move for each element of the activation, forward.
        scores: bytes that unfused attention moves for each score, forward.
        host_ns: time of the host to launch the forward pass of a layer.
        host_rank_ns: what each further rank of a tensor group adds to it.
        head_ns: time of the host to launch embedding, head and loss of a micro-batch, both passes.
        logits: bytes that head and loss move for each logit: written in 2 bytes, cast to 4, read for maximum, sum and
            loss, its gradient written and read.
        unaligned: time of 16-bit products whose width is no multiple of 8 elements over that of others: tensor cores
            read 16 bytes at a time.
        link: share of the rate between devices of a node that all-reduces reach.
        nic: share of a NIC's rate.
        latency_ns, rank_ns: launch of a collective of a tensor group, and what each further rank adds.
        transfer_ns: latency of a transfer between stages.
        transfer_link: share of the rate between devices of a node that such transfers reach.
        gradients: exchange of gradients over its time at those rates.
        optimizer_ns: time of the optimizer for each layer, whatever its size.
        step_ns: time of a step whatever it does.
        straggler: standard deviation of the time of a rank; the slowest of all sets the time of the step. Assumed.
    """

    compute: float = 0.75
    tokens: float = 300.0
    width: float = 100.0
    pointwise: float = 60.0
    scores: float = 12.0
    host_ns: float = 8e5
    host_rank_ns: float = 1e5
    head_ns: float = 2e6
    logits: float = 24.0
    unaligned: float = 3.5
    link: float = 0.75
    nic: float = 0.72
    latency_ns: float = 1.5e4
    rank_ns: float = 3e3
    transfer_ns: float = 5e4
    transfer_link: float = 0.3
    gradients: float = 0.8
    optimizer_ns: float = 2e5
    step_ns: float = 2e6
    straggler: float = 0.005


FUSED = Pool(Quantiles(0.08, 0.22, 93))
"""Residuals of steps with fused attention on generations where its speed is known, each stack of launches counting
alike: torchtitan, fms, Megatron, and llm-foundry on A100-40s, none of which is in the fit of that speed."""

PRIOR = StepConstants()
"""Centres of the priors, before anything is measured."""


class Shipped(msgspec.Struct, frozen=True):
    """Data that come with the package.

    Args:
        constants: those of steps on A100s.
        factors: measured over closed form of the layers that many of these steps have, by the names of ``layer_of``.
        pools: residuals of steps that were held out with all that have the same layer, on one ``node`` and on several
            (``nodes``); of steps on one node whose layer was ``known``.
        fitted_on: the steps.
    """

    constants: StepConstants
    factors: Mapping[str, float]
    pools: Mapping[str, Pool]
    fitted_on: str = ""


class Reference(NamedTuple):
    """The machine that the shipped constants were fitted on."""

    device: str = "A100-SXM-80GB"
    devices: int = 512


@functools.cache
def shipped() -> Shipped:
    """The constants that come with the package."""
    source = importlib.resources.files("tensortide.parallelism.closed").joinpath("shipped.json")
    return msgspec.json.decode(source.read_bytes(), type=Shipped)


def pool_of(nodes: int, *, known: bool) -> Pool:
    """The residuals of steps on a node, whose layer is ``known`` or not, or on several."""
    return shipped().pools.get("nodes" if nodes > 1 else "known" if known else "node", WIDE)
