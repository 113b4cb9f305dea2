"""The closed form of a step: what it refuses, what it reduces to, the signs of scaling, published FLOPs and bytes."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scripts.training.seven_constants import published_flops
from scripts.training.step_fits import (
    accuracy,
    fit_steps,
    fitted,
    fitted_seven,
    held_out,
    measured,
    predicted_ns,
    regret,
)
from tensortide.errors import DegreesError, TensortideError
from tensortide.parallelism.closed import Configuration, Transformer, predict_step, rank_memory, shipped, transformer
from tensortide.parallelism.closed.columns import Step
from tensortide.parallelism.closed.configuration import check, objections
from tensortide.parallelism.closed.memory import activation_bytes, in_flight, layer_bytes
from tensortide.timing.collectives import Nodes, nodes_of
from tensortide.timing.estimates import Provenance
from tests.parallelism.tables import measured_of, selective, vtrain
from tests.reference import measured_times

GPT3 = Transformer(layers=96, hidden=12288, heads=96)
SMALL = Transformer(layers=24, hidden=2048, heads=16, seq=1024)
A100 = "A100-SXM-80GB"


def nodes(count: int, device: str = A100) -> Nodes:
    return nodes_of(device, devices_per_node=8, nodes=count)


def one_device() -> Nodes:
    return nodes_of(A100, devices_per_node=1)


# -- transformers -----------------------------------------------------------------------------------


def test_a_transformer_is_read_from_its_settings() -> None:
    assert transformer("layers=96,hidden=12288, heads=96") == GPT3
    assert transformer("layers=2,hidden=8,heads=2,gated=1").gated is True
    assert GPT3.parameters == pytest.approx(174.6e9, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("layers=96,hidden=12288", "heads"),
        ("layers=96,hidden=12288,heads=96,wide=3", "wide=3"),
        ("layers=96,hidden=100,heads=96", "100/96"),
        ("layers=96,layers=96,hidden=8,heads=8", "two values of layers"),
        ("layers=0,hidden=8,heads=8", "layers=0"),
        ("", "no setting"),
    ],
)
def test_what_is_no_transformer_is_named(text: str, part: str) -> None:
    with pytest.raises(TensortideError, match=part):
        transformer(text)


def test_flops_of_the_tables_of_2021_include_recomputation() -> None:
    """arXiv 2104.04473: 145.6B on 1536 GPUs at batch 2304, 148 TFLOP/s each, one iteration in 24.8 s."""
    shape = Transformer(layers=80, hidden=12288, heads=96)
    assert shape.flops(2304, recompute=True) == pytest.approx(published_flops(shape, 2304), rel=1e-12)
    assert published_flops(shape, 2304) / 1536 / 148e12 == pytest.approx(24.817, rel=2e-3)


def test_flops_without_recomputation_are_six_per_parameter_and_token() -> None:
    tokens = 4 * GPT3.seq
    attention = 12 * GPT3.layers * GPT3.hidden * GPT3.seq * tokens
    assert GPT3.flops(4) == 6 * GPT3.parameters * tokens + attention
    assert GPT3.flops(4, causal=True) == 6 * GPT3.parameters * tokens + attention // 2
    head = 6 * tokens * GPT3.vocab * GPT3.hidden
    assert GPT3.flops(4, recompute=True) - GPT3.flops(4) == (GPT3.flops(4) - head) // 3


# -- configurations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "quotient"),
    [
        ({"data": 7, "batch": 512}, r"micro-batches: batch / \(data \* micro-batch\) = 512/7"),
        ({"pipeline": 97}, "96 layers are fewer than pipeline . chunks = 97"),
        ({"pipeline": 32, "chunks": 4, "schedule": "interleaved"}, "fewer than pipeline . chunks = 128"),
        ({"tensor": 9}, "heads of a rank: heads / tensor = 96/9"),
        ({"context": 3}, "tokens of a rank: seq / context = 2048/3"),
        ({"expert": 2, "data": 2}, "expert is 2: the model has no experts"),
        ({"expert": 2}, r"groups of experts: data \* context / expert = 1/2"),
        ({"pipeline": 8, "chunks": 2, "schedule": "interleaved", "batch": 12}, "micro-batches / pipeline = 12/8"),
        ({"chunks": 2}, "2 chunks go with the interleaved schedule"),
        ({"schedule": "interleaved"}, "at least 2 chunks"),
        ({"zero": 4}, "zero is 4"),
        ({"zero": 3, "pipeline": 2}, "ZeRO 3 with a pipeline"),
        ({"data": 0}, "data is 0"),
        ({"recompute": "plan"}, "that of a captured step"),
        ({"data": 2}, r"2 x 1 x 1 x 1 = 2: there are 1 devices"),
    ],
)
def test_a_quotient_that_is_no_whole_number_is_named(changes: dict[str, object], quotient: str) -> None:
    one = replace(Configuration(batch=512), **changes)
    devices = 1 if quotient.endswith("there are 1 devices") else None
    assert any(re.search(quotient, text) for text in objections(one, GPT3, devices))
    with pytest.raises(DegreesError):
        check(one, GPT3, devices)


def test_a_legal_configuration_has_no_objections() -> None:
    one = Configuration(batch=1536, data=8, tensor=8, pipeline=8, chunks=3, schedule="interleaved")
    assert list(objections(one, GPT3, 512)) == []


# -- reductions and signs ---------------------------------------------------------------------------


def test_one_device_and_one_micro_batch_is_the_estimate_of_a_single_device() -> None:
    """Nothing is exchanged, nothing waits: compute, host, head, optimizer and the step's own time are all."""
    found = predict_step(SMALL, Configuration(batch=4, micro_batch=4), one_device()).parts
    several = ("tensor", "context", "expert", "bubble", "transfer", "data", "straggler")
    assert all(found[name] == 0 for name in several)
    alone = sum(found[name] for name in ("compute", "host", "head", "optimizer", "rest"))
    assert predict_step(SMALL, Configuration(batch=4, micro_batch=4), one_device()).time.time_ns == alone


