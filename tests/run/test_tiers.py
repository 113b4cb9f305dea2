"""Plans that move storages, followed live: results bit for bit, the bytes of the serial replay, nothing left behind."""

from __future__ import annotations

import functools
import gc
import itertools
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.errors import PlanLeft, RunError
from tensortide.graph import Graph, Role
from tensortide.plans import Compute, Copy, Fetch, Lane, Offload, Plan, in_order
from tensortide.plans.events import play
from tensortide.plans.immovable import immovable
from tensortide.plans.instance import DEVICE, instance
from tensortide.plans.model import Step
from tensortide.plans.transfers.search import Transfers
from tensortide.replays import TransferTimeline, replay
from tensortide.replays.plan_actions import LONGEST_START
from tensortide.run.budget import Budget
from tensortide.run.movers import TransferMode
from tensortide.run.tiers import Room
from tensortide.timelines import timeline
from tensortide.timing.links import Link
from tests.run.follow_steps import Build, built, example, gpt2, graph_of, same_as_without, tower, traced
from tests.run.same import UNLIMITED

LINKS = (Link("host", Fraction(10**9), 0), Link("ssd", Fraction(10**8), 0))


@functools.cache
@functools.cache
def run_graph(build: Build) -> Graph:
    """The step as it runs under a budget."""
    return traced(built(build), UNLIMITED, graph_of(build)).steps[-1].recorded


def offloading(graph: Graph, links: tuple[str, ...] = ("host",), gap: int = 12, *, given: bool = False) -> Plan:
    """A plan that moves away whatever is not used for ``gap`` ops; with ``given``, parameters and their state too."""
    stated = instance(graph, "cpu", [1] * len(graph), workspace=False, pinned=immovable(graph))
    before: dict[int, list[Step]] = {}
    number = 0
    for s, storage in enumerate(stated.storages):
        users = [op for op, one in enumerate(stated.ops) if s in one.touches]
        if storage.pinned or not storage.nbytes or (storage.given and not given):
            continue
        for last, following in itertools.pairwise(users):
            if following - last > gap:
                link = links[number % len(links)]
                before.setdefault(last + 1, []).append(Offload(s, link))
                before.setdefault(following, []).append(Fetch(s, link))
                number += 1
    steps = [step for op in range(len(graph)) for step in (*before.get(op, ()), Compute(op))]
    return Plan(graph.index.digest, (Lane("cpu", tuple(steps)),))


def replayed(graph: Graph, plan: Plan) -> TransferTimeline:
    line = replay(graph, plan, links=LINKS, workspace=False, serial=True)
    assert isinstance(line, TransferTimeline)
    return line


@pytest.mark.parametrize(
    ("build", "links", "given"),
    [
        (tower, ("host",), True),
        (tower, ("host", "ssd"), False),
        pytest.param(gpt2, ("host", "ssd"), True, marks=pytest.mark.slow),
    ],
)
def test_a_plan_that_moves_storages_is_followed_bit_for_bit(build: Build, links: tuple[str, ...], given: bool) -> None:
    graph = run_graph(build)
    plan = offloading(graph, links, given=given)
    line, plain = replayed(graph, plan), replay(graph, in_order(graph, range(len(graph)), "cpu"), workspace=False)
    assert line.peak_bytes < plain.peak_bytes
    step = built(build)
    with Budget(UNLIMITED, plan, graph=graph, workspace=False, transfers="serial") as budget:
        assert budget.runtime is not None
        tiers = budget.runtime.engine.tiers
        assert tiers is not None
        for _ in range(3):
            step()
        moved = dict(tiers.moved_bytes)
    assert (budget.usage.followed_steps, budget.usage.left_steps, budget.usage.recomputations) == (3, 0, 0)
    assert same_as_without(build, step, 4)
    assert {name: 3 * nbytes for name, nbytes in line.played.moved_bytes.items() if nbytes} == moved
    told = budget.steps[-1]
    elsewhere = told.before_bytes - timeline(graph, workspace=False).start_bytes
    steps = zip(line.played.resident_bytes, line.played.steps, strict=True)
    played = [held for held, step in steps if isinstance(step, Compute)]
    stay = sum(int(graph.storages[s].nbytes) for s in immovable(graph))  # until the program releases them
    over = (told.resident - elsewhere - played)[LONGEST_START:-1]  # with the last op goes what it has used
    assert 0 <= over.min() <= over.max() <= stay
    assert budget.usage.peak_bytes - elsewhere == line.peak_bytes


