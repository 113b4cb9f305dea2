"""The table of communication: complete, and true of what backends do."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tensortide.graph.collectives import COLLECTIVES
from tensortide.graph.communication import COMMUNICATION, OPS, SYMMETRIC, find
from tensortide.run.operators import Operator, refusal
from tests.run.collective_semantics import expected
from tests.run.ranks import Ranks

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

NEWER = {"fsdp::chunk_cat_mixed_dtype", "fsdp::record_grad_output_stream"}
"""Ops with a row that PyTorch has since 2.15."""
UNTRIED = {"_c10d_functional::wait_tensors", "c10d::gather_into_tensor_"}
"""Ops since 2.15 that are refused."""


@functools.cache
def schemas() -> dict[str, torch._C.FunctionSchema]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.distributed._symmetric_memory
        import torch.distributed.fsdp
        import torch.distributed.tensor  # they register ops
    found = {schema.name: schema for schema in torch._C._jit_get_all_schemas()}
    return {name: schema for name, schema in found.items() if name.partition("::")[0] in COMMUNICATION}


def test_every_op_has_a_row_or_is_refused() -> None:
    known = schemas()
    assert {name.partition("::")[0] for name in known} == COMMUNICATION
    found = {name for name in known if name.partition("::")[0] != SYMMETRIC}
    assert (found - UNTRIED) | NEWER == {name for name in OPS if name.partition("::")[0] != SYMMETRIC}


@pytest.mark.parametrize("name", OPS)
def test_rows_name_arguments(name: str) -> None:
    known = schemas()
    if name not in known and (name in NEWER or name.startswith(f"{SYMMETRIC}::")):
        pytest.skip("this PyTorch does not have it")
    arguments = {argument.name for argument in known[name].arguments}
    row = OPS[name]
    assert arguments.issuperset(row.writes)
    assert not (row.writes and row.by_parts)
    namespace, _, op = name.partition("::")
    if namespace == SYMMETRIC:
        assert "communicates" in refusal(getattr(torch.ops.symm_mem, op).default)
    elif not row.by_parts:
        operator = Operator(getattr(getattr(torch.ops, namespace), op).default)
        assert [written for _, written in operator.written] == list(row.writes)
        assert not operator.repeatable


def test_what_backends_change_is_what_the_table_says(two: Ranks) -> None:
    one, other = two.call("tests.run.collective_calls:changed")
    changes = {op: set(one.get(op, ())) | set(other.get(op, ())) for op in one.keys() | other.keys()}
    assert changes == {op: set(OPS[op].writes) for op in changes}
    rare = {"c10d::monitored_barrier_", "c10d::check_for_nan", "c10d::allreduce_coalesced_"}
    rare |= {"c10d::allgather_coalesced_", "c10d::reduce_scatter_tensor_coalesced_"}
    assert {name for name in OPS if name.startswith("c10d::")} - changes.keys() <= rare


def assert_true_of_gloo(ranks: Ranks) -> None:
    """What each rank holds after the real op is what its row says."""
    answers = ranks.call("tests.run.collective_semantics:results")
    assert {COLLECTIVES[name].name for name in answers[0]} == COLLECTIVES.keys() - {"permute", "barrier"}
    for name in answers[0]:
        row = COLLECTIVES[name]
        for rank, needed in enumerate(expected(row, ranks.world)):
            for result in answers[rank][name]:
                assert result == needed, (name, rank)


def test_ranks_hold_what_the_table_says(two: Ranks) -> None:
    assert_true_of_gloo(two)


def test_titles_of_the_profiler_are_found(two: Ranks) -> None:
    found = {title: find(title) for titles in two.call("tests.run.collective_semantics:titles") for title in titles}
    assert None not in found.values(), found
    ran = {row.name for row in found.values() if row is not None}
    assert ran >= COLLECTIVES.keys() - {"permute", "reduce_scatter"}  # which gloo makes of others


@pytest.mark.slow
def test_three_ranks_hold_what_the_table_says(tmp_path: Path) -> None:
    three = Ranks(3, tmp_path)
    try:
        assert_true_of_gloo(three)
    finally:
        three.close()


@pytest.fixture(params=[True, False], ids=["compiled", "python"])
def compiled(request: pytest.FixtureRequest) -> bool:
    """Whether the compiled core handles ops, where there is one."""
    return bool(request.param)


def test_every_use_leaves_the_same_behind_and_nothing_locked(compiled: bool, two: Ranks) -> None:
    for found in two.call("tests.run.collective_uses:same", compiled):
        assert {name: right for name, (right, _) in found.items()} == dict.fromkeys(found, True)
        assert {name: locked for name, (_, locked) in found.items()} == dict.fromkeys(found, 0)


def test_arguments_stay_where_they_are_until_the_other_process_has_come(compiled: bool, two: Ranks) -> None:
    for found in two.call("tests.run.collective_races:other_comes_late", compiled):
        assert found == dict.fromkeys(found, (True, True, 0))


def test_arguments_stay_locked_where_room_was_waited_for(compiled: bool, two: Ranks) -> None:
    one, other = two.call("tests.run.collective_races:room_comes_late", compiled)
    assert one == (True, True, 0, 1)
    assert other == (True, True, 0, 0)


@pytest.mark.parametrize("direct", [False, True])
def test_a_custom_op_that_communicates_runs_once(compiled: bool, direct: bool, two: Ranks) -> None:
    for runs, right, recomputations in two.call("tests.run.collective_uses:custom_op_runs", compiled, direct):
        assert (runs, right) == (1, True)
        assert recomputations > 0


@pytest.mark.parametrize("direct", [False, True])
def test_what_follows_a_custom_op_that_communicates_is_recomputed(compiled: bool, direct: bool, two: Ranks) -> None:
    for found in two.call("tests.run.collective_uses:after_a_custom_op", compiled, direct):
        assert found == [(1, True), (1, True)]


def assert_programs_same(ranks: Ranks, seeds: range, compiled: bool, length: int = 40) -> None:
    answers = ranks.call("tests.run.collective_programs:programs", list(seeds), compiled, length)
    wrong = [[seed for seed, right, _ in found if not right] for found in answers]
    assert wrong == [[], []]
    assert all(recomputations > 0 for found in answers for _, _, recomputations in found)


def test_random_programs_compute_the_same(compiled: bool, two: Ranks) -> None:
    """Another with the compiled core than without."""
    assert_programs_same(two, range(1) if compiled else range(1, 2), compiled, length=20)


@pytest.mark.slow
def test_many_random_programs_compute_the_same(compiled: bool, two: Ranks) -> None:
    """Others with the compiled core than without."""
    assert_programs_same(two, range(2, 10) if compiled else range(10, 18), compiled)
