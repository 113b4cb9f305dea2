"""Captured steps on many devices: what they reduce to, what adds up, what overlap, recomputation and ZeRO change."""

from __future__ import annotations

import functools

import pytest
from msgspec.structs import replace

import tensortide
from tensortide.errors import DegreesError
from tensortide.graph import Graph
from tensortide.graph.model import Role
from tensortide.parallelism.closed import Configuration
from tensortide.recorder import resolver
from tensortide.studies.scale import Captured, DegreeRequest, Problem, Scale, scale
from tensortide.studies.scale.captured import samples_of, tokens_of
from tensortide.timelines.machines import step_on
from tensortide.timing import device
from tensortide.timing.collectives import Nodes, nodes_of, predict_collective
from tensortide.timing.collectives.nodes import nodes_called
from tests.graphs import stored

A100 = "A100-SXM-80GB"
SIZES: dict[str, int | float | str | bool | None] = {
    "layers": 4,
    "hidden": 64,
    "heads": 4,
    "seq": 32,
    "batch": 8,
    "vocab": 128,
    "positions": 32,
    "optimizer": "sgd",
}


@functools.cache
def graph() -> Graph:
    return tensortide.capture("gpt2", hyperparameters=SIZES, real=True)


@functools.cache
def step() -> Captured:
    return Captured(graph(), device(A100), batch=8, tokens=32, resolver=resolver)


def node(devices: int) -> Nodes:
    return nodes_of(A100, devices_per_node=devices)


def plain(**degrees: int) -> Configuration:
    return replace(Configuration(batch=8, micro_batch=8, recompute="none"), **degrees)


def total(one: Configuration) -> float:
    return step().predict(one, node(one.devices)).time.time_ns


def test_one_device_and_one_micro_batch_is_the_prediction_of_a_single_device() -> None:
    alone = step_on(graph(), nodes_called(A100), resolver=resolver).step_time
    found = step().predict(plain(), node(1))
    assert found.time.time_ns == alone.time_ns
    assert found.time.low_ns == pytest.approx(alone.low_ns)
    assert found.peak_bytes == tensortide.timeline(graph()).peak_bytes


def test_ops_of_another_kind_of_device_are_named() -> None:
    assert any("ops captured on cpu" in text for text in step().predict(plain(), node(1)).remarks)
    own = Captured(stored("gpt2"), device(A100), batch=2, tokens=16, resolver=resolver)
    assert not any("captured" in text for text in own.predict(plain(batch=2, micro_batch=2), node(1)).remarks)


def test_samples_and_tokens_are_those_of_the_first_input() -> None:
    assert (samples_of(graph()), tokens_of(graph())) == (8, 32)


@pytest.mark.parametrize(
    "degrees",
    [
        {"data": 2, "micro_batch": 4},
        {"data": 2, "micro_batch": 2},
        {"tensor": 2},
        {"pipeline": 2, "micro_batch": 2},
        {"pipeline": 2, "micro_batch": 1, "chunks": 2, "schedule": "interleaved"},
        {"data": 2, "tensor": 2, "pipeline": 2, "micro_batch": 1},
        {"data": 4, "micro_batch": 2, "zero": 3},
        {"context": 2},
        {"data": 2, "context": 2, "tensor": 2, "micro_batch": 2, "zero": 1},
    ],
)
def test_parts_add_up_to_the_step(degrees: dict[str, int]) -> None:
    one = plain(**degrees)
    assert step().objections(one, one.devices) == []
    found = step().predict(one, node(one.devices))
    assert sum(found.parts.values()) == pytest.approx(found.time.time_ns)
    assert min(found.parts.values()) >= 0
    assert found.time.low_ns < found.time.time_ns < found.time.high_ns


def test_communication_beside_compute_never_costs() -> None:
    for one in (plain(data=4, micro_batch=2), plain(pipeline=2, micro_batch=1)):
        assert total(replace(one, overlap_data=True, overlap_pipeline=True)) <= total(one)
    apart = step().predict(plain(data=4, micro_batch=2), node(4)).parts
    assert apart["data"] > 0


def test_micro_batches_are_played_one_after_the_other() -> None:
    """Without other ranks two micro-batches take twice the passes of one, and the update once."""
    whole = step().predict(plain(micro_batch=4), node(1)).parts
    assert whole["bubble"] == whole["data"] == 0
    half = step().predict(replace(plain(micro_batch=4), batch=4), node(1)).parts
    assert whole["compute"] == 2 * half["compute"]
    assert whole["optimizer"] == half["optimizer"]