def at_home_on_the_drive(graph: Graph) -> Plan:
    """A plan by which optimizer state is on the drive but while it is updated."""
    stated = instance(graph, "cpu", [1] * len(graph), workspace=False)
    home, before, after = dict[int, str](), dict[int, list[Step]](), dict[int, list[Step]]()
    for s, storage in enumerate(graph.storages):
        users = graph.index.users[s]
        if storage.role is Role.OPTIMIZER_STATE and stated.storages[s].persistent and len(users) < 4:
            home[s] = "ssd"
            before.setdefault(users[0], []).append(Fetch(s, "ssd"))
            after.setdefault(users[-1], []).append(Offload(s, "ssd"))
    assert len(home) > 10
    steps = [step for op in range(len(graph)) for step in (*before.get(op, ()), Compute(op), *after.get(op, ()))]
    return Plan(graph.index.digest, (Lane("cpu", tuple(steps)),), home)


def test_persistent_storages_live_on_their_tier() -> None:
    graph = run_graph(tower)
    plan = at_home_on_the_drive(graph)
    step = built(tower)
    with Budget(UNLIMITED, plan, graph=graph, workspace=False) as budget:
        for _ in range(3):
            step()
        assert budget.runtime is not None
        away = budget.runtime.engine.away_bytes
    assert budget.usage.followed_steps == 3
    assert same_as_without(tower, step, 4)
    assert away == sum(int(graph.storages[s].nbytes) for s in plan.home)


@pytest.mark.parametrize("warm", [0, 1])
def test_what_is_not_at_home_yet_keeps_to_the_limit(warm: int) -> None:
    """What a plan has away is resident when the budget is opened, or made by the first step, which departs."""
    graph = run_graph(tower)
    plan = at_home_on_the_drive(graph)
    step = built(tower, warm)
    away = sum(int(graph.storages[s].nbytes) for s in plan.home)
    with Budget(UNLIMITED) as probe:
        elsewhere = probe.resident_bytes - timeline(graph, workspace=False).start_bytes + (0 if warm else away)
    limit = elsewhere + replayed(graph, plan).peak_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlanLeft)
        with Budget(limit, plan, graph=graph, workspace=False) as budget:
            for _ in range(3):
                step()
    assert budget.usage.peak_bytes <= limit
    assert len(budget.steps) == 2 + warm  # they run the captured ops; what the policy recomputes at first is no plan's
    assert same_as_without(tower, step, 3 + warm)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ratio"),
    [("resnet18_cifar", 0.7), ("unet", 0.5), ("lstm", 0.7), ("gpt2", 0.5)],
)
def test_planned_transfers_take_the_peak_of_their_serial_replay(name: str, ratio: float) -> None:
    build = example(name)
    graph = run_graph(build)
    ops = [Compute(op) for op in range(len(graph))]
    stated = instance(graph, "cpu", [1000] * len(graph), links=LINKS, workspace=False, pinned=immovable(graph))
    search = Transfers(stated, int(play(stated, ops).peak_bytes * ratio))
    search.sequence(range(len(graph)), 4, "recorded order")
    assert search.best is not None
    home = {s: place for s, place in search.best.home.items() if place != DEVICE}
    plan = Plan(graph.index.digest, (Lane("cpu", search.best.steps),), home)
    step = built(build)
    with Budget(UNLIMITED, plan, graph=graph, workspace=False, transfers="serial") as budget:
        step()  # before it, all are on the device
        budget.reset()
        step()
        step()
    assert (budget.usage.left_steps, budget.usage.recomputations) == (0, 0)
    assert same_as_without(build, step, 4)
    away = sum(stated.storages[s].nbytes for s in home)
    elsewhere = budget.steps[-1].before_bytes - timeline(graph, workspace=False).start_bytes + away
    assert budget.usage.peak_bytes - elsewhere == replayed(graph, plan).peak_bytes <= search.budget_bytes


