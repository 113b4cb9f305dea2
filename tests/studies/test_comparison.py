"""Static strategies and online policies on one step, measured alike."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import importlib.util
import json
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tensortide.errors import PlanError
from tensortide.executors import LOCAL, Where
from tensortide.graph import Phase, Role
from tensortide.plans import Compute
from tensortide.plans.checkpointing.optimum import optimum
from tensortide.plans.checkpointing.segments import chen_sqrt, revolve
from tensortide.plans.checkpointing.static import chain, static_graph
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tensortide.search_limit import SearchLimit
from tensortide.studies.remat import comparison, contenders
from tensortide.studies.remat.comparison import Comparison, Strategy, compare
from tensortide.studies.remat.contenders import made_up, within
from tensortide.studies.remat.subject import Subject
from tests.clocks import on_a_loaded_machine
from tests.graphs import Builder
from tests.plans.checkpointing.test_graphs import training
from tests.plans.dags import released


def contest(recording: Recording, ratios: Sequence[float], **options: Any) -> Comparison:
    subject = Subject("step", recording)
    budgets = [(int(ratio * subject.baseline_bytes), ratio) for ratio in ratios]
    return compare(subject, budgets, **{"policies": ("dtr-eq",), "optimum_time_s": 20.0, **options})


def named(found: Comparison, name: str) -> Strategy:
    return next(strategy for strategy in found.strategies if strategy.name == name)


def overheads(strategy: Strategy) -> list[float | None]:
    return [None if entry.point is None else entry.point.overhead for entry in strategy.entries]


def test_online_policies_on_chains_cost_what_was_published(reference: Path) -> None:
    with gzip.open(reference / "dtr" / "static_vs_simrd_linear.json.gz", "rt") as file:
        rows = [row for row in json.load(file) if row["graph"] == "unit" and row["strategy"].startswith("SIMRD:")]
    simulators = {n: Simulator(made_up(chain(n)), compat=True) for n in {row["n_fwd"] for row in rows}}
    for row in rows:
        name = row["strategy"].removeprefix("SIMRD:")
        simulator = simulators[row["n_fwd"]]
        if name == "inf":
            run = simulator.run("lru", compiled=False)
        else:
            run = simulator.run(name, row["solver_budget"], overhead_limit=2.0, compiled=False)
        published = (row.get("status", "ok"), row["cpu"], row["peak_ram"], row.get("remat", 0))
        assert (run.status, run.clock_ns - 1, run.peak_bytes, run.remat_ns) == published, row
    assert len(rows) == 220


def test_a_made_up_step_is_what_it_was_made_of() -> None:
    static = chain(5, cost_ns=range(1, 12), nbytes=range(11, 0, -1))
    recording = made_up(static, "chain")
    again = static_graph(recording.graph, recording.durations_ns)
    for name in ("cost_ns", "nbytes", "parents", "backward", "until", "kept", "fixed_bytes", "fixed_ns"):
        assert getattr(again, name) == getattr(static, name)
    kept = dataclasses.replace(static, kept=frozenset({10}))
    assert static_graph(made_up(kept).graph, kept.cost_ns).kept == {10}


def test_strategies_on_a_chain() -> None:
    found = contest(made_up(chain(8)), (1.0, 0.8, 0.6, 0.5, 0.2), overhead_limit=1.5)
    assert [nbytes for nbytes, _ in found.budgets] == [10, 8, 6, 5, 2]
    best = named(found, "Checkmate")
    assert overheads(best) == [1.0, 19 / 17, 21 / 17, 22 / 17, None]
    assert [entry.proved for entry in best.entries] == [True] * 4 + [False]
    assert best.entries[4].verdict == "infeasible"
    assert overheads(named(found, "dtr-eq"))[:4] == overheads(best)[:4]
    assert named(found, "dtr-eq").entries[4].verdict == "oom"
    assert overheads(named(found, "no recomputation")) == [1.0, None, None, None, None]
    sqrt, revolved = named(found, "Chen sqrt n").points[0], named(found, "Revolve").points
    assert sqrt.clock_ns == chen_sqrt(chain(8)).cost_ns == 21
    assert min(point.clock_ns for point in revolved) == revolve(chain(8), 8).cost_ns == 17
    assert overheads(named(found, "Revolve"))[0] == 1.0
    assert overheads(named(found, "checkpoint last"))[0] == 53 / 17
    assert [found.best_ns(number) for number in range(5)] == [17, 19, 21, 22, None]
    assert "every forward node" in named(found, "Chen greedy (art.)").skipped
    for strategy in found.strategies:
        for (nbytes, _), entry in zip(found.budgets, strategy.entries, strict=False):
            assert (entry.point is None) == (entry.verdict != "ok")
            assert entry.point is None or entry.point.peak_bytes <= nbytes
        assert all(
            p.planned_ns in (None, p.clock_ns) and p.planned_bytes in (None, p.peak_bytes) for p in strategy.points
        )


def test_online_policies_are_measured_as_plans_are() -> None:
    graph = training(8)
    recording = recorded(graph, [10 + i % 7 for i in range(len(graph))])
    found = contest(recording, (0.9, 0.8), policies=("dtr-eq", "lru", "auto"), optimum_time_s=0, overhead_limit=10.0)
    simulator = Simulator(recording)
    for name in ("dtr-eq", "lru"):
        for (nbytes, _), entry in zip(found.budgets, named(found, name).entries, strict=True):
            run = simulator.run(name, nbytes, overhead_limit=10.0)
            assert run.status == entry.verdict == "ok"
            plan = run.plan()
            clock = sum(recording.durations_ns[s.op] for s in plan.lanes[0].steps if isinstance(s, Compute))
            assert entry.point is not None
            assert (entry.point.clock_ns, entry.point.peak_bytes) == (clock, replay(graph, plan).peak_bytes)
    for auto, other in zip(named(found, "auto").entries, named(found, "dtr-eq").entries, strict=True):
        assert auto.point is not None
        assert other.point is not None
        assert auto.point.clock_ns <= other.point.clock_ns
    assert named(found, "Checkmate").skipped == named(found, "LP rounding").skipped == "no time was given to it"
    assert named(found, "Revolve").skipped == "the step is no chain"


def with_workspace(length: int = 5, width: int = 100) -> Recording:
    """A chain and its backward; the kernel of the loss takes a second buffer of its input's size."""
    builder = Builder()
    values = [builder.storage(width, Role.INPUT)]
    for layer in range(length):
        values.append(builder.storage(width, Role.ACTIVATION, birth=layer))
        builder.op(values[-2:-1], values[-1:])
    gradient = builder.storage(4, birth=length)
    builder.op([values[-1], values[0]], [gradient], name="aten.mse_loss.default")
    for seen in reversed(values[:-1]):
        grown = builder.storage(width, birth=len(builder.ops))
        builder.op([gradient, seen], [grown], phase=Phase.BACKWARD)
        gradient = grown
    graph = released(builder)
    return recorded(graph, [10] * len(graph))


