"""Figures of modules against brute force over ops and storages: parts add up, and the peak of all is the step's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from tensortide.cost import count
from tensortide.differences import Node
from tensortide.graph import OUTSIDE, Graph, Named, Phase, Role
from tensortide.timelines import timeline
from tensortide.timelines.module_figures import BY_MODULE, NONE, WORDS, ModuleFigures, figures_by_module, module_trees
from tests.graphs import Builder, graphs, stored


class Drawn(NamedTuple):
    """A step whose tensors have names, the workspace of each op, and the time of each."""

    graph: Graph
    workspace: list[int]
    times_ns: list[int]

    def trees(self) -> tuple[Node[ModuleFigures], ...]:
        line = timeline(self.graph, workspace=self.workspace)
        return module_trees(count(self.graph), line, self.times_ns)


@st.composite
def steps(draw: st.DrawFn) -> Drawn:
    graph, names = draw(graphs()), st.sampled_from(("", "w", "a.w", "a.b.w", "a.b.x.w", "e.w", "f.w"))
    storages = tuple(replace(one, name=draw(names)) for one in graph.storages)
    recomputed = tuple(replace(op, recompute=draw(st.booleans())) for op in graph.ops)
    some = [index for index, one in enumerate(graph.tensors) if storages[one.storage].role is Role.PARAMETER]
    named = tuple(Named(tensor=index, name=draw(names.filter(bool)), role=Role.PARAMETER) for index in some)
    amounts = st.lists(st.integers(0, 9000), min_size=len(graph), max_size=len(graph))
    return Drawn(replace(graph, ops=recomputed, storages=storages, named=named), draw(amounts), draw(amounts))


def home(graph: Graph, name: str, op: int | None) -> str:
    """The longest path of a module that a name begins with, the root's if it is in no other, else the op's module."""
    paths = [one.path for one in graph.modules if name.startswith(f"{one.path}." if one.path else "")]
    if name and paths:
        return max(paths, key=len) or "(root)"
    return "(outside)" if op is None else graph.module_path(graph.ops[op].module)


def inside(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.") or (outer == "(root)" and path != "(outside)")


def resident(drawn: Drawn, at: int) -> Iterator[tuple[str, int]]:
    """The module and the bytes of each storage and workspace that is resident during an op."""
    graph = drawn.graph
    for one in graph.storages:
        if (one.birth or 0) <= at and (one.death is None or at < one.death):
            yield home(graph, one.name if one.role.row.of_module else "", one.birth), one.nbytes
    for op in graph.ops[at : at + 1]:
        yield graph.module_path(op.module), drawn.workspace[at]


def all_of(trees: tuple[Node[ModuleFigures], ...]) -> list[Node[ModuleFigures]]:
    return [node for tree in trees for node in tree.walk()]


@given(steps())
def test_what_a_module_has_at_the_peak_is_what_its_storages_and_its_workspace_hold_then(drawn: Drawn) -> None:
    graph, trees = drawn.graph, drawn.trees()
    levels = [sum(nbytes for _, nbytes in resident(drawn, at)) for at in range(max(1, len(graph)))]
    at = levels.index(max(levels))
    for node in all_of(trees):
        held = sum(nbytes for path, nbytes in resident(drawn, at) if inside(path, node.path))
        assert node.whole.peak_bytes == held, node.path
    assert sum(tree.whole.peak_bytes or 0 for tree in trees) == max(levels)
    assert max(levels) == timeline(graph, workspace=drawn.workspace).peak_bytes


@given(steps())
def test_ops_times_and_parameters_are_those_of_the_ops_and_names_in_a_module(drawn: Drawn) -> None:
    graph, trees = drawn.graph, drawn.trees()
    unpriced = [one.cost is None for one in count(graph).costs]
    first = {one.tensor: one.name for one in reversed(graph.named)}
    for node in all_of(trees):
        ops = [i for i, op in enumerate(graph.ops) if inside(graph.module_path(op.module), node.path)]
        owned = [graph.tensors[t] for t, name in first.items() if inside(home(graph, name, None), node.path)]
        assert (node.whole.ops, node.whole.unknown_ops) == (len(ops), sum(unpriced[i] for i in ops))
        assert node.whole.recomputed_ops == sum(graph.ops[i].recompute for i in ops)
        assert node.whole.time_ns == sum(drawn.times_ns[i] for i in ops)
        assert node.whole.parameters == sum(one.numel for one in owned)
        assert node.whole.parameter_bytes == sum(one.numel * one.itemsize for one in owned)


@given(steps())
def test_own_figures_and_those_inside_are_the_whole(drawn: Drawn) -> None:
    trees = drawn.trees()
    for node in all_of(trees):
        assert sum((child.whole for child in node.children), node.own) == node.whole
    own = figures_by_module(trees)
    assert len(own) == sum(bool(node.own) for node in all_of(trees))
    nothing = ModuleFigures(time_ns=0)
    assert sum(own.values(), nothing) == sum((tree.whole for tree in trees), nothing)


def test_saved_bytes_are_made_before_the_backward_and_read_in_it() -> None:
    b = Builder()
    block = b.module("block")
    kept, unread = b.storage(10, Role.ACTIVATION, 0, 3), b.storage(20, Role.ACTIVATION, 0, None)
    b.op([], [kept, unread], module=block)
    b.op([kept], [b.storage(5, Role.ACTIVATION, 1, None)], module=block, phase=Phase.BACKWARD)
    graph = b.graph()
    assert figures_by_module(module_trees(count(graph), timeline(graph)))["block"].saved_bytes == 10


def test_without_times_time_is_unknown() -> None:
    graph = stored("mlp")
    trees = module_trees(count(graph), timeline(graph))
    assert {node.whole.time_ns for node in all_of(trees)} == {None}


def test_what_is_missing_takes_no_time_where_times_are_known() -> None:
    assert ModuleFigures(time_ns=5).nothing().time_ns == 0
    assert ModuleFigures(time_ns=None).nothing().time_ns is None


def test_every_figure_declares_its_use() -> None:
    declared = {*ModuleFigures.__struct_fields__, "elementwise_flops"}
    assert {*BY_MODULE.values(), *WORDS} == declared
    assert not any(astuple(NONE))


def test_what_is_in_no_module_is_a_tree_of_its_own_only_if_it_is_something() -> None:
    b = Builder()
    b.op([], [b.storage(8, Role.TEMPORARY, 0, 1)], module=b.module("only"))
    assert [tree.path for tree in module_trees(count(b.graph()), timeline(b.graph()))] == ["only"]
    b.op([], [b.storage(8, Role.TEMPORARY, 1, 2)], module=OUTSIDE)
    assert [tree.path for tree in module_trees(count(b.graph()), timeline(b.graph()))] == ["only", "(outside)"]
