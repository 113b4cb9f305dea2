"""The table of communication: complete, and true of what backends do."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tensortide.run.collectives import COMMUNICATIONS, NAMESPACES
from tensortide.run.operators import Operator
from tests.run.ranks import Ranks

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")

REFUSED = {"symm_mem"}
"""Namespaces of ops that write the memory of other processes."""


def schemas() -> dict[str, torch._C.FunctionSchema]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch.distributed._symmetric_memory
        import torch.distributed.fsdp
        import torch.distributed.tensor  # they register ops
    found = {schema.name: schema for schema in torch._C._jit_get_all_schemas()}
    return {name: schema for name, schema in found.items() if name.partition("::")[0] in NAMESPACES}


def test_every_op_has_a_row_or_is_refused() -> None:
    known = schemas()
    assert {name.partition("::")[0] for name in known} == NAMESPACES
    assert {name for name in known if name.partition("::")[0] not in REFUSED} == COMMUNICATIONS.keys()


@pytest.mark.parametrize("name", COMMUNICATIONS)
def test_rows_name_arguments(name: str) -> None:
    arguments = {argument.name for argument in schemas()[name].arguments}
    row = COMMUNICATIONS[name]
    assert arguments.issuperset(row.writes)
    assert not (row.writes and row.composite)
    namespace, _, op = name.partition("::")
    if not row.composite:
        operator = Operator(getattr(getattr(torch.ops, namespace), op).default)
        assert [written for _, written in operator.written] == list(row.writes)
        assert not operator.repeatable


def test_what_backends_change_is_what_the_table_says(tmp_path: Path) -> None:
    ranks = Ranks(2, tmp_path)
    try:
        one, other = ranks.call("tests.run.collective_calls:changed")
    finally:
        ranks.close()
    changes = {op: set(one.get(op, ())) | set(other.get(op, ())) for op in one.keys() | other.keys()}
    assert changes == {op: set(COMMUNICATIONS[op].writes) for op in changes}
    rare = {"c10d::monitored_barrier_", "c10d::check_for_nan", "c10d::allreduce_coalesced_"}
    rare |= {"c10d::allgather_coalesced_", "c10d::reduce_scatter_tensor_coalesced_"}
    assert {name for name in COMMUNICATIONS if name.startswith("c10d::")} - changes.keys() <= rare