def test_workspace_counts_for_planners_too() -> None:
    recording = with_workspace()
    found = contest(recording, (1.0, 0.8))
    assert found.workspace
    entry = named(found, "Checkmate").entries[1]
    budget = found.budgets[1][0]
    assert entry.verdict == "ok"
    assert entry.point is not None
    assert entry.point.planned_bytes is not None
    assert entry.planner_bytes is not None
    assert entry.point.planned_bytes <= entry.planner_bytes < budget
    assert entry.point.planned_bytes < entry.point.peak_bytes <= budget
    unaware = optimum(static_graph(recording.graph, recording.durations_ns), budget).plan
    assert unaware is not None
    assert unaware.cost_ns < entry.point.clock_ns


def test_bounds_grow_as_memory_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the solver says in the time it has: less memory never takes less time."""

    def unsure(static: Any, budget: int, time_s: float, *, work_limit: float | None) -> Any:
        found = optimum(static, budget, time_s, work_limit=work_limit)
        return msgspec.structs.replace(found, bound_ns=found.bound_ns - (2 if budget == 6 else 0))

    monkeypatch.setattr(comparison, "optimum", unsure)
    found = contest(made_up(chain(8)), (0.8, 0.6, 0.5))
    bounds = [entry.bound for entry in named(found, "Checkmate").entries]
    assert bounds == [19 / 17, 19 / 17, 22 / 17]
    assert [entry.proved for entry in named(found, "Checkmate").entries] == [True, False, True]


def test_what_cannot_be_played_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "NODES", 3)
    monkeypatch.setattr(contenders, "QUADRATIC_NODES", 3)
    found = contest(made_up(chain(3)), (1.0,))
    reasons = {strategy.name: strategy.skipped for strategy in found.strategies}
    assert reasons["Checkmate"] == reasons["LP rounding"] == reasons["checkpoint last"] == "7 nodes, more than 3"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "tensortide[solve]" in contenders.why_no_program(chain(3))
    monkeypatch.setattr(contenders, "MOST_NODES", 3)
    assert all(reason for _, _, reason in contenders.contenders(chain(3)))


def test_sweeps_end_in_time() -> None:
    plans = [revolve(chain(8), slots) for slots in (7, 2, 4)]
    assert within(plans, SearchLimit(seconds=60)) == ([plans[0], plans[2], plans[1]], True)
    assert within(plans, SearchLimit(seconds=0)) == ([plans[0]], False)
    assert within(plans, SearchLimit(work=len(plans[0].steps) + 1)) == (plans[:2], False)


def test_a_comparison_of_limited_work_is_the_same_on_a_loaded_machine() -> None:
    def find() -> comparison.Comparison:
        return contest(made_up(chain(6)), (0.6,), optimum_time_s=None, work_limit=20_000)

    assert on_a_loaded_machine(find) == find()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": ("nope",)}, "there is no policy 'nope'"),
        ({"overhead_limit": 0.5}, "below 1"),
        ({"overhead_limit": float("nan")}, "below 1"),
        ({"optimum_time_s": -1.0}, "no time to plan in"),
    ],
)
def test_what_is_asked_for_must_make_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        contest(made_up(chain(2)), (1.0,), **options)


class Killing(Subject):
    """Kills the first other process than ``parent`` that begins with it, once."""

    def __init__(self, *arguments: Any, mark: Path, parent: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.mark, self.parent = mark, parent
        if os.getpid() != parent:
            with contextlib.suppress(FileExistsError):
                mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)

    def __reduce__(self) -> tuple[Any, tuple[str, Recording]]:
        return partial(type(self), mark=self.mark, parent=self.parent), (self.name, self.recording)


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(2), Where(2, cluster=LOCAL)])
def test_contenders_side_by_side_are_the_same_where_a_worker_is_killed(tmp_path: Path, where: Where) -> None:
    subject = Killing("chain", made_up(chain(12)), mark=tmp_path / "killed", parent=os.getpid())
    budgets = [(int(ratio * subject.baseline_bytes), ratio) for ratio in (1.0, 0.8, 0.6, 0.5, 0.2)]
    told: list[str] = []
    found = compare(subject, budgets, ("dtr-eq", "lru"), where=where, progress=told.append)
    assert (tmp_path / "killed").exists()
    assert found == compare(subject, budgets, ("dtr-eq", "lru"))
    assert sum("of 20 plays and plans" in text for text in told) == 20
