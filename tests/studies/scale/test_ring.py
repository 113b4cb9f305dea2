"""Keys and values that travel in a ring, beside attention to the part that has come before."""

from __future__ import annotations

import functools

import pytest
from msgspec.structs import replace

import tensortide
from tensortide.graph import Graph
from tensortide.graph.communication import group_of
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed import Transformer, predict_step
from tensortide.parallelism.degrees import KeysBy
from tensortide.recorder import resolver
from tensortide.studies.scale import Captured
from tensortide.studies.scale.ring import beside_attention
from tensortide.timing import device
from tensortide.timing.collectives import Nodes, predict_collective
from tensortide.timing.collectives.constants import CONTENTION
from tensortide.timing.estimates import Estimate, Provenance
from tests.studies.scale.test_captured import A100, graph, node, plain, step

LAYERS, CONTEXT = 2, 4


@functools.cache
def rank() -> Graph:
    sizes = {"layers": LAYERS, "hidden": 32, "heads": 4, "vocab": 64, "seq": 16, "batch": 2, "positions": 16}
    return per_rank(tensortide.capture("gpt2", hyperparameters=sizes, real=False), Degrees(context=CONTEXT)).graph


def collectives(ns: float) -> dict[int, Estimate]:
    """All collectives of the context group, each of so many ns."""
    time = Estimate.of(ns, 0.1, 0.1, Provenance.INTERPOLATED, "collective")
    return {op.index: time for op in rank() if group_of(op) == "context"}


def kernels(ns: float) -> list[float]:
    return [ns if "attention" in op.name else 1.0 for op in rank()]


@pytest.mark.parametrize(("gather", "kernel"), [(30.0, 400.0), (300.0, 400.0), (3000.0, 400.0)])
def test_what_outlasts_the_kernel_is_exposed_step_by_step(gather: float, kernel: float) -> None:
    """By hand: c - 1 steps, each of a (c - 1)th of the exchange beside a c-th of the kernel. Forward one gather;
    backward a gather and a scatter of gradients."""
    found = beside_attention(rank(), collectives(gather), kernels(kernel), CONTEXT)
    assert len(found) == 3 * LAYERS

    def exposed(whole: float) -> float:
        steps = [max(0.0, whole / (CONTEXT - 1) - kernel / CONTEXT) for _ in range(CONTEXT - 1)]
        return sum(steps) + CONTENTION * (whole - sum(steps))

    by_hand = LAYERS * (exposed(gather) + exposed(2 * gather))
    assert sum(time.time_ns for time in found.values()) == pytest.approx(by_hand)


def test_other_collectives_of_the_group_stay_as_they_are() -> None:
    times = collectives(30.0)
    found = beside_attention(rank(), times, kernels(400.0), CONTEXT)
    losses = times.keys() - found.keys()
    assert {rank()[index].name for index in losses} == {"c10d.allreduce_.default"}


def test_a_captured_step_exposes_less_where_communication_overlaps() -> None:
    apart = step().predict(plain(context=2), node(2))
    ring = step().predict(replace(plain(context=2), overlap_data=True), node(2))
    assert 0 < ring.parts["context"] < apart.parts["context"]
    assert ring.time.time_ns <= apart.time.time_ns
    assert sum(ring.parts.values()) == pytest.approx(ring.time.time_ns)


@pytest.mark.parametrize("keys", ["ring", "zigzag"])
def test_steps_of_a_ring_in_the_graph_take_their_time_or_what_outlasts_a_kernel(keys: KeysBy) -> None:
    """By hand, in each of 4 layers: a rank of 2 receives keys and values in both passes, and their gradients twice."""
    ring = Captured(graph(), device(A100), batch=8, tokens=32, resolver=resolver, keys=keys)
    one, where = plain(context=2), node(2)
    block = 8 * 16 * 64 * 4
    received = 4 * (2 + 2 + 4) * predict_collective("send_recv", block, (0, 1), where).ns
    apart = ring.predict(one, where).parts["context"]
    losses = step().predict(one, where).parts["context"] - gathered(where, block)
    assert apart == pytest.approx(received + losses)
    beside = ring.predict(replace(one, overlap_data=True), where).parts["context"]
    assert 0 < beside < apart
    assert ring.predict(plain(), node(1)).parts == step().predict(plain(), node(1)).parts


def gathered(where: Nodes, block: int) -> float:
    """Time of the gathers and scatters of keys and values, of all layers, without a ring."""
    times = {kind: predict_collective(kind, 4 * block, (0, 1), where).ns for kind in ("all_gather", "reduce_scatter")}
    return 4 * (2 * times["all_gather"] + times["reduce_scatter"])


def test_the_closed_form_does_too() -> None:
    shape = Transformer(layers=8, hidden=4096, heads=32, seq=32768)
    one = replace(plain(context=4, micro_batch=1), batch=4)
    apart, ring = (predict_step(shape, replace(one, overlap_data=overlap), node(4)).parts for overlap in (False, True))
    assert 0 <= ring["context"] < apart["context"]
    assert ring["compute"] == apart["compute"]
