"""``tensortide run`` with a plan, a comparison, and a plan written."""

from __future__ import annotations

import gc
import json
import re
import shlex
from pathlib import Path

import pytest

from tensortide import capture
from tensortide.cli import main
from tensortide.plans import Evict, load_plan
from tensortide.recorder.target import workload as find
from tensortide.replays import replay
from tensortide.run.budget import Budget
from tensortide.units import format_bytes
from tests.cli.test_run import output

SETTINGS = {"batch": 8, "seq": 16, "hidden": 16, "layers": 1, "heads": 2, "vocab": 64, "positions": 16}
STEP = ["gpt2", *(f"--set={key}={value}" for key, value in SETTINGS.items())]
RUN = [*STEP, "--steps", "1"]


@pytest.fixture(scope="module")
def limit() -> int:
    """Bytes that take evictions."""
    step = find("gpt2").function(**SETTINGS)
    step()
    gc.collect()
    with Budget(1 << 40) as budget:
        before = budget.resident_bytes
        step()
    return before + (budget.usage.peak_bytes - before) * 2 // 3


def test_a_plan_is_written_and_followed(limit: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    status, out, err = output(capsys, *RUN, "--budget", str(limit), "--plan", str(plan), "--compare")
    assert (status, err) == (0, "")
    assert f"wrote {plan}" in out
    for part in ("predicted", "measured", "Peak", "Evictions", "Recomputed ops", "Slowdown"):
        assert part in out
    assert any(isinstance(step, Evict) for step in load_plan(plan).lanes[0].steps)
    status, out, err = output(capsys, *RUN, "--budget", "1GiB", "--policy", str(plan), "--compare", "--json")
    assert (status, err) == (0, "")
    sections = json.loads(out)["sections"]
    figures = sections["run"]["facts"]
    assert figures["policy"] == str(plan)
    assert (figures["followed_steps"], figures["left_steps"]) == (2, 0)
    both = sections["difference"]["tables"]["figures"]
    for row, name in enumerate(both["title"]):
        if name in ("Peak", "Evictions", "Recomputed ops"):
            assert both["a"][row] == both["b"][row]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan of the step as an ordinary run does it, which sums gradients in place."""
    plan = str(tmp_path_factory.mktemp("plans") / "plan.json")
    with pytest.raises(SystemExit, match="0"):
        main(["remat", "simulate", *STEP, "--budget", "90%", "--policy", "dtr-eq", "--plan", plan])
    return plan


def test_the_simulators_plan_is_followed_and_compared(
    simulated: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    files = ["--trace", str(trace), "--figure", str(tmp_path / "figure.png")]
    status, out, err = output(
        capsys, *RUN, "--no-plain", "--budget", "1GiB", "--policy", simulated, "--compare", "--json", *files
    )
    assert (status, err) == (0, "")
    sections = json.loads(out)["sections"]
    assert (sections["run"]["facts"]["followed_steps"], sections["run"]["facts"]["left_steps"]) == (2, 0)
    both = sections["difference"]["tables"]["figures"]
    rows = {name: row for row, name in enumerate(both["title"])}
    for name in ("Peak", "Evictions", "Recomputed ops"):
        assert both["a"][rows[name]] == both["b"][rows[name]] > 0
    assert any(event["ph"] == "C" for event in json.loads(trace.read_text())["traceEvents"])
    assert (tmp_path / "figure.png").stat().st_size > 0


def test_without_a_budget_a_plan_is_followed_at_its_own_peak(
    simulated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = output(capsys, *RUN, "--no-plain", "--policy", simulated, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)["sections"]["run"]["facts"]
    plan = load_plan(simulated)
    assert facts["budget_bytes"] == replay(capture("gpt2", hyperparameters=SETTINGS), plan).peak_bytes
    assert facts["peak_bytes"] <= facts["budget_bytes"]
    assert facts["followed_steps"] == 2


def test_a_plan_that_takes_more_than_the_budget_is_said_not_to_be_followed(
    simulated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = output(capsys, *RUN, "--no-plain", "--policy", simulated, "--budget", "80%", "--json")
    assert (status, err) == (0, "")
    facts = json.loads(out)["sections"]["run"]["facts"]
    assert (facts["followed_steps"], facts["left_steps"]) == (0, 2)
    for nbytes in (facts["run_bytes"], facts["budget_bytes"]):
        assert format_bytes(nbytes) in facts["unfollowed"]
    assert facts["command"].endswith(f"--budget {facts['run_bytes']}")
    name, *again = shlex.split(facts["command"])
    assert (name, "--no-plain" in again) == ("tensortide", True)
    status, out, _ = output(capsys, *again[1:], "--json")
    facts = json.loads(out)["sections"]["run"]["facts"]
    assert (facts["followed_steps"], facts["left_steps"], facts["unfollowed"]) == (2, 0, "")


def test_a_budget_too_small_for_any_step_says_what_the_plan_takes(
    simulated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = output(capsys, *RUN, "--no-plain", "--policy", simulated, "--budget", "50%")
    assert status == 1
    assert "The plan cannot be followed: a run that follows it takes" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*RUN, "--budget", "1GiB", "--policy", "none.json"), "cannot read none.json"),
        ((*RUN, "--budget", "1GiB", "--plan", "/nowhere/plan.json"), "/nowhere does not exist"),
    ],
)
def test_bad_files_are_one_error(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str) -> None:
    status, out, err = output(capsys, *arguments)
    assert status != 0
    assert message in out + err
    assert "Traceback" not in out + err


def test_a_plan_of_other_settings_is_refused(simulated: str, capsys: pytest.CaptureFixture[str]) -> None:
    other = [word.replace("layers=1", "layers=2") for word in RUN]
    status, _, err = output(capsys, *other, "--budget", "1GiB", "--policy", simulated)
    assert status != 0
    assert "does not execute this step: the plan was made for another graph" in err
    ops, here = map(int, re.findall(r"(\d+) ops on cpu", err))
    assert 0 < ops < here
    assert "layers=2" in err


OTHER = """
import torch
from tensortide.errors import RunError
from tensortide.run.budget import current

def work():
    x = torch.ones(64)

    def step():
        try:
            current()
        except RunError:
            return x.sin().cos()
        return x.exp().sum()

    return step
"""


def test_results_are_shown_where_nothing_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "work.py").write_text(OTHER)
    plan = tmp_path / "plan.json"
    arguments = [f"{tmp_path / 'work.py'}:work", "--steps", "1", "--no-plain", "--budget", "1GiB"]
    for wanted, message in ((["--compare"], "can be compared"), (["--plan", str(plan)], "no plan was written")):
        status, out, err = output(capsys, *arguments, *wanted)
        assert (status, err.count("\n")) == (2, 1)
        assert message in err
        assert "Step under the budget" in out
        assert "wrote" not in out
    assert not plan.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "1GiB", "--trace", "t.json"), "give --compare too"),
        (("--budget", "1GiB", "--compiled", "--figure", "f.png"), "--compiled has no figure"),
    ],
)
def test_files_without_contents_are_refused_before_a_step(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work.py").write_text("def work():\n    raise SystemExit('it was built')\n")
    status, out, err = output(capsys, f"{tmp_path / 'work.py'}:work", *arguments)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err
