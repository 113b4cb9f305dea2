"""``tensortide plan TARGET --budget`` as a user runs it: text, JSON, the plan it writes, errors."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tensortide.graph import load, save
from tensortide.plans import load_plan
from tensortide.replays import replay
from tensortide.timelines import timeline
from tests.cli.command import called
from tests.graphs import path_of
from tests.plans.dags import random_dag
from tests.recorder import test_ranks as ranks

UNDER = ("step.tide", "--budget", "80%", "--effort", "0.2")


def run(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = called(folder, "plan", *arguments)
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan")
    shutil.copy(path_of("mlp_activations"), path / "step.tide")
    save(random_dag(3, 12), path / "small.tide")
    save(random_dag(6, 12), path / "tight.tide")
    return path


def test_a_plan_of_a_real_step_fits_and_takes_the_time_that_is_printed(folder: Path) -> None:
    done = run(folder, *UNDER, "--json", "--plan", "plan.json")
    found = json.loads(done.stdout)["sections"]["plan"]
    facts, rivals = found["facts"], found["tables"]["rivals"]
    graph, plan = load(folder / "step.tide"), load_plan(folder / "plan.json")
    played = replay(graph, plan)
    whole = timeline(graph, lifetimes="last_use").peak_bytes
    assert facts["status"] == "fits"
    assert facts["recorded_peak_bytes"] == whole
    assert facts["budget_bytes"] == int(0.8 * whole)
    assert played.peak_bytes == facts["peak_bytes"] <= facts["budget_bytes"]
    assert facts["bound_ns"] <= facts["step_ns"]
    fitting = [ns for ns, reason in zip(rivals["step_ns"], rivals["reason"], strict=True) if reason == "fits"]
    assert facts["step_ns"] == min(fitting)
    added = sum(found["tables"]["recompute"]["time_ns"])
    assert facts["step_ns"] == facts["base_ns"] + added


@pytest.mark.parametrize(
    ("machine", "here", "words"),
    [
        ("t4", False, "on a machine with a GPU, tensortide run mlp"),
        ("t4", True, "tensortide run mlp"),
        ("local", False, "tensortide run mlp"),
    ],
)
def test_the_next_line_says_that_a_plan_for_a_gpu_runs_on_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str, here: bool, words: str
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: here)
    asked = ["mlp", "--machine", machine, "--budget", "90%", "--work-limit", "1000", "--plan", "gpu.json"]
    for setting in ("batch=2048", "inputs=8", "hidden=64", "layers=8"):
        asked += ["--set", setting]
    assert f"next: {words}" in run(folder, *asked).stdout


def test_the_plan_of_one_rank_leads_to_a_file_as_run_is_one_process(folder: Path) -> None:
    asked = (f"{ranks.__file__}:sharded", "--ranks", "2", "--budget", "120%", "--work-limit", "1000")
    assert "next: add --torch less.py" in run(folder, *asked).stdout


@pytest.mark.slow
def test_the_plan_of_a_script_is_followed_as_the_next_lines_say(tmp_path: Path) -> None:
    loop = "    for _ in range(4):\n        optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()\n"
    made = (
        "import torch, tensortide\nmodel = torch.nn.Sequential("
        "*[m for _ in range(6) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())])\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\nx = torch.randn(4096, 64)\n"
    )
    (tmp_path / "train.py").write_text(f"{made}if True:\n{loop}")
    asked = ("--budget", "80%", "--work-limit", "1000", "--plan", "t.json", "--", sys.executable, "train.py")
    capture, follow = re.findall("^next: (.*)", run(tmp_path, *asked).stdout, re.MULTILINE)
    assert capture == f"tensortide capture -o t.tide -- {sys.executable} train.py"
    assert called(tmp_path, *capture.split()[1:]).returncode == 0
    opened = re.fullmatch("in train.py, where training begins: (with .*:) the loop inside follows the plan", follow)
    assert opened is not None
    shown = "print(memory.usage.followed_steps)\n"
    (tmp_path / "train.py").write_text(f"{made}{opened[1][:-1]} as memory:\n{loop}{shown}")
    done = subprocess.run([sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 0


def test_the_text_says_whether_it_fits_and_what_to_compute_again(folder: Path) -> None:
    text = run(folder, *UNDER, "--work-limit", "10000").stdout
    share = r"\(80(\.0)? % of the peak without a budget\)"
    assert re.search(rf"Fits: \S+ KiB of \S+ KiB {share}; step .* -> .* \(\+\S+ %\)", " ".join(text.split()))
    assert re.search(r"0,2\S* x[23] of \d+ +Linear", text)


@pytest.mark.parametrize("limit", ["--work-limit", "--time-limit"])
def test_the_text_says_that_a_limit_ended_the_search(folder: Path, limit: str) -> None:
    text = run(folder, *UNDER, limit, "1" if limit == "--work-limit" else "0").stdout
    assert "ended early: more time or work (--time-limit, --work-limit) may find a better plan" in " ".join(
        text.split()
    )


def test_work_that_is_limited_finds_the_same_twice(folder: Path) -> None:
    def found() -> dict[str, object]:
        done = run(folder, *UNDER, "--work-limit", "10000", "--json")
        section = json.loads(done.stdout)["sections"]["plan"]
        assert not section["facts"]["complete"]
        return {**section["facts"], "search_s": None, "recomputed": section["tables"]["recompute"]}

    assert found() == found()


def test_a_budget_of_the_whole_peak_changes_nothing(folder: Path) -> None:
    done = run(folder, "step.tide", "--budget", "100%", "--json")
    facts = json.loads(done.stdout)["sections"]["plan"]["facts"]
    assert facts["step_ns"] == facts["base_ns"] == facts["bound_ns"]
    assert facts["proved"]
    assert "as it is" in run(folder, "step.tide", "--budget", "2.0").stdout


def test_what_does_not_fit_says_the_least_and_the_op_and_writes_no_plan(folder: Path) -> None:
    done = run(folder, "step.tide", "--budget", "1000B", "--plan", "none.json", code=1)
    assert re.search(
        r"Does not fit 1000 B \(.* % of the peak without a budget\): op \d+, \S+.* needs \S+ KiB by itself",
        " ".join(done.stdout.split()),
    )
    assert not (folder / "none.json").exists()


def test_a_search_that_finds_no_plan_and_excludes_none_is_undecided(folder: Path) -> None:
    done = run(folder, "tight.tide", "--budget", "2700B", "--time-limit", "0", "--json", code=4)
    facts = json.loads(done.stdout)["sections"]["plan"]["facts"]
    assert facts["status"] == "none found"
    assert facts["least_bytes"] <= facts["budget_bytes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "a budget is missing"),
        (("--budget", "5,6"), "2 budgets"),
        (("--budget", "much"), "no budget"),
        (("--budget", "80%", "--offload", "tape"), "tape"),
        (("--budget", "80%", "--ssd-memory", "1GiB"), "--ssd-memory goes with --offload ssd"),
        (("--budget", "80%", "--offload", "host", "--host-link", "0GB/s"), "no link"),
        (("--budget", "80%", "--order", "any"), "any"),
    ],
)
def test_a_wrong_option_is_one_message(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    done = called(folder, "plan", "small.tide", *arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_time_never_rises_along_the_frontier_and_its_bounds_are_below(folder: Path) -> None:
    done = run(
        folder, "frontier", "step.tide", "--points", "2", "--effort", "0.1", "--json", "--figure", "frontier.png"
    )
    table = json.loads(done.stdout)["sections"]["frontier"]["tables"]["points"]
    assert len(table["step_ns"]) == 2
    assert table["step_ns"] == sorted(table["step_ns"], reverse=True)
    assert table["budget_bytes"] == sorted(table["budget_bytes"])
    assert all(peak <= budget for peak, budget in zip(table["peak_bytes"], table["budget_bytes"], strict=True))
    assert all(low <= extra for low, extra in zip(table["bound_share"], table["extra_share"], strict=True))
    assert (folder / "frontier.png").stat().st_size > 1000
