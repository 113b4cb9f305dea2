"""The table of collectives is complete, and true of runs; ``tests/run`` compares it with PyTorch."""

from __future__ import annotations

from collections import Counter

import pytest

from tensortide.cost import Cost, OpCall
from tensortide.cost.evaluate import rule_for
from tensortide.errors import TensortideError
from tensortide.graph.collectives import COLLECTIVES, Held, ops_in
from tensortide.graph.communication import OPS, Part, find, kind, kind_of, moves_data
from tensortide.importers.chakra.messages import CommType
from tests.conftest import ROOT
from tests.cost.probe import tensor
from tests.graph.collective_runs import after, run

SOURCES = {"torch", "profiler", "nccl", "jax", "hlo", "chakra", "megatron", "deepspeed"}
NONE = {
    "broadcast": {"jax"},  # a primitive of this name only says that values are the same everywhere
    "reduce": {"jax", "hlo", "megatron"},
    "gather": {"nccl", "jax", "hlo", "megatron"},  # sends and receives of NCCL
    "scatter": {"nccl", "jax", "hlo", "megatron"},
    "permute": {"torch", "profiler", "nccl", "chakra", "deepspeed"},
    "barrier": {"nccl", "jax", "hlo", "megatron"},
}
"""Sources that have no name for a collective."""
KERNELS = {
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_reduce",
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16(ncclSymDevArgs)": "all_reduce",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_AllGatherV_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclSymkDevKernel_ReduceScatter_LL_sum_f32(ncclSymkDevWorkArgs4K)": "reduce_scatter",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "send_recv",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)": None,
}
"""Kernels as traces name them."""
RANKS = (2, 3, 4, 5, 8, 13, 16)


# -- complete ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_row_is_complete(name: str) -> None:
    row = COLLECTIVES[name]
    assert row.name == name
    assert {source for source, _ in row.names()} == SOURCES - NONE.get(name, set())
    assert len({algorithm.name for algorithm in row.algorithms}) == len(row.algorithms) >= 1
    assert not row.like or not COLLECTIVES[row.like].like
    assert row.joins_two == (name == "send_recv")
    listed = {part for _, part in ops_in(row.torch)}
    assert all(part.isidentifier() for part in listed - {"", "*"})


def test_the_page_has_every_row() -> None:
    page = (ROOT / "docs/collectives.md").read_text()
    for row in COLLECTIVES.values():
        ways = "; ".join(f"{way.name}: " for way in row.algorithms)
        line = next(each for each in page.splitlines() if each.startswith(f"| `{row.name}` |"))
        assert line.startswith(f"| `{row.name}` | {row.has.value} | {row.gets.value} | ")
        assert all(each in line for each in ways.split(";")), line


def test_no_name_has_two_rows_and_each_is_found() -> None:
    for source in SOURCES:
        names = Counter(name for row in COLLECTIVES.values() for of, name in row.names() if of == source)
        assert names
        assert set(names.values()) == {1}
    for row in COLLECTIVES.values():
        for source, name in row.names():
            written = {"nccl": f"ncclDevKernel_{name}_RING_LL()", "profiler": f"nccl:{name}"}.get(source, name)
            assert find(written) is row, (source, name)


@pytest.mark.parametrize(("kernel", "name"), KERNELS.items())
def test_kernels_of_traces_are_found(kernel: str, name: str | None) -> None:
    found = find(kernel)
    assert (None if found is None else found.name) == name


def test_what_nobody_calls_a_collective_is_refused() -> None:
    assert kind("nccl:_reduce_scatter_base") is COLLECTIVES["reduce_scatter"]
    for name in ("gossip", "nccl:gossip", "ncclDevKernel_Gossip"):
        with pytest.raises(TensortideError, match="no collective is called"):
            kind(name)


def test_every_kind_of_chakra_is_a_collective() -> None:
    listed = {name for row in COLLECTIVES.values() for name in row.chakra.split() if not name.startswith("COMM_")}
    assert listed == {each.name for each in CommType}


