"""Plans as data: saved and read back, and checked against their Graph step by step."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import OutputError, PlanError, PlanFileError
from tensortide.graph import Graph, Role
from tensortide.plans import (
    Compute,
    Evict,
    Fetch,
    Lane,
    Offload,
    Plan,
    Receive,
    Send,
    in_order,
    load_plan,
    save_plan,
    validate,
)
from tensortide.plans.model import Step
from tensortide.version import VERSION
from tests.graphs import Builder, graphs

STEPS = st.one_of(
    *(st.builds(kind, st.integers(0, 99)) for kind in (Compute, Evict, Offload, Fetch)),
    *(st.builds(kind, st.integers(0, 99), st.integers(0, 3)) for kind in (Send, Receive)),
)
PLANS = st.builds(
    Plan, st.text(), st.lists(st.builds(Lane, st.text(), st.lists(STEPS).map(tuple)), max_size=3).map(tuple)
)


@given(plan=PLANS)
def test_a_plan_is_read_back_as_it_was_saved(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    save_plan(plan, path)
    assert load_plan(path) == plan


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is not a tensortide plan"),
        ("[1, 2]", "is not a tensortide plan"),
        ('{"format": "other"}', "is not a tensortide plan"),
        (b"\xff\xfe", "is not a tensortide plan"),
        ('{"format": "tensortide plan", "version": 99}', "has plan format 99"),
        ('{"format": "tensortide plan", "version": 1}', "does not hold a valid plan"),
        ('{"format": "tensortide plan", "version": 1, "plan": {"graph": "", "lanes": [{}]}}', "does not hold"),
    ],
)
def test_other_files_are_refused_in_one_line(content: str | bytes, what: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(PlanFileError, match=what) as caught:
        load_plan(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(PlanFileError, match="cannot read"):
        load_plan(tmp_path / "none.json")
    with pytest.raises(OutputError, match="does not exist"):
        save_plan(Plan("", ()), tmp_path / "none" / "plan.json")


def test_the_file_is_short_and_readable(tmp_path: Path) -> None:
    plan = Plan("ab", (Lane("cpu", (Compute(3), Evict(1), Send(2, 0))),))
    written = json.loads(save_plan(plan, tmp_path / "p.json").read_text())
    assert written == {
        "format": "tensortide plan",
        "version": 1,
        "tensortide": VERSION,
        "plan": {
            "graph": "ab",
            "lanes": [{"device": "cpu", "steps": [["compute", 3], ["evict", 1], ["send", 2, 0]]}],
        },
    }


@given(graphs())
def test_the_captured_order_is_valid(graph: Graph) -> None:
    plan = in_order(graph, range(len(graph)), "cpu")
    validate(plan, graph)
    assert plan.order == tuple(range(len(graph)))


def written_twice() -> Graph:
    """0: x -> a;  1: a += 1;  2: a -> b;  3: a, b -> c."""
    builder = Builder()
    x = builder.storage(8, Role.INPUT)
    a, b, c = (builder.storage(8, birth=i, death=4) for i in (0, 2, 3))
    builder.op([x], [a], name="test.make.default")
    builder.op([a], [a], mutated=(0,), name="test.write.default")
    builder.op([a], [b], name="test.read.default")
    builder.op([a, b], [c], name="test.last.default")
    return builder.graph()


def lane(graph: Graph, *steps: Step) -> Plan:
    return Plan(graph.index.digest, (Lane("cpu", steps),))


@pytest.mark.parametrize(
    ("order", "what"),
    [
        ((1, 0, 2, 3), r"step 0 computes op 1 .test.write.default., which needs storage 1; it is not resident"),
        ((0, 2, 1, 3), r"step 1 computes op 2 .* as written by op 1 .* it was last written by op 0"),
        ((0, 1, 1, 2, 3), r"step 2 computes op 1 .* as written by op 0 .* it was last written by op 1"),
        ((0, 1, 2), r"op 3 .test.last.default. is never computed"),
        ((0, 1, 2, 7), r"step 3 computes op 7 of 4"),
    ],
)
def test_a_wrong_step_is_named(order: tuple[int, ...], what: str) -> None:
    graph = written_twice()
    with pytest.raises(PlanError, match=what):
        validate(in_order(graph, order, "cpu"), graph)


def test_what_is_evicted_is_computed_again_with_every_write() -> None:
    graph = written_twice()
    again = (Compute(0), Compute(1), Compute(2), Evict(1), Compute(0), Compute(1), Compute(3))
    validate(lane(graph, *again), graph)
    with pytest.raises(PlanError, match="last written by op 0"):
        validate(lane(graph, *again[:5], Compute(3)), graph)
    with pytest.raises(PlanError, match="step 3 evicts storage 2, which is not resident"):
        validate(lane(graph, Compute(0), Compute(1), Evict(1), Evict(2)), graph)
    with pytest.raises(PlanError, match="is not an order"):
        lane(graph, *again).order  # noqa: B018


def test_a_view_is_made_before_it_is_used() -> None:
    builder = Builder()
    x = builder.storage(8, Role.INPUT)
    part = builder.view(x, 4)
    builder.op([x], [part])
    builder.op([part], [builder.storage(4, birth=1)])
    graph = builder.graph()
    with pytest.raises(PlanError, match=r"step 0 computes op 1 .* before op 0 .*, which makes a view that it uses"):
        validate(in_order(graph, (1, 0), "cpu"), graph)


def test_plans_of_other_graphs_and_what_cannot_be_checked_yet() -> None:
    graph = written_twice()
    with pytest.raises(PlanError, match="another graph"):
        validate(in_order(Builder().graph(), (), "cpu"), graph)
    with pytest.raises(PlanError, match="a plan of 2 lanes"):
        validate(Plan(graph.index.digest, (Lane("a", ()), Lane("b", ()))), graph)
    with pytest.raises(PlanError, match="step 0 is Send"):
        validate(lane(graph, Send(0, 0)), graph)


def test_a_plan_is_told_in_a_line_by_kinds_of_steps() -> None:
    plan = Plan(
        "0123456789abcdef", (Lane("cpu", (*map(Compute, range(1200)), Evict(3), Compute(3))), Lane("cuda:0", ()))
    )
    assert repr(plan) == "<Plan of graph 0123456789ab: <Lane cpu: 1,201 compute, 1 evict>, <Lane cuda:0: empty>>"
    assert plan != Plan(plan.graph, plan.lanes[:1])
    assert pickle.loads(pickle.dumps(plan)) == plan