def test_the_bubble_is_p_less_one_over_m_of_the_ideal_and_interleaving_divides_it() -> None:
    one = Configuration(batch=128, tensor=8, pipeline=8)
    found = predict_step(GPT3, one, nodes(8)).parts
    ideal = found["compute"] + found["tensor"] + found["host"]
    assert found["bubble"] == pytest.approx(ideal * 7 / 128)
    twice = predict_step(GPT3, replace(one, chunks=3, schedule="interleaved"), nodes(8)).parts
    assert twice["bubble"] == pytest.approx(found["bubble"] / 3)
    assert twice["transfer"] > 2 * found["transfer"]


def test_more_replicas_at_a_fixed_batch_never_make_device_time_better() -> None:
    spent = [
        predict_step(SMALL, Configuration(batch=1024, data=n), nodes(n // 8)).time.time_ns * n
        for n in (8, 16, 32, 64, 128, 512)
    ]
    assert spent == sorted(spent)


def test_longer_pipelines_at_fixed_micro_batches_have_more_bubble() -> None:
    shares = []
    for pipeline in (2, 4, 8, 16):
        found = predict_step(GPT3, Configuration(batch=64, tensor=8, pipeline=pipeline), nodes(pipeline))
        shares.append(found.parts["bubble"] / found.time.time_ns)
    assert shares == sorted(shares)


def test_tensor_groups_over_nodes_hurt() -> None:
    within = predict_step(GPT3, Configuration(batch=64, tensor=8, data=4), nodes(4)).time.time_ns
    across = predict_step(GPT3, Configuration(batch=64, tensor=16, data=2), nodes(4)).time.time_ns
    assert across > 1.2 * within


def test_states_sharded_over_more_ranks_lose_more_than_three_dimensions() -> None:
    """Narayanan et al. 2021, table 2, 175B at batch 1536: 144, 88, 44 TFLOP/s with ZeRO 3, else 153, 149, 141."""
    rates: dict[str, list[float]] = {"zero": [], "three": []}
    for devices, micro_batch in ((384, 4), (768, 2), (1536, 1)):
        where = nodes(devices // 8)
        sharded = Configuration(batch=1536, data=devices, micro_batch=micro_batch, zero=3)
        three = Configuration(batch=1536, data=devices // 96, tensor=8, pipeline=12)
        for name, one in (("zero", sharded), ("three", three)):
            seconds = predict_step(GPT3, one, where).time.time_ns / 1e9
            rates[name].append(published_flops(GPT3, 1536) / devices / seconds)
    assert rates["zero"] == sorted(rates["zero"], reverse=True)
    assert rates["zero"][0] / rates["zero"][2] > 1.5
    assert 1 < rates["three"][0] / rates["three"][2] < 1.2


def test_recomputation_costs_time_and_saves_memory() -> None:
    found = [
        predict_step(GPT3, Configuration(batch=64, tensor=8, pipeline=8, recompute=kind), nodes(8))
        for kind in ("none", "selective", "full")
    ]
    times, kept = [one.time.time_ns for one in found], [one.memory.activations for one in found]
    assert times == sorted(times)
    assert kept == sorted(kept, reverse=True)


@given(
    st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4])
)
def test_parts_add_up_and_overlap_never_costs(data: int, tensor: int, pipeline: int, micro_batch: int) -> None:
    devices = data * tensor * pipeline
    where = nodes_of(A100, devices_per_node=min(8, devices), nodes=max(1, devices // 8))
    one = Configuration(batch=64, micro_batch=micro_batch, data=data, tensor=tensor, pipeline=pipeline)
    found = predict_step(SMALL, one, where)
    assert found.time.time_ns == pytest.approx(sum(found.parts.values()))
    assert min(found.parts.values()) >= 0
    beside = replace(one, overlap_data=True, overlap_tensor=True, overlap_pipeline=True)
    assert predict_step(SMALL, beside, where).time.time_ns <= found.time.time_ns


def test_intervals_are_wide_on_devices_that_nothing_was_fitted_on() -> None:
    one = Configuration(batch=64, tensor=8, data=2)
    here, there = (predict_step(GPT3, one, nodes(2, name)).time for name in (A100, "H100-SXM-80GB"))
    assert (here.provenance, there.provenance) == (Provenance.INTERPOLATED, Provenance.EXTRAPOLATED)
    assert here.log_width < 0.3 < 0.6 < there.log_width


# -- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "pipeline", "chunks", "micro_batch", "states", "none", "part"),
    [
        (48, 6144, 64, 1, 1, 4, 45.5625, 59.25, 9.5625),
        (96, 12288, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625),
        (105, 20480, 128, 35, 3, 1, 31.640625, 114.0234375, 23.076171875),
        (128, 25600, 160, 64, 1, 1, 32.958984375, 131.25, 26.5625),
    ],
)
def test_bytes_are_those_of_published_models(
    layers: int,
    hidden: int,
    heads: int,
    pipeline: int,
    chunks: int,
    micro_batch: int,
    states: float,
    none: float,
    part: float,
) -> None:
    """Korthikanti et al. 2022, figure 1, in GiB, tensor parallel 8; embedding and head are left out there."""
    shape = Transformer(layers=layers, hidden=hidden, heads=heads, vocab=1)
    one = Configuration(
        batch=pipeline * micro_batch,
        micro_batch=micro_batch,
        tensor=8,
        pipeline=pipeline,
        chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b",
        recompute="none",
    )
    selected = replace(one, recompute="selective", sequence=True)
    assert rank_memory(shape, one).states / 2**30 == pytest.approx(states, rel=1e-4)
    kept = [layers / pipeline * layer_bytes(shape, each) * in_flight(each) / 2**30 for each in (one, selected)]
    if chunks > 1:  # interleaved chunks keep more micro-batches than there are in this small batch
        kept = [each / in_flight(one) * (pipeline + (pipeline - 1) / chunks) for each in kept]
    assert kept == pytest.approx([none, part], rel=1e-4)


def test_each_stage_of_zero_shards_more() -> None:
    plain = rank_memory(SMALL, Configuration(batch=64, data=8))
    first, second, third = (rank_memory(SMALL, Configuration(batch=64, data=8, zero=stage)) for stage in (1, 2, 3))
    assert first.optimizer == plain.optimizer / 8
    assert (second.gradients, second.weights) == (plain.gradients / 8, plain.weights)
    assert third.states == plain.states / 8


def test_gpipe_keeps_all_micro_batches_and_1f1b_those_of_the_pipeline() -> None:
    one = Configuration(batch=32, tensor=8, pipeline=4, recompute="none")
    assert in_flight(one) == 4
    assert in_flight(replace(one, schedule="gpipe")) == 32
    assert activation_bytes(GPT3, replace(one, schedule="gpipe")) == 8 * activation_bytes(GPT3, one)


# -- fits -------------------------------------------------------------------------------------------


def test_a_fit_finds_the_constants_that_made_the_steps() -> None:
    """Steps made by other constants are predicted: the priors hold no fit back by more than a percent."""
    truth = replace(shipped().constants, compute=0.7, host_ns=1.5e6, link=0.5, nic=0.6)
    cases = [
        (Configuration(batch=128, micro_batch=b, data=8 // t, tensor=t, pipeline=p), nodes(p))
        for b in (1, 2, 4)
        for t in (1, 2, 4, 8)
        for p in (1, 2, 4)
    ]
    steps = [Step(SMALL, *case) for case in cases]
    known = measured(steps, [predict_step(*step, constants=truth).time.time_ns for step in steps])
    found = fit_steps(known)
    assert accuracy(predicted_ns(found.constants, known.columns), known.ns).worst < 0.02
    assert all(abs(factor - 1) < 0.02 for factor in found.factors.values())


def test_shipped_constants_are_all_positive_and_say_what_they_rest_on() -> None:
    made = shipped()
    assert all(value > 0 for value in msgspec.structs.astuple(made.constants))
    assert "vTrain" in made.fitted_on
    assert set(made.pools) == {"node", "nodes", "known"}


@pytest.fixture
def timing(reference: Path) -> Path:
    return measured_times(reference)


@pytest.mark.slow
@pytest.mark.usefixtures("timing")
def test_steps_held_out_are_within_their_bars_and_below_the_published_form() -> None:
    several, one = measured_of(vtrain("multi")), measured_of(vtrain("single"))
    found = held_out(several, fitted)
    assert accuracy(found, several.ns).mean < 0.10
    assert accuracy(held_out(several, fitted_seven), several.ns).mean > 0.11
    assert accuracy(held_out(one, fitted), one.ns).mean < 0.08
    groups = [case.group for case in vtrain("multi")]
    for size in ("3.6", "39.1", "175.0"):
        mark = [i for i, group in enumerate(groups) if group == size]
        assert regret(found[mark], several.ns[mark]) < 0.10


@pytest.mark.usefixtures("timing")
def test_full_and_selective_recomputation_are_predicted_without_a_refit() -> None:
    known = measured_of(selective())
    assert accuracy(predicted_ns(shipped().constants, known.columns), known.ns).mean < 0.05


@pytest.mark.parametrize("zero", [2, 3])
def test_gradients_that_stay_sharded_are_scattered_after_every_micro_batch(zero: int) -> None:
    """In 4 bytes of each element; ZeRO 1 scatters them once, however many micro-batches there are."""

    def exchange(stage: int, micro_batches: int) -> float:
        one = Configuration(batch=64 * micro_batches, data=64, zero=stage)
        return predict_step(SMALL, one, nodes(8)).parts["data"]

    assert exchange(1, 1) == exchange(1, 4)
    assert exchange(zero, 1) < exchange(zero, 4)
    assert exchange(2, 1) == exchange(1, 1)
    growth = exchange(zero, 3) - exchange(zero, 2)
    assert exchange(zero, 4) - exchange(zero, 3) == pytest.approx(growth)
    scattered = exchange(2, 2) - exchange(2, 1)
    assert scattered == pytest.approx(exchange(2, 1) * 2 / 3, rel=0.05)  # of 6 bytes, 2 gather the parameters
