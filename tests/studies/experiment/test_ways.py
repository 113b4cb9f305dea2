"""Simulated trials of a stored step: every way to run one stays within its budget, or says why not."""

from __future__ import annotations

import pytest

from tensortide.errors import BudgetInfeasible, PlanError, TensortideError
from tensortide.plans import Compute
from tensortide.replays import replay
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.budgets import Budget
from tensortide.studies.experiment.captures import requested
from tensortide.studies.experiment.results import Repetition
from tensortide.studies.experiment.trials import NONE, RIVALS, Trial
from tensortide.studies.experiment.ways import Asked, batch_of, in_recorded_order, plan_of, simulated
from tensortide.targets.recordings import recorded_step
from tests.graphs import path_of

STEP = str(path_of("mlp_activations"))


def played(policy: str, ratio: float | None = None, **keys: object) -> Repetition:
    """The only repetition of a trial, under a part of the peak without a budget."""
    peak = None if ratio is None else played(NONE).peak_bytes
    budget = None if ratio is None else Budget(ratio=ratio)
    trial = Trial(workload=STEP, policy=policy, budget=budget, search=2.0, **keys)  # type: ignore[arg-type]
    found: list[Repetition] = []
    simulated(
        Asked(trial=trial, budget_bytes=None if peak is None else int(peak * (ratio or 0)), baseline_bytes=peak),
        found.append,
    )
    return found[0]


SLOW = {"aot", "plan", "checkmate"}


@pytest.mark.parametrize(
    "policy",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in (*RIVALS, "dtr-eq", "lru")],
)
def test_every_way_runs_the_step_and_keeps_its_budget(policy: str) -> None:
    base, ratio = played(NONE), 0.97
    found = played(policy, None if policy in (NONE, "checkpoint") else ratio)
    assert found.step_ns >= base.step_ns
    if policy not in RIVALS or RIVALS[policy].takes == "a budget":
        assert found.peak_bytes <= ratio * base.peak_bytes
        assert found.recomputations
        assert found.step_ns == (found.base_ns or 0) + (found.recomputation_ns or 0)


@pytest.mark.parametrize("policy", ["dtr-eq", "plan", "checkmate"])
def test_a_budget_that_nothing_keeps_is_infeasible(policy: str) -> None:
    with pytest.raises(BudgetInfeasible):
        played(policy, 0.1)


def test_what_thrashes_is_given_up() -> None:
    with pytest.raises(BudgetInfeasible, match="given up at 1 times the time of the step"):
        played("dtr-eq", 0.97, limit=1.0)


@pytest.mark.slow
def test_a_plan_over_values_is_followed_in_recorded_order() -> None:
    trial = Trial(workload=STEP, policy="checkmate", budget=Budget(ratio=0.97), search=2.0)
    simulator = Simulator(recorded_step(STEP, requested(trial, measure=False)))
    budget = int(0.97 * simulator.baseline_bytes)
    plan = plan_of(Asked(trial=trial), simulator, budget)
    assert plan is not None
    ordered = in_recorded_order(plan, simulator)
    ops = [step.op for step in ordered.lanes[0].steps if isinstance(step, Compute)]
    firsts = [*dict.fromkeys(ops)]
    assert firsts == sorted(firsts) == [*range(len(simulator.recording.graph))]
    assert len(ops) == sum(isinstance(step, Compute) for step in plan.lanes[0].steps)
    assert replay(simulator.recording.graph, ordered).peak_bytes <= budget


def test_a_step_without_repeated_modules_has_no_blocks() -> None:
    trial = Trial(workload=str(path_of("word2vec")), policy="checkpoint")
    with pytest.raises(PlanError, match="no module of the step is repeated"):
        simulated(Asked(trial=trial), lambda found: None)


def test_a_workload_that_is_none_is_one_error() -> None:
    with pytest.raises(TensortideError, match="no example 'mpl'; did you mean mlp"):
        simulated(Asked(trial=Trial(workload="mpl")), lambda found: None)


def test_samples_of_a_step_are_a_number_that_a_hyperparameter_says() -> None:
    assert batch_of({"hidden": 4, "batch": 3}) == 3
    assert batch_of({"bs": 5}) == 5
    assert batch_of({"batch": "x"}) is None