def test_every_micro_batch_recomputes() -> None:
    one = replace(plain(micro_batch=4), recompute="full")
    two, single = (step().predict(replace(one, batch=batch), node(1)).parts["recompute"] for batch in (8, 4))
    assert two == pytest.approx(2 * single)
    assert single > 0


def test_recomputation_takes_time_and_spares_memory() -> None:
    one = plain(pipeline=2, micro_batch=1)
    kept, again = (step().predict(replace(one, recompute=how), node(2)) for how in ("none", "full"))
    assert again.time.time_ns > kept.time.time_ns
    assert again.peak_bytes < kept.peak_bytes


def test_zero_shards_what_is_given_before_the_step() -> None:
    name = "parameters, states, inputs"
    plain_, sharded = (
        step().predict(plain(data=4, micro_batch=2, zero=stage), node(4)).memory[name] for stage in (0, 1)
    )
    assert sharded < plain_


def test_longer_pipelines_have_more_bubble() -> None:
    shares = []
    for pipeline in (1, 2, 4):
        found = step().predict(plain(pipeline=pipeline, micro_batch=1), node(pipeline))
        shares.append(found.parts["bubble"] / found.time.time_ns)
    assert shares == sorted(shares)
    assert shares[0] == 0


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"data": 3, "micro_batch": 1}, "batch / (data * micro-batch) = 8/3"),
        ({"batch": 48, "data": 3, "micro_batch": 1}, "captured batch / (data * micro-batch) = 8/3"),
        ({"expert": 2}, "data * context / expert = 1/2"),
        ({"fused_attention": True}, "--model"),
        ({"zero": 1}, "data is 1"),
        ({"data": 2, "pipeline": 2, "micro_batch": 1, "zero": 2}, "use ZeRO 1"),
        ({"pipeline": 4, "micro_batch": 4, "chunks": 2, "schedule": "interleaved"}, "= 2/4 is no whole number"),
    ],
)
def test_what_a_captured_step_is_not_divided_by_is_said(changes: dict[str, int], part: str) -> None:
    one = plain(**changes)
    assert any(part in text for text in step().objections(one, one.devices))


@functools.cache
def mixture() -> Captured:
    sizes = {**SIZES, "layers": 1, "experts": 4, "kv_heads": 4, "intermediate": 96, "dtype": "bfloat16"}
    del sizes["positions"]
    return Captured(tensortide.capture("mixtral", hyperparameters=sizes), device(A100), batch=8, resolver=resolver)


