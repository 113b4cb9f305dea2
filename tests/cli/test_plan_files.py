"""Files of plans that are foreign, damaged, of another step or illegal are one clear message each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import called as command

STEP = ("mlp", "--set", "batch=4")


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that runs the ops of the step in order."""
    folder = tmp_path_factory.mktemp("plans")
    done = command(folder, "plan", "order", *STEP, "--plan", "plan.json")
    assert done.returncode == 0, done.stderr
    return folder / "plan.json"


def edited(plan_file: Path, steps: list[Any] | None = None, **fields: Any) -> str:
    """The plan with ``steps`` before its own, and with other fields."""
    content = json.loads(plan_file.read_text())
    content["plan"].update(fields)
    content["plan"]["lanes"][0]["steps"][:0] = steps or []
    return json.dumps(content)


def refused(tmp_path: Path, content: str) -> str:
    """The only line that ``tensortide run`` prints of a plan that it refuses."""
    (tmp_path / "bad.json").write_text(content)
    done = command(tmp_path, "run", *STEP, "--budget", "1GiB", "--policy", "bad.json")
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


def test_a_file_that_is_no_plan(plan_file: Path, tmp_path: Path) -> None:
    text = plan_file.read_text()
    assert "bad.json is damaged" in refused(tmp_path, text[: len(text) // 2])
    assert "bad.json is not a tensortide plan" in refused(tmp_path, '{"format": "recipe"}')
    assert "bad.json" in refused(tmp_path, text.replace('"lanes"', '"lanes":' + "[" * 50_000))
    assert "this release reads 1" in refused(tmp_path, text.replace('"version":1', '"version":99'))


@pytest.mark.parametrize("step", [["warp", 1], ["compute"], ["fetch", 1, 2], 7])
def test_a_step_that_there_is_not(plan_file: Path, tmp_path: Path, step: Any) -> None:
    assert "bad.json does not hold a valid plan" in refused(tmp_path, edited(plan_file, [step]))


@pytest.mark.parametrize(("kind", "number"), [("compute", -1), ("evict", 99_999), ("fetch", 10**40)])
def test_an_index_out_of_range(plan_file: Path, tmp_path: Path, kind: str, number: int) -> None:
    said = refused(tmp_path, edited(plan_file, [[kind, number]]))
    assert "bad.json does not" in said
    assert number > 2**63 or "step 0" in said


def test_a_plan_of_another_step(plan_file: Path, tmp_path: Path) -> None:
    said = refused(tmp_path, edited(plan_file, graph="0" * 16))
    assert "bad.json does not execute this step: the plan was made for another graph" in said
    assert "wrote it" not in said
    old = {**json.loads(edited(plan_file, graph="0" * 16)), "tensortide": "0.0.1"}
    assert "; it was written by tensortide 0.0.1 (this is " in refused(tmp_path, json.dumps(old))


def test_an_illegal_plan_says_step_storage_and_states(plan_file: Path, tmp_path: Path) -> None:
    content = json.loads(plan_file.read_text())
    steps = content["plan"]["lanes"][0]["steps"]
    said = refused(tmp_path, edited(plan_file, [["compute", steps[-1][1]]]))
    assert "does not execute this step: step 0 computes op" in said
    assert "which needs storage" in said
    assert "not resident" in said or "was last written" in said
    assert "which is not resident" in refused(tmp_path, edited(plan_file, [["evict", 0], ["evict", 0]]))
    assert "of which host has no copy" in refused(tmp_path, edited(plan_file, [["drop", 0, "host"]]))


def test_a_home_that_cannot_be(plan_file: Path, tmp_path: Path) -> None:
    assert "there are" in refused(tmp_path, edited(plan_file, home={"99999": "host"}))


def test_a_drive_that_refuses(plan_file: Path, tmp_path: Path) -> None:
    content = json.loads(plan_file.read_text())
    lane = content["plan"]["lanes"][0]
    lane["steps"] = [["copy", 0, "ssd"], ["drop", 0, "ssd"], *sorted(lane["steps"])]
    (tmp_path / "plan.json").write_text(json.dumps(content))
    run = ("run", *STEP, "--budget", "1GiB", "--policy", "plan.json", "--steps", "1")
    done = command(tmp_path, *run, "--offload-dir", "nowhere")
    assert done.returncode == 2
    assert "nowhere cannot take the" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert command(tmp_path, *run).returncode == 0
