"""Units: what must share a device, how units are grouped, and pins that cannot be kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.graph import Graph, Phase, Role
from tensortide.graph.validate import validate
from tensortide.placements.graphs import Grouping, units_of
from tensortide.placements.graphs.closures import makers_of
from tensortide.placements.graphs.units import By
from tests.graphs import Builder, graphs
from tests.placements.graphs.steps import captured, pipeline

MODELS = ["gpt2", "resnet18_cifar"]


@given(graphs(), st.sampled_from(["module", "closure"]), st.booleans(), st.none() | st.integers(1, 4))
def test_what_makes_views_or_writes_a_storage_shares_a_unit(graph: Graph, by: By, free: bool, most: int | None) -> None:
    units = units_of(graph, Grouping(by, free_backward=free, most=most))
    for storage, ops in enumerate(makers_of(graph)):
        assert len({units.of_op[op] for op in ops}) <= 1
        assert all(units.home[storage] == units.of_op[op] for op in ops)
    assert sorted(set(units.of_op)) == list(range(len(units)))
    firsts = [units.ops(unit)[0] for unit in range(len(units))]
    assert firsts == sorted(firsts)
    assert most is None or len(units) <= most


@pytest.mark.parametrize("by", ["module", "closure"])
@pytest.mark.parametrize("name", MODELS)
def test_a_parameter_has_its_gradient_state_and_optimizer_in_its_unit(name: str, by: By) -> None:
    graph = captured(name)
    units = units_of(graph, Grouping(by))
    home = {
        held.name: units.home[storage] for storage, held in enumerate(graph.storages) if held.role is Role.PARAMETER
    }
    last = {held.name: storage for storage, held in enumerate(graph.storages) if held.role is Role.GRADIENT}
    state = [i for i, held in enumerate(graph.storages) if held.role is Role.OPTIMIZER_STATE]
    assert len(home) > 10
    for storage in [*last.values(), *state]:
        owner = graph.storages[storage].name.rsplit(".", 1)[0]
        assert units.home[storage] == home[owner]
    for op, record in enumerate(graph.ops):
        if record.phase is Phase.OPTIMIZER:
            used = {units.home[s] for s in graph.index.touches[op] if graph.storages[s].nbytes > 16}
            assert used <= {units.of_op[op]}


def test_backward_ops_follow_their_forward_ops_unless_they_are_free() -> None:
    graph = pipeline(4)
    units = units_of(graph, Grouping("closure"))
    assert [units.of_op[op] for op in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]
    free = units_of(graph, Grouping("closure", free_backward=True))
    assert len(free) == 8
    assert [free.of_op[op] for op in range(4, 12)] == [4, 5, 6, 7, 7, 6, 5, 4]


def test_units_of_modules_follow_the_model() -> None:
    units = units_of(captured("gpt2"), Grouping(depth=2))
    assert units.names[:6] == ("(root)", "tokens", "positions", "(root) 2", "blocks.0", "blocks.1")
    block = units.names.index("blocks.0")
    modules = {units.graph[op].module for op in units.ops(block)}
    assert {"blocks.0.attention.qkv", "blocks.0.down", "blocks.0.norm1"} <= modules
    whole = units_of(captured("gpt2"), Grouping(prefixes=("blocks",)))
    assert len({whole.of_op[op] for op in units.ops(block)}) == 1
    with pytest.raises(TensortideError, match="no op is in a module 'layers'"):
        units_of(captured("gpt2"), Grouping(prefixes=("layers",)))


def test_random_ops_share_a_unit_where_their_order_is_kept() -> None:
    builder = Builder()
    for i in range(3):
        out = builder.storage(8, birth=i, death=i + 1)
        builder.op([], [out], name="aten.rand.default", tags=("random",))
    assert len(units_of(builder.graph(), Grouping("closure"))) == 3
    assert len(units_of(builder.graph(), Grouping("closure", keep_random=True))) == 1


def test_an_op_over_lists_is_one_op_per_tensor() -> None:
    graph = captured("gpt2")
    norms = [op for op in graph if op.name == "aten._foreach_norm.Scalar"]
    parameters = [held for held in graph.storages if held.role is Role.PARAMETER]
    assert len(norms) == len(parameters)
    assert all(len(op.inputs) == len(op.outputs) == 1 for op in norms)
    validate(graph)