def test_keys_tokens_and_gradients_of_experts_take_time_of_their_own() -> None:
    one = plain(data=2, context=2, expert=4, micro_batch=4)
    found = mixture().predict(one, node(4))
    assert min(found.parts[name] for name in ("context", "expert", "data")) > 0
    alone = mixture().predict(plain(data=4, micro_batch=2), node(4))
    assert (alone.parts["context"], alone.parts["expert"]) == (0, 0)
    given = "parameters, states, inputs"
    assert found.memory[given] < alone.memory[given]
    assert any("slots" in remark for remark in found.remarks)


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_experts_and_contexts_are_searched_when_asked(devices: int) -> None:
    given = DegreeRequest(micro_batch=2, pipeline=1, tensor=1, context="search", expert="search")
    found = scale(Problem(nodes=node(devices), base=plain(), degrees=given), mixture())
    legal = {(one.configuration.data, one.configuration.context, one.configuration.expert) for one in found.legal}
    degrees = [each for each in (1, 2, 4) if each <= devices]
    assert legal == {(d, devices // d, x) for d in degrees for x in degrees}
    assert not any("context" in one.reason for one in found.refused)


@functools.cache
def grouped() -> Captured:
    """8 heads, 4 of keys: as many as half of 8 tensor ranks."""
    sizes = {name: size for name, size in SIZES.items() if name != "positions"}
    sizes |= {"layers": 1, "heads": 8, "kv_heads": 4}
    return Captured(tensortide.capture("llama", hyperparameters=sizes, real=False), device(A100), batch=8)


def test_ranks_that_outnumber_heads_of_keys_share_them_in_a_search() -> None:
    def searched(kv_group: int | None = None) -> Scale:
        degrees = DegreeRequest(tensor=8, micro_batch=8, kv_group=kv_group)
        return scale(Problem(nodes=node(8), base=plain(), degrees=degrees), grouped())

    found = searched()
    assert {one.configuration.kv_group for one in found.legal} == {2}
    assert all("kv_heads 4 / tensor 8 is not whole" in one.reason for one in found.refused)
    assert not searched(0).legal
    assert {one.reason for one in searched(3).outcomes} == {
        "groups of heads: tensor / kv-group = 8/3 are not several groups of several ranks"
    }
    made = found.legal[0].found
    assert made is not None
    products = 2 * 3  # keys and values of a layer: forward, and the gradients of both factors
    assert (
        f"{products} products are computed in full by 2 tensor ranks each, which share heads of keys." in made.remarks
    )


def test_ranks_that_share_heads_exchange_their_gradients_within_sub_groups() -> None:
    """By hand, of a layer: forward all ranks sum two products of batch x seq x hidden in 4 bytes, backward the gradient
    of what the feed-forward part reads. Pairs sum those of a head of keys, of values and of what queries read, the same
    places of all pairs what all three read. Beside layers: the gradient of what the head reads, three numbers of each
    token for a softmax over a divided vocabulary, the loss and the number of its targets."""
    layers, tokens = 1, 8 * 32 * 4
    whole, head = tokens * 64, tokens * 64 // 8
    every, pair, places = range(8), range(2), (0, 2, 4, 6)
    expected = [
        *[(whole, every)] * (3 * layers + 1),
        *[(head, pair)] * (2 * layers),
        *[(whole, pair)] * layers,
        *[(whole, places)] * layers,
        *[(tokens, every)] * 3,
        *[(4, every)] * 2,
    ]
    ns = sum(predict_collective("all_reduce", nbytes, ranks, node(8)).ns for nbytes, ranks in expected)
    assert grouped().predict(plain(tensor=8, kv_group=2), node(8)).parts["tensor"] == pytest.approx(ns)


def test_heads_that_ranks_do_not_divide_are_named() -> None:
    with pytest.raises(DegreesError, match="tensor=8"):
        step().predict(plain(tensor=8), node(8))


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_search_over_a_captured_step_finds_what_each_prediction_says(devices: int) -> None:
    request = Problem(nodes=node(devices), base=plain())
    found = scale(request, step())
    best = found.best
    assert best is not None
    assert best.found is not None
    times = [total(one.configuration) for one in found.legal]
    assert best.found.time.time_ns == min(times)
    assert (
        any("tensor" in one.reason or "whole" in one.reason or "parts" in one.reason for one in found.refused)
        or not found.refused
    )


def test_accumulated_gradients_of_all_chunks_are_in_the_memory() -> None:
    """A wide step of few tokens, whose gradients exceed its activations by far."""
    wide = tensortide.capture("gpt2", hyperparameters={**SIZES, "hidden": 256, "seq": 2, "vocab": 64}, real=True)
    gradients = {wide.tensors[each.tensor].storage for each in wide.named if each.role is Role.GRADIENT}
    nbytes = sum(int(wide.storages[storage].nbytes) for storage in gradients)
    found = Captured(wide, device(A100), batch=8, resolver=resolver)
    chunked = replace(plain(pipeline=2, micro_batch=1, chunks=2), schedule="interleaved")
    for one in (plain(micro_batch=1), plain(pipeline=2, micro_batch=1), chunked):
        made = found.predict(one, node(one.devices)).memory["gradients, activations, workspace"]
        activations = 0.2 * nbytes
        assert nbytes / one.pipeline < made < nbytes / one.pipeline + activations


def test_gradients_that_stay_sharded_are_exchanged_after_every_micro_batch() -> None:
    def exchange(zero: int, micro_batch: int, *, overlap: bool = False) -> float:
        one = plain(data=2, micro_batch=micro_batch, zero=zero)
        return step().predict(replace(one, overlap_data=overlap), node(2)).parts["data"]

    once, whole = exchange(2, 4), exchange(1, 4)
    assert exchange(1, 1) == pytest.approx(whole)
    # The gather of parameters after the update is not repeated.
    scattered = (exchange(2, 1) - once) / 3
    assert 0.3 * once < scattered < once
    assert exchange(2, 2) == pytest.approx(once + scattered)
    assert exchange(2, 1, overlap=True) <= exchange(2, 1)


def test_parts_of_sequences_spare_memory() -> None:
    one = plain(tensor=2)
    kept, parts = (step().predict(replace(one, sequence=along), node(2)) for along in (False, True))
    assert step().objections(replace(one, sequence=True), 2) == []
    assert parts.peak_bytes < kept.peak_bytes
    assert parts.parts["tensor"] > 0
    assert sum(parts.parts.values()) == pytest.approx(parts.time.time_ns)


def test_times_known_from_other_configurations_change_no_prediction() -> None:
    """One object predicts many configurations, in any order; each is as from an object that predicted nothing else."""
    several = [plain(tensor=2), plain()]
    shared = Captured(graph(), device(A100), batch=8, tokens=32, resolver=resolver)
    for one in several:
        alone = Captured(graph(), device(A100), batch=8, tokens=32, resolver=resolver)
        assert shared.predict(one, node(one.devices)) == alone.predict(one, node(one.devices))


def test_the_step_waits_for_groups_and_transfers_that_cross_nodes_where_others_do_not() -> None:
    """In nodes of three, ranks 0 and 1 are neighbours in one, ranks 2 and 3 lie on two."""
    apart, beside = nodes_of(A100, devices_per_node=1, nodes=8), nodes_of(A100, devices_per_node=3, nodes=3)

    def exchanged(on: Nodes, part: str, **degrees: int) -> float:
        return step().predict(plain(micro_batch=2, **degrees), on).parts[part]

    for degrees in ({"data": 4, "tensor": 2}, {"tensor": 2, "pipeline": 3}):
        tensor = exchanged(beside, "tensor", **degrees)
        assert tensor == pytest.approx(exchanged(apart, "tensor", **degrees))
        assert tensor > 2 * exchanged(node(8), "tensor", **degrees)
    moved = exchanged(nodes_of(A100, devices_per_node=3, nodes=3), "transfer", tensor=2, pipeline=2)  # 0 to 2, 1 to 3
    assert moved == pytest.approx(exchanged(apart, "transfer", tensor=2, pipeline=2))
    assert moved > exchanged(node(8), "transfer", tensor=2, pipeline=2)


@pytest.mark.parametrize("micro_batch", [8, 1])
def test_a_tied_table_and_the_norm_of_all_gradients_are_reduced_among_stages_once(micro_batch: int) -> None:
    """Of nodes of one device each: the table between the first stage and the last, 4 bytes of the norm among all."""
    on = nodes_of(A100, devices_per_node=1, nodes=4)
    table = 4 * 128 * 64
    norm = predict_collective("all_reduce", 4, range(4), on).ns
    found = step().predict(plain(pipeline=4, micro_batch=micro_batch), on).parts
    assert found["data"] == pytest.approx(predict_collective("all_reduce", table, (0, 3), on).ns + norm)


def test_the_norm_of_all_gradients_takes_its_time_in_a_step_without_tied_tables() -> None:
    sizes = {name: size for name, size in SIZES.items() if name != "positions"} | {"kv_heads": 4, "layers": 1}
    untied = Captured(tensortide.capture("llama", hyperparameters=sizes, real=False), device(A100), batch=8)
    on = nodes_of(A100, devices_per_node=1, nodes=2)
    one = plain(pipeline=2, micro_batch=2)
    found = untied.predict(one, on)
    norm = predict_collective("all_reduce", 4, (0, 1), on).ns
    assert found.parts["data"] == pytest.approx(norm)
    assert sum(found.parts.values()) == pytest.approx(found.time.time_ns)


def test_each_chunk_rank_of_a_tied_table_reduces_it_with_the_rank_of_the_other() -> None:
    """Stage 3 of four is the second chunk of rank 1."""
    on = nodes_of(A100, devices_per_node=1, nodes=2)
    one = replace(plain(pipeline=2, micro_batch=1, chunks=2), schedule="interleaved")
    norm = predict_collective("all_reduce", 4, (0, 1), on).ns
    table = predict_collective("all_reduce", 4 * 128 * 64, (0, 1), on).ns
    assert step().predict(one, on).parts["data"] == pytest.approx(table + 2 * norm)
