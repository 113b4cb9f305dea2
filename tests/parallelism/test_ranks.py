"""The Graph of a rank: what it costs, holds and exchanges, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture, count, timeline
from tensortide.errors import DegreesError
from tensortide.graph import Graph, Phase, Role, validate
from tensortide.parallelism import Degrees, Ranks, per_rank, product_flops
from tensortide.parallelism.stages import balanced

LAYERS, BATCH, SEQUENCE, HIDDEN, HEADS, VOCAB = 3, 8, 32, 64, 16, 512
MESSAGE = BATCH * SEQUENCE * HIDDEN * 4
"""Bytes of the activations between two layers of ``hf_llama`` and ``gpt2`` as captured here."""


@pytest.fixture(scope="module")
def gpt2() -> Graph:
    sizes = {"layers": LAYERS, "batch": BATCH, "seq": SEQUENCE, "hidden": HIDDEN, "heads": HEADS, "vocab": VOCAB}
    return capture("gpt2", hyperparameters={**sizes, "positions": SEQUENCE}, real=True)


@pytest.fixture(scope="module")
def llama() -> Graph:
    sizes = {"layers": LAYERS, "batch": BATCH, "seq": SEQUENCE, "hidden": HIDDEN, "heads": HEADS, "vocab": VOCAB}
    return capture("hf_llama", hyperparameters={**sizes, "kv_heads": 8}, real=True)


@pytest.fixture(params=["gpt2", "llama"], scope="module")
def step(request: pytest.FixtureRequest) -> Graph:
    graph: Graph = request.getfixturevalue(request.param)
    return graph


def held(graph: Graph, role: Role) -> int:
    """Bytes of a role that are resident between steps."""
    return sum(int(s.nbytes) for s in graph.storages if s.role is role and s.birth is None and s.death is None)


def exchanged(ranks: Ranks) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for each in ranks.collectives:
        found[each.group, each.kind, each.phase] += each.nbytes
    return found


def all_flops(ranks: Ranks) -> int:
    return sum(map(product_flops, ranks.graphs)) * ranks.degrees.data * ranks.degrees.tensor


def test_one_device_has_the_graph_itself(step: Graph) -> None:
    assert per_rank(step, Degrees()).graphs == (step,)
    assert per_rank(step, Degrees()).graph is step


WAYS = [
    *(Degrees(tensor=t) for t in (2, 4, 8)),
    *(Degrees(pipeline=p) for p in (2, 3)),
    *(Degrees(data=8, zero=zero) for zero in range(4)),
    Degrees(data=2, tensor=2, pipeline=2, zero=1, micro_batches=2),
]


def in_turn(ways: Iterable[Any]) -> pytest.MarkDecorator:
    """Each of ``ways`` with one of the two steps."""
    pairs = list(zip(itertools.cycle(["llama", "gpt2"]), ways, strict=False))
    return pytest.mark.parametrize(("step", "degrees"), pairs, indirect=["step"], ids=str)


@in_turn(WAYS)
def test_products_of_all_ranks_are_those_of_the_step(step: Graph, degrees: Degrees) -> None:
    ranks = per_rank(step, degrees)
    for graph in ranks.graphs:
        validate(graph)
        assert count(graph).coverage.complete == count(step).coverage.complete
        assert graph.meta.groups["world"] == tuple(range(degrees.devices))
    again = sum(each.flops for each in ranks.replicated) * (degrees.tensor - 1) * degrees.data
    assert all_flops(ranks) * degrees.micro_batches == product_flops(step) + again


@in_turn(WAYS[:3])
def test_a_transformer_layer_reduces_twice_forward_and_twice_backward(step: Graph, degrees: Degrees) -> None:
    ranks = per_rank(step, degrees)
    assert not ranks.replicated
    found = [e for e in ranks.collectives if e.group == "tensor"]
    whole = Counter[str]()
    for op in ranks.graph:
        if op.name == "c10d.allreduce_.default" and op.inputs[0].region_bytes == MESSAGE:
            whole[op.phase.value] += 1
    assert whole == {"forward": 2 * LAYERS + 1, "backward": 2 * LAYERS + 1}  # and the embedding, and the head
    assert sum(e.nbytes for e in found) < (4 * LAYERS + 2) * MESSAGE * 1.05  # the rest: two numbers for each row


@in_turn(WAYS[:3])
def test_sharded_parameters_and_their_states_take_a_share(step: Graph, degrees: Degrees) -> None:
    graph = per_rank(step, degrees).graph
    for role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
        share = held(step, role) / degrees.tensor
        assert (
            share <= held(graph, role) < share * (1 + 0.04 * degrees.tensor)
        )  # norms, biases after a sum, positions, counters
    assert timeline(graph).peak_bytes < timeline(step).peak_bytes * 0.7  # the residual stream stays whole


def test_stages_of_sharding_hold_less_and_less(step: Graph) -> None:
    data = 8
    plain, *stages = (per_rank(step, Degrees(data=data, zero=zero)).graph for zero in range(4))
    parameters, state = held(step, Role.PARAMETER), held(step, Role.OPTIMIZER_STATE)
    counters = sum(int(s.nbytes) for s in step.storages if s.role is Role.OPTIMIZER_STATE and s.nbytes == 4)
    assert held(plain, Role.OPTIMIZER_STATE) == state
    for zero, graph in enumerate(stages, 1):
        assert held(graph, Role.OPTIMIZER_STATE) == (state - counters) // data + counters
        gradients = sum(int(s.nbytes) for s in graph.storages if s.role is Role.GRADIENT)
        assert gradients == (parameters if zero == 1 else parameters // data)
        assert held(graph, Role.PARAMETER) == (parameters // data if zero == 3 else parameters)


def test_gradients_travel_once_and_parameters_as_the_stage_says(llama: Graph) -> None:
    parameters = held(llama, Role.PARAMETER)
    plain, one, two, three = (exchanged(per_rank(llama, Degrees(data=4, zero=zero))) for zero in range(4))
    assert plain["data", "all_reduce", "backward"] == parameters
    for found in (one, two):
        assert found["data", "reduce_scatter", "backward"] == parameters
        assert found["data", "all_gather", "optimizer"] == parameters
    assert three["data", "all_gather", "forward"] == parameters
    root = sum(
        int(s.nbytes) for s in llama.storages if s.role is Role.PARAMETER and "layers." not in s.name
    )  # stays gathered
    assert three["data", "all_gather", "backward"] == parameters - root


def test_buckets_are_reduced_as_they_are_ready(gpt2: Graph) -> None:
    graph = per_rank(gpt2, Degrees(data=2), bucket_bytes=2**16).graph
    places = [i for i, op in enumerate(graph) if op.name == "c10d.allreduce_coalesced_.default"]
    last = max(i for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD)
    assert len(places) > LAYERS
    assert places[0] < last / 2  # long before the backward pass ends


@pytest.mark.parametrize("pipeline", [2, 3])
def test_stages_of_a_pipeline_divide_the_layers_and_pass_activations_on(llama: Graph, pipeline: int) -> None:
    ranks = per_rank(llama, Degrees(pipeline=pipeline))
    assert sum(held(graph, Role.PARAMETER) for graph in ranks.graphs) == held(llama, Role.PARAMETER)
    assert sum(held(graph, Role.OPTIMIZER_STATE) for graph in ranks.graphs) == held(llama, Role.OPTIMIZER_STATE)
    expected = Counter({(s, s + 1): 1 for s in range(pipeline - 1)} | {(s + 1, s): 1 for s in range(pipeline - 1)})
    assert Counter((t.source, t.target) for t in ranks.transfers) == expected
    assert {t.nbytes for t in ranks.transfers} == {MESSAGE}
    assert all(timeline(graph).peak_bytes < timeline(llama).peak_bytes for graph in ranks.graphs)


def test_durations_decide_where_stages_begin(llama: Graph) -> None:
    def late(graph: Graph) -> list[float]:
        return [10.0 if graph.module_path(op.module).startswith("model.layers.2") else 1.0 for op in graph.ops]

    assert "layers.2" in per_rank(llama, Degrees(pipeline=2), durations=late).firsts[1]
    assert balanced([3, 1, 1, 1, 3], 3) == [0, 1, 4]


def test_the_heaviest_stage_is_as_light_as_any_cut_makes_it() -> None:
    loads = [5, 1, 4, 2, 2, 7, 1, 3]

    def heaviest(cuts: Sequence[int]) -> int:
        return max(sum(loads[start:end]) for start, end in itertools.pairwise([*cuts, len(loads)]))

    for number in range(1, len(loads) + 1):
        every = [(0, *rest) for rest in itertools.combinations(range(1, len(loads)), number - 1)]
        assert heaviest(balanced(loads, number)) == min(map(heaviest, every))


def test_micro_batches_are_parts_of_a_replica(llama: Graph) -> None:
    ranks = per_rank(llama, Degrees(data=2, micro_batches=4))
    assert (ranks.batch, ranks.micro_batch) == (BATCH, 1)
    assert product_flops(ranks.graph, [Phase.FORWARD]) * 8 == product_flops(llama, [Phase.FORWARD])
    local = per_rank(llama, Degrees(data=2, tensor=2), is_local=True)
    assert product_flops(local.graph) * 2 == product_flops(llama)


def test_fewer_heads_of_keys_than_ranks_stay_replicated_and_are_named() -> None:
    sizes = {"layers": 1, "batch": 2, "seq": 16, "hidden": 64, "heads": 8, "kv_heads": 2, "vocab": 128}
    graph = capture("llama", hyperparameters=sizes, real=True)
    ranks = per_rank(graph, Degrees(tensor=4))
    assert {each.module for each in ranks.replicated} == {"layers.0.attention.key", "layers.0.attention.value"}
    assert {each.why for each in ranks.replicated} == {"2 / 4 is not whole"}


def test_heads_of_keys_that_no_axis_stands_in_for_are_named_by_the_weight_of_keys() -> None:
    sizes = {"layers": 1, "batch": 3, "seq": 16, "hidden": 64, "heads": 8, "kv_heads": 2, "vocab": 128}
    of_keys = r"kv_heads 2 / tensor 8 is not whole \(in layers\.0\.attention\.key\.weight\)"
    of_groups = r"an axis of 4 / tensor 8 is not whole \(in layers\.0\.attention\.query\.weight, within one of 2\)"
    with pytest.raises(DegreesError, match=f"{of_keys}; {of_groups}$"):
        per_rank(capture("llama", hyperparameters=sizes, real=True), Degrees(tensor=8))


def test_a_vocabulary_that_the_ranks_do_not_divide_is_padded(gpt2: Graph) -> None:
    del gpt2
    sizes = {"layers": 1, "batch": 2, "seq": 16, "hidden": 64, "heads": 8, "vocab": 509, "positions": 16}
    ranks = per_rank(capture("gpt2", hyperparameters=sizes, real=True), Degrees(tensor=8))
    assert ranks.remarks == ("an axis of 509 rows of a table is padded to 512 for 8 ranks",)


@pytest.mark.parametrize(
    ("degrees", "message"),
    [
        ({"tensor": 32}, r"heads 16 / tensor 32 is not whole"),
        ({"data": 3}, r"batch 8 / 3 parts"),
        ({"data": 4, "micro_batches": 4}, r"batch 8 / 16 parts"),
        ({"pipeline": 64}, r"pipeline=64: the forward pass has \d+ parts"),
        ({"context": 3}, r"tokens of a rank: seq / context = 32/3 is no whole number"),
        ({"context": 31}, r"seq / context = 32/31 is no whole number: give the step tokens and shifted labels"),
        ({"expert": 2}, r"groups of experts: data \* context / expert = 1/2 is no whole number"),
        ({"zero": 1}, r"ZeRO 1 shards over replicas: data is 1"),
        ({"data": 0}, r"data is 0: it is at least 1"),
        ({"tensor": 2.0}, r"tensor is 2.0: it is a whole number"),
        ({"data": 2, "zero": 4}, r"zero is 4: it is 0 to 3"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_quotient(gpt2: Graph, degrees: dict[str, Any], message: str) -> None:
    with pytest.raises(DegreesError, match=message):
        per_rank(gpt2, Degrees(**degrees))


def trained(make: Callable[[], nn.Module], optimizer: Callable[..., Any], shape: tuple[int, ...]) -> Callable[[], Any]:
    def workload() -> Callable[[], None]:
        model = make()
        update, x = optimizer(model.parameters()), torch.randn(shape)

        def step() -> None:
            update.zero_grad()
            model(x).sum().backward()
            update.step()

        return step

    return workload


class Mixed(nn.Module):
    """Leaves out the first of its batch, so that no equal part of it can be computed alone."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)[1:] * 2.0  # type: ignore[no-any-return]


