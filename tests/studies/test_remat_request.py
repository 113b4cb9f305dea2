"""Python asks for experiments, simulations and contenders what the command line asks, with the same options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExitStatus, RequestError, TensortideError
from tensortide.executors.request import WorkerRequest
from tensortide.importers.dtrlog.write import write_log
from tensortide.request import Request, options
from tensortide.studies.remat.budgeted import Budgeted
from tensortide.studies.remat.linear import linear_network
from tensortide.studies.remat.request import (
    BanishingRequest,
    ContendersRequest,
    FiguresRequest,
    PlayedRequest,
    RematGrowthRequest,
    RematSweepRequest,
    RunsRequest,
    StepsRequest,
    answer,
    answer_contenders,
    answer_growth,
)
from tensortide.studies.remat.simulate import SimulateRequest
from tensortide.studies.remat.simulate import answer as simulated
from tensortide.targets.requests import CaptureRequest

ALONE = RunsRequest(workers=WorkerRequest(threads=1))


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> str:
    recording = linear_network(12)
    return str(write_log(recording.graph, [1000] * len(recording.graph), tmp_path_factory.mktemp("logs") / "chain.log"))


def steps(*targets: str, **given: Any) -> StepsRequest:
    return StepsRequest(targets=targets, **given)


def test_a_sweep_is_asked_from_python_with_texts_or_values(log: str) -> None:
    asked = RematSweepRequest(
        steps=steps(log, budgets="0.9,0.5"),
        policies="dtr, lru",
        runs=ALONE,
    )
    assert asked.policies == ("dtr", "lru")
    assert asked == RematSweepRequest(
        steps=steps(log, budgets=asked.steps.budgets), policies=("dtr", "lru"), runs=ALONE
    )
    found = answer(asked)
    assert [trial.cell.policy for trial in found.study.trials] == ["dtr", "dtr", "lru", "lru"]
    assert (found.study.kind, found.study.panels, len(found.graphs)) == ("sweep", ("chain",), 1)


def test_steps_have_the_names_that_an_author_gives_them(log: str) -> None:
    made = answer(
        RematSweepRequest(steps=steps(log, log, names="ResNet-32 (56), U-Net (6)"), policies="lru", runs=ALONE)
    )
    assert made.study.panels == ("ResNet-32 (56)", "U-Net (6)")
    with pytest.raises(RequestError, match="--names takes a name for each of 2 targets, not 1"):
        answer(RematSweepRequest(steps=steps(log, log, names="one"), policies="lru", runs=ALONE))


def test_a_run_says_whether_it_fits_a_budget(log: str) -> None:
    def run(budget: object) -> Budgeted:
        return simulated(SimulateRequest(target=log, budget=budget, policy="lru"))  # type: ignore[arg-type] # it is read

    assert [run(budget).outcome for budget in ("100%", "12B", "1B")] == ["ok", "ok", "oom"]
    assert [run(budget).status for budget in ("12B", "1B")] == [ExitStatus.HOLDS, ExitStatus.FAILS]
    with pytest.raises(RequestError, match="a budget is missing"):
        simulated(SimulateRequest(target=log))


def test_growth_and_contenders_are_asked_from_python() -> None:
    found = answer_growth(RematGrowthRequest(sizes="16,8", budgets=("n",), policies=("lru",), runs=ALONE))  # type: ignore[arg-type]
    assert [trial.at for trial in found.trials] == [8, 16]
    asked = ContendersRequest(target="chain:4", budgets="1.0", policies="lru", optimum_time=0)  # type: ignore[arg-type]
    comparison, graph = answer_contenders(asked)
    assert comparison.step.ops == len(graph)
    with pytest.raises(RequestError, match="chain:4 is made up"):
        answer_contenders(ContendersRequest(target="chain:4", step=PlayedRequest(capture=CaptureRequest(real=True))))


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (RematGrowthRequest, {"sizes": "16,0"}, "--sizes takes numbers of layers from 1 to 100,000"),
        (RematGrowthRequest, {"limit": 0.5}, "--limit takes a number from 1, not 0.5"),
        (ContendersRequest, {"target": "mlp", "budgets": "much"}, "'much' is no budget"),
        (ContendersRequest, {"target": "mlp", "work_limit": -1}, "--work-limit takes a finite number from 0, not -1"),
        (SimulateRequest, {"target": "mlp", "budget": "1,2"}, "tensortide remat sweep takes many"),
        (SimulateRequest, {"target": "mlp", "deallocation": "drop"}, "--deallocation takes eager, none, banish or"),
        (
            FiguresRequest,
            {"steps": steps("mlp"), "folder": Path("x"), "formats": ("gif",)},
            "--format takes pdf, svg",
        ),
    ],
)
def test_a_request_that_means_nothing_is_an_error(kind: type[Request], given: dict[str, Any], why: str) -> None:
    with pytest.raises(TensortideError, match=why):
        kind(**given)


def test_a_policy_that_is_none_is_an_error_before_any_step_is_read() -> None:
    with pytest.raises(TensortideError, match="there is no policy 'best'"):
        answer(RematSweepRequest(steps=steps("missing.log"), policies=("best",)))
    with pytest.raises(TensortideError, match="there is no policy to play"):
        answer(RematSweepRequest(steps=steps("missing.log"), policies=()))


def test_the_options_of_a_question_stand_before_those_that_it_shares() -> None:
    assert [one.name for one in options(RematSweepRequest)][:4] == [
        "TARGETS",
        "--policies",
        "--deallocation",
        "--budgets",
    ]
    assert "--deallocation" not in {one.name for one in options(BanishingRequest)}
