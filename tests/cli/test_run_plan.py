"""``tensortide run`` with a plan, a comparison, and a plan written."""

from __future__ import annotations

import gc
import json
from pathlib import Path

import pytest

from tensortide.cli import main
from tensortide.plans import Evict, load_plan
from tensortide.recorder.target import workload as find
from tensortide.run.budget import Budget
from tests.cli.test_run import output

SETTINGS = {"batch": 8, "seq": 16, "hidden": 32, "layers": 2, "heads": 2, "vocab": 64, "positions": 16}
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
    for row, name in enumerate(both["figure"]):
        if name in ("Peak", "Evictions", "Recomputed ops"):
            assert both["a_value"][row] == both["b_value"][row]


def test_the_simulators_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.json")
    with pytest.raises(SystemExit, match="0"):
        main(["remat", "simulate", *STEP, "--budget", "90%", "--plan", plan])
    capsys.readouterr()
    status, out, err = output(capsys, *RUN, "--budget", "1GiB", "--policy", plan)
    assert (status, err) == (0, "")
    assert "Steps by plan or record" in out
    assert " of 2" in out


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


def test_a_plan_of_other_settings_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(tmp_path / "plan.json")
    with pytest.raises(SystemExit, match="0"):
        main(["plan", "order", *STEP, "--plan", plan])
    capsys.readouterr()
    other = [word.replace("batch=8", "batch=4") for word in RUN]
    status, _, err = output(capsys, *other, "--budget", "1GiB", "--policy", plan)
    assert status != 0
    assert "does not execute this step" in err