# -- algorithms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(("name", "algorithm"), [(row.name, a) for row in COLLECTIVES.values() for a in row.algorithms])
def test_bytes_and_steps_are_those_of_a_run(name: str, algorithm: object, ranks: int) -> None:
    row = COLLECTIVES[name]
    ranks = 2 if row.joins_two else ranks
    way = next(each for each in row.algorithms if each is algorithm)
    found = run(row, way.name, ranks)
    assert all(held >= needed for held, needed in zip(found.state, after(row, ranks), strict=True))
    assert found.steps == way.steps(ranks)
    assert found.sent == pytest.approx(way.sent(ranks))
    assert way.sent(ranks) >= row.phi(ranks)


def test_a_tree_of_one_rank_sends_nothing() -> None:
    for row in COLLECTIVES.values():
        for way in (each for each in row.algorithms if each.name == "tree"):
            assert run(row, "tree", 1)[1:] == (way.sent(1), way.steps(1)) == (0, 0), row.name


def test_a_wrong_run_is_noticed() -> None:
    """A gather is no all-gather, and a ring of half its turns reduces without gathering."""
    gathered = run(COLLECTIVES["gather"], "direct", 4)
    needed = after(COLLECTIVES["all_gather"], 4)
    assert not all(held >= whole for held, whole in zip(gathered.state, needed, strict=True))
    scattered = run(COLLECTIVES["reduce_scatter"], "ring", 4)
    needed = after(COLLECTIVES["all_reduce"], 4)
    assert not all(held >= whole for held, whole in zip(scattered.state, needed, strict=True))


# -- ops --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, row in OPS.items() if row.part is not Part.MULTIPLIES])
def test_every_op_has_a_cost_rule(name: str) -> None:
    assert rule_for(name) is not None


def test_sections_show_what_moves_data_known_or_not() -> None:
    shown = {name for name in OPS if moves_data(name.replace("::", ".") + ".default")}
    assert {"c10d::send", "c10d::allreduce_", "_dtensor::shard_dim_alltoall"} <= shown
    assert not {name for name in shown if name.endswith(("barrier", "wait_tensor", "chunk_cat"))}
    assert moves_data("symm_mem.one_shot_all_reduce.default")
    assert moves_data("symm_mem.of_a_later_version.default")
    assert not moves_data("aten.add.Tensor")


def test_ops_of_a_graph_are_of_a_kind_if_they_move_data() -> None:
    assert kind_of("c10d.gather_.default") == "gather"
    assert kind_of("symm_mem.two_shot_all_reduce_.default") == "all_reduce"
    for op in ("c10d.barrier.default", "c10d.check_for_nan.default", "aten.add.Tensor", "chakra.all_reduce.x"):
        assert kind_of(op) is None
    assert {row.kind for row in OPS.values()} == {"", *COLLECTIVES} - {"permute"}


def test_a_reduction_that_returns_no_tensor_counts_those_that_it_writes() -> None:
    rule = rule_for("c10d::allreduce_coalesced_")
    assert rule is not None
    cost = rule.work(OpCall("c10d::allreduce_coalesced_", {"tensors": (tensor(3), tensor(4))}))
    assert cost == Cost(elementwise_flops=7, exact=False, reason="one operation per element received")


def test_primitives_of_jax_have_cost_rules() -> None:

    for row in COLLECTIVES.values():
        for variants in row.jax.split():
            assert rule_for(f"jax::{variants.partition('/')[0]}") is not None, variants


def test_what_is_reduced_divided_or_joined_follows_from_what_ranks_hold() -> None:
    assert {row.name for row in COLLECTIVES.values() if row.reduces} == {"all_reduce", "reduce_scatter", "reduce"}
    divided = {"all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"}
    assert {row.name for row in COLLECTIVES.values() if row.divided} == divided
    assert COLLECTIVES["gather"].padded(7, 4) == 8
    assert COLLECTIVES["barrier"].gets is Held.NOTHING