def test_a_step_that_mixes_its_batch_is_refused_and_the_op_named() -> None:
    graph = capture(trained(Mixed, torch.optim.SGD, (8, 8)), real=True)
    with pytest.raises(
        DegreesError, match=r"of 8, cannot be divided: aten\.slice.*test_ranks\.py:\d+\): a view takes a part of it"
    ):
        per_rank(graph, Degrees(data=2))
    assert per_rank(graph, Degrees(data=2), is_local=True).micro_batch is None


def test_an_optimizer_that_is_not_element_wise_is_not_sharded() -> None:
    graph = capture(trained(lambda: nn.Linear(8, 8), torch.optim.Adafactor, (16, 8)), real=True)
    with pytest.raises(DegreesError, match="zero=1 shards optimizers that work element by element"):
        per_rank(graph, Degrees(data=2, zero=1))


def test_the_norm_of_all_gradients_is_combined_once_for_each_group(gpt2: Graph) -> None:
    ranks = per_rank(gpt2, Degrees(data=2, tensor=2, pipeline=2, zero=1))
    numbers = Counter({(e.stage, e.group): e.number for e in ranks.collectives if e.phase == "other"})
    assert numbers == {(stage, group): 1 for stage in (0, 1) for group in ("data", "tensor", "pipeline")}
