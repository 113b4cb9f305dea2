"""Steps that move storages, measured: their transfers beside those predicted, and written as a plan again."""

from __future__ import annotations

import pytest

from tensortide.memory.accumulate import sums_in_place
from tensortide.plans import Copy, Fetch, Offload, validate
from tensortide.run.budget import Budget
from tensortide.run.link_speed import measured_links
from tensortide.run.measure import Compared, compared
from tensortide.run.movers import TransferMode
from tests.marks import some_slow
from tests.run.follow_steps import Build, built, gpt2, graph_of, loop, same_as_without, tower
from tests.run.same import UNLIMITED
from tests.run.test_tiers import offloading, replayed, run_graph


def followed(
    build: Build, transfers: TransferMode, links: tuple[str, ...] = ("host", "ssd")
) -> tuple[Budget, Compared]:
    graph = run_graph(build)
    step = built(build)
    budget = Budget(UNLIMITED, offloading(graph, links, given=True), graph=graph, workspace=False, transfers=transfers)
    with budget:
        for _ in range(3):
            step()
    return budget, compared(budget, budget.steps[-2:])


@pytest.mark.parametrize("transfers", ["overlapped", "serial"])
def test_transfers_are_compared_with_those_predicted(transfers: TransferMode) -> None:
    budget, both = followed(tower, transfers)
    assert both.traffic is not None
    assert budget.plan is not None
    assert budget.graph is not None
    predicted, measured = both.traffic
    played = replayed(budget.graph, budget.plan).played
    assert {name: one.moved_bytes for name, one in measured.items()} == played.moved_bytes
    assert {name: one.moved_bytes for name, one in predicted.items()} == played.moved_bytes
    for name, one in measured.items():
        taken = sum(t.ended_ns - t.began_ns for t in budget.steps[-1].transfers if t and t.engine.name == name)
        assert taken > 0
        assert one.busy_ns > 0
        if transfers == "serial":
            assert one.stall_ns >= one.busy_ns
            assert one.hidden_share == 0
    assert both.predicted.evictions == both.measured.evictions == 0
    if transfers == "serial":
        assert both.predicted.peak_bytes == both.measured.peak_bytes


def test_a_moving_plan_of_a_step_that_sums_gradients_in_place_is_compared_with_it() -> None:
    graph = graph_of(loop)
    assert sums_in_place(graph)
    step = built(loop)
    plan = offloading(graph, ("host",), given=True)
    with Budget(UNLIMITED, plan, graph=graph, workspace=False, transfers="serial") as budget:
        for _ in range(3):
            step()
    both = compared(budget, budget.steps[-2:])
    assert both.difference is not None
    assert not len(both.difference.only_a)
    assert not len(both.difference.only_b)
    assert both.predicted.peak_bytes == both.measured.peak_bytes
    assert both.predicted.evictions == both.measured.evictions


def test_lanes_of_a_measured_step_do_not_overlap_themselves() -> None:
    budget, _ = followed(tower, "overlapped")
    step = budget.steps[-1]
    assert step.lanes == ("cpu", "host out", "host in", "ssd out", "ssd in")
    for lane in range(1, len(step.lanes)):
        own = step.events.lane == lane
        starts, ends = step.events.start_ns[own], step.events.end_ns[own]
        assert own.sum() > 0
        assert (starts[1:] >= ends[:-1]).all()
        assert (ends >= starts).all()


@pytest.mark.parametrize("build", some_slow([tower, gpt2], [gpt2]))
def test_a_step_that_moved_storages_is_a_plan_again(build: Build) -> None:
    budget, _ = followed(build, "overlapped")
    step = budget.steps[-1]
    written, graph = step.plan(), step.recorded
    validate(written, graph)
    assert budget.plan is not None

    def moves(plan: object) -> set[object]:
        steps = plan.lanes[0].steps  # type: ignore[attr-defined]
        out = {(one.storage, one.link) for one in steps if isinstance(one, Copy | Offload)}
        return out | {one for one in steps if isinstance(one, Fetch)}

    assert moves(written) == moves(budget.plan)
    again = built(build)
    with Budget(UNLIMITED, written, graph=graph, workspace=False) as other:
        again()
        again()
    assert (other.usage.followed_steps, other.usage.recomputations) == (2, 0)
    assert same_as_without(build, again, 3)
    assert replayed(graph, written).peak_bytes == replayed(graph, budget.plan).peak_bytes


def test_all_steps_are_along_the_captured_one() -> None:
    """Gradients that it sums in place are summed in place."""
    graph = graph_of(gpt2)
    assert sums_in_place(graph)
    step = built(gpt2)
    budget = Budget(UNLIMITED, offloading(graph, given=True), graph=graph, workspace=False)
    with budget:
        for _ in range(3):
            step()
    assert budget.usage.followed_steps == len(budget.steps) == 3
    for live in budget.steps:
        assert live.recorded is budget.graph
        validate(live.plan(), graph)
    both = compared(budget, budget.steps[-2:])
    assert both.traffic is not None
    assert {k: v.moved_bytes for k, v in both.traffic[0].items()} == {
        k: v.moved_bytes for k, v in both.traffic[1].items()
    }


def test_links_are_measured(tmp_path_factory: pytest.TempPathFactory) -> None:
    links = measured_links(("host", "ssd"), 1 << 20, tmp_path_factory.mktemp("drive"))
    assert [link.name for link in links] == ["host", "ssd"]
    for link in links:
        assert 10**7 < link.bytes_per_s < 10**13
        assert link.in_bytes_per_s is not None
        assert 10**7 < link.in_bytes_per_s < 10**13
        assert 0 <= link.latency_ns < 10**8
