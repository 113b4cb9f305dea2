"""Stages of a transformer whose layers they do not divide, and elements wider than 16 bits, in the closed form."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tensortide.parallelism.closed import Configuration, Transformer, predict_step, rank_memory
from tensortide.parallelism.closed.columns import Step, columns
from tensortide.parallelism.closed.configuration import layers_of_ranks, layers_of_stages
from tensortide.parallelism.closed.formula import rank_parameters
from tensortide.parallelism.closed.memory import memory_of_ranks
from tensortide.parallelism.pipelines import StageTime, play
from tensortide.studies.scale.predictors import ClosedForm
from tensortide.timing.collectives import nodes_of
from tensortide.timing.estimates import Provenance

LLAMA_405B = Transformer(
    layers=126, hidden=16384, heads=128, kv_heads=8, feedforward=53248, gated=True, seq=8192, vocab=128256
)
ODD = Transformer(layers=13, hidden=1024, heads=16, vocab=32000)
NARROW: dict[str, Any] = {"batch": 64, "data": 1, "tensor": 1, "recompute": "none"}


@pytest.mark.parametrize("layers", [7, 8, 13, 126])
@pytest.mark.parametrize("stages", [1, 2, 3, 7])
def test_stages_have_all_layers_and_differ_by_one_the_outer_ones_less(layers: int, stages: int) -> None:
    found = layers_of_stages(layers, stages)
    assert sum(found) == layers
    assert max(found) - min(found) <= 1
    half = found[: -(-stages // 2)]
    assert half == sorted(half)
    assert found[-1] <= found[0]


def test_llama_405b_is_divided_as_it_was_trained() -> None:
    """The Llama 3 paper: 16 stages of 126 layers, one layer less in the first and in the last than in the others."""
    assert layers_of_stages(126, 16) == [7, *[8] * 14, 7]
    one = Configuration(batch=128, data=8, tensor=8, pipeline=16, zero=1)
    made = predict_step(LLAMA_405B, one, nodes_of("H100-SXM-80GB", devices_per_node=8, nodes=128))
    assert made.layers == (7, *[8] * 14, 7)
    assert max(made.stages_ns) == made.stages_ns[1]


def test_chunks_of_a_rank_add_up() -> None:
    one = Configuration(batch=32, pipeline=4, chunks=3, schedule="interleaved")
    assert layers_of_stages(13, 12) == [1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1]
    assert layers_of_ranks(13, one, 3) == [3, 4, 3, 3]


@pytest.mark.parametrize("pipeline", [2, 4, 5, 6])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_the_time_of_uneven_stages_is_that_of_their_schedule_played(pipeline: int, schedule: Any) -> None:
    """Without transfers and exchanges the passes of the played stages end when those of the closed form do."""
    one = Configuration(**NARROW, pipeline=pipeline, schedule=schedule)
    made = predict_step(ODD, one, nodes_of("A100-SXM-80GB", devices_per_node=pipeline))
    stages = [StageTime(round(ns / 3), round(ns * 2 / 3)) for ns in made.stages_ns]
    played = max(run.end_ns for run in play(schedule, stages, pipeline, one.micro_batches))
    passes = sum(made.parts[name] for name in ("compute", "tensor", "host", "head", "bubble"))
    assert passes == pytest.approx(played, rel=2e-2)


@pytest.mark.parametrize(("layers", "chunks"), [(13, 1), (5, 2), (6, 2), (16, 5)])
def test_the_rank_of_most_parameters_is_that_of_the_memory(layers: int, chunks: int) -> None:
    schedule: Any = "interleaved" if chunks > 1 else "1f1b"
    one, shape = Configuration(**NARROW, pipeline=2, chunks=chunks, schedule=schedule), replace(ODD, layers=layers)
    steps = columns([Step(shape, one, nodes_of("A100-SXM-80GB", devices_per_node=2))])
    assert 2 * rank_parameters(steps)[0] == max(found.weights for found in memory_of_ranks(shape, one))


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 2), ("float32", 4)])
def test_activations_of_a_layer_are_as_wide_as_the_dtype_and_masks_a_byte(dtype: str, width: int) -> None:
    """By hand, of Korthikanti et al.: 16 elements and 2 bytes of masks of the hidden width, 2 and 1 of each score."""
    one = Configuration(batch=8, micro_batch=8, recompute="none", fused_attention=False, dtype=dtype)
    layer = rank_memory(replace(ODD, layers=14), one).activations - rank_memory(ODD, one).activations
    scores = 8 * ODD.seq**2 * ODD.heads
    assert layer == (16 * width + 2) * 8 * ODD.seq * ODD.hidden + (2 * width + 1) * scores


def test_even_stages_are_paced_by_the_last_which_has_the_head() -> None:
    even = predict_step(
        replace(ODD, layers=12), Configuration(**NARROW, pipeline=4), nodes_of("A100-SXM-80GB", devices_per_node=4)
    )
    assert even.parts["head"] > 0
    assert max(even.stages_ns) == even.stages_ns[-1]
    uneven = predict_step(ODD, Configuration(**NARROW, pipeline=6), nodes_of("A100-SXM-80GB", devices_per_node=6))
    assert uneven.layers == (2, 2, 3, 2, 2, 2)
    assert sum(uneven.stages_ns) > sum(even.stages_ns)


def test_each_rank_has_the_states_of_its_layers_and_the_fullest_counts() -> None:
    """By hand: 18 bytes of each weight of a layer, and of the word embedding at both ends."""
    one = Configuration(**NARROW, pipeline=6)
    ranks = memory_of_ranks(ODD, one)
    for rank, (found, layers) in enumerate(zip(ranks, (2, 2, 3, 2, 2, 2), strict=True)):
        ends = ODD.embedding_weights if rank in (0, 5) else 0
        assert found.states == pytest.approx(18 * (layers * ODD.layer_weights + ends))
    flight = [found.activations / layers for found, layers in zip(ranks[:5], (2, 2, 3, 2, 2), strict=True)]
    assert flight == sorted(flight, reverse=True), "a rank keeps as many micro-batches as there are ranks after it"
    assert rank_memory(ODD, one) == max(ranks, key=lambda found: found.total)


def test_each_stage_is_shown_with_its_part_time_and_memory() -> None:
    one = Configuration(**NARROW, pipeline=6)
    made = ClosedForm(ODD).predict(one, nodes_of("A100-SXM-80GB", devices_per_node=6))
    parts = ["2 layers, embedding", "2 layers", "3 layers", "2 layers", "2 layers", "2 layers, head and loss"]
    assert [each.part for each in made.ranks] == parts
    assert max(each.peak_bytes for each in made.ranks) == made.peak_bytes
    assert made.ranks[2].ns == pytest.approx(1.5 * made.ranks[1].ns)


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 2), ("float32", 4), ("tf32", 4), ("float64", 8)])
def test_states_and_activations_have_the_width_of_the_dtype(dtype: str, width: int) -> None:
    """By hand: of 16 bits 2 + 4 + 12 bytes a parameter; wider ones are their own master copies, and their gradients and
    moments are as wide. Full recomputation keeps the input of each layer."""
    one = Configuration(batch=8, micro_batch=8, recompute="full", dtype=dtype)
    found, count = rank_memory(ODD, one), ODD.parameters
    states = (2, 4, 12) if width == 2 else (width, width, 2 * width)
    assert (found.weights, found.gradients, found.optimizer) == pytest.approx([each * count for each in states])
    layer = rank_memory(replace(ODD, layers=14), one).activations - found.activations
    assert layer == width * 8 * ODD.seq * ODD.hidden


def test_communication_has_the_width_of_the_dtype() -> None:
    nodes = nodes_of("A100-SXM-80GB", devices_per_node=8)
    narrow, wide = (
        predict_step(ODD, Configuration(batch=8, micro_batch=8, tensor=8, recompute="none", dtype=dtype), nodes)
        for dtype in ("bfloat16", "tf32")
    )
    assert 1.5 < wide.parts["tensor"] / narrow.parts["tensor"] < 2.0, "twice the bytes beside the same latencies"
    assert (narrow.time.provenance, wide.time.provenance) == (Provenance.INTERPOLATED, Provenance.EXTRAPOLATED), (
        "no step of the fit has 32 bits"
    )