def test_what_the_program_has_released_is_not_copied() -> None:
    """A plan may copy what nothing touches any more; by then the bytes may be gone."""
    graph = run_graph(tower)
    stated = instance(graph, "cpu", [1] * len(graph), workspace=False, pinned=immovable(graph))
    late: dict[int, list[Step]] = {}
    for s, storage in enumerate(stated.storages):
        users = graph.index.users[s]
        if users and not (storage.given or storage.kept or storage.pinned):
            late.setdefault(min(len(graph), users[-1] + 3), []).append(Copy(s, "host"))
    steps = [step for op in range(len(graph)) for step in (*late.get(op, ()), Compute(op))] + late.get(len(graph), [])
    step = built(tower)
    with Budget(UNLIMITED, Plan(graph.index.digest, (Lane("cpu", tuple(steps)),)), graph=graph) as budget:
        for _ in range(3):
            step()
    assert budget.usage.followed_steps == 3
    assert same_as_without(tower, step, 4)


def test_what_a_plan_gives_up_is_there_if_the_program_reads_it() -> None:
    graph = run_graph(tower)
    step = built(tower)
    with Budget(UNLIMITED, offloading(graph), graph=graph, workspace=False):
        loss = step()
        got = loss.clone()
    again = built(tower)
    assert torch.equal(got, again())


def short() -> Any:
    return tower(2)


def test_many_steps_take_no_more_than_some() -> None:
    graph = run_graph(short)
    step = built(short)
    with Budget(UNLIMITED, offloading(graph, ("host", "ssd"), given=True), graph=graph, workspace=False) as budget:
        assert budget.runtime is not None
        engine, sizes = budget.runtime.engine, []
        for number in range(10):
            step()
            if number % 5 == 4:
                gc.collect()
                sizes.append((engine.memory, len(engine.memories), len(engine.calls), len(engine.exposed)))
    assert budget.usage.followed_steps == 10
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("build", "links", "transfers"),
    [
        *((tower, ("host",), "serial"), (tower, ("host", "ssd"), "overlapped")),
        pytest.param(gpt2, ("host",), "overlapped", marks=pytest.mark.slow),
    ],
)
def test_the_limit_may_be_the_peak_of_the_serial_replay(
    build: Build, links: tuple[str, ...], transfers: TransferMode
) -> None:
    """Transfers that run beside the ops take no more: what needs room waits until what leaves has gone."""
    graph = run_graph(build)
    plan = offloading(graph, links)
    step = built(build)
    with Budget(UNLIMITED) as probe:
        elsewhere = probe.resident_bytes - timeline(graph, workspace=False).start_bytes
    limit = elsewhere + replayed(graph, plan).peak_bytes
    with Budget(limit, plan, graph=graph, workspace=False, transfers=transfers) as budget:
        for _ in range(3):
            step()
    assert budget.usage.peak_bytes <= limit
    assert (budget.usage.followed_steps, budget.usage.recomputations) == (3, 0)
    assert same_as_without(build, step, 4)


def test_a_program_that_leaves_the_plan_gets_everything_back() -> None:
    graph = run_graph(tower)
    step = built(tower)
    backward = torch.Tensor.backward
    budget = Budget(UNLIMITED, offloading(graph, given=True), graph=graph)

    def steps() -> None:
        with budget:
            step()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(torch.Tensor, "backward", lambda loss: backward(loss * 1.0))
                step()
            step()

    with pytest.warns(PlanLeft):
        steps()
    assert budget.usage.left_steps == 1
    assert same_as_without(tower, step, 4)


def test_a_drive_without_room_is_one_error_before_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = run_graph(tower)
    plan = offloading(graph, ("ssd",))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RunError, match=r"cannot take the .* No such file or directory"):
        Budget(UNLIMITED, plan, graph=graph, offload_dir=tmp_path / "none").__enter__()
    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(RunError, match=r"cannot take the .* No space left on device. Name another folder"):
        Budget(UNLIMITED, plan, graph=graph, offload_dir=tmp_path).__enter__()
    with Budget(UNLIMITED):
        pass


def test_files_of_a_drive_have_no_name(tmp_path: Path) -> None:
    graph = run_graph(tower)
    step = built(tower)
    with Budget(UNLIMITED, offloading(graph, ("ssd",)), graph=graph, offload_dir=tmp_path) as budget:
        step()
        assert list(tmp_path.iterdir()) == []
    assert budget.usage.followed_steps == 1


def test_the_first_gap_of_a_tier_is_taken() -> None:
    room = Room(320)
    assert [room.take(n) for n in (64, 100, 1)] == [0, 64, 192]
    assert [room.take(n) for n in (1, 1)] == [256, None]
    room.leave(64)
    assert [room.take(n) for n in (1, 64, 1)] == [64, 128, None]
    assert room.most == 320
