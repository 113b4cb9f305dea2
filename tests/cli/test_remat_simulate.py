"""``tensortide remat simulate`` as a user runs it: what it says, what it writes, and how it fails."""

from __future__ import annotations

import contextlib
import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.graph import load
from tensortide.plans import load_plan
from tensortide.replays import replay
from tensortide.timelines import timeline
from tests.cli.command import called
from tests.graphs import path_of

POLICY = ("--policy", "dtr-eq")


def simulate(folder: Path, *arguments: str) -> str:
    done = called(folder, "remat", "simulate", "gpt2.tide", *arguments)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def planned(folder: Path, *arguments: str) -> str:
    """What is said of a run that fits; the first one compiles the search, which takes long enough to be told."""
    done = called(folder, "remat", "simulate", "mlp.tide", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inside(folder: Path, *arguments: str) -> object:
    """Exit code of the verb, run in this process."""
    with contextlib.chdir(folder), pytest.raises(SystemExit) as exited:
        main(["remat", "simulate", "gpt2.tide", *arguments])
    return exited.value.code


def error_of(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of a mistake, which must be the only thing that happens."""
    before = sorted(folder.iterdir())
    assert inside(folder, *arguments) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert sorted(folder.iterdir()) == before
    return said.err


def shown(text: str) -> Any:
    """The section of a run, from its JSON."""
    return json.loads(text)["sections"]["simulation"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simulate")
    shutil.copy(path_of("gpt2_cpu"), path / "gpt2.tide")
    shutil.copy(path_of("mlp_activations"), path / "mlp.tide")
    return path


@pytest.fixture(scope="module")
def told(folder: Path) -> str:
    """What a run that fits says; it writes everything that can be written."""
    files = ["--plan", "plan.json", "--html", "pages/page.html", "--csv", "sheets", "--figure", "memory.png"]
    return simulate(folder, "--budget", "80%", *POLICY, *files)


def test_a_run_that_fits(folder: Path, told: str) -> None:
    graph = load(folder / "gpt2.tide")
    assert told.startswith("gpt2 under ")
    assert "one step of " in told
    assert "policy dtr-eq" in told
    assert "A100" in told
    verdict = next(line for line in told.splitlines() if line.startswith("Fits "))
    assert "% time, peak " in verdict
    for title in ("Memory over the step", "Recomputed, by module", "Recomputed, by kind", "Evicted most"):
        assert title in told
    assert "blocks.[" in told
    played = replay(graph, load_plan(folder / "plan.json"))
    assert played.peak_bytes <= 0.8 * timeline(graph).peak_bytes


def test_its_files_agree(folder: Path, told: str) -> None:
    assert all(f"wrote {name}" in told for name in ("plan.json", "pages/page.html", "memory.png", "sheets"))
    played = replay(load(folder / "gpt2.tide"), load_plan(folder / "plan.json"))
    with (folder / "sheets" / "timeline.csv").open() as stream:
        events = list(csv.DictReader(stream))
    assert max(int(row["total_bytes"]) for row in events) == played.peak_bytes
    with (folder / "sheets" / "ops.csv").open() as stream:
        ops = list(csv.DictReader(stream))
    ran = sum(int(row["runs"]) + int(row["recomputations"]) for row in ops if row["graph_op"])
    assert ran == len(played.graph)
    sheets = {path.stem for path in (folder / "sheets").iterdir()}
    assert sheets == {"ops", "storages", "tensors", "timeline", "step", "modules", "kinds", "evicted"}
    assert (folder / "pages" / "page.html").read_text().startswith("<!doctype html>")
    assert (folder / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_json_and_a_plan_replayed(folder: Path, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = shown(simulate(folder, "--budget", "0.8", *POLICY, "--json"))
    facts = run["facts"]
    assert facts["status"] == "ok"
    assert run["notes"][0]["text"] in told
    assert facts["budget_bytes"] == int(facts["baseline_bytes"] * 0.8)
    assert facts["clock_ns"] == facts["model_ns"] + facts["remat_ns"]
    plan = shown(simulate(folder, "--policy", "plan.json", "--json"))
    assert plan["facts"]["status"] == "ok"
    assert plan["facts"]["budget_bytes"] is None
    for key in ("peak_bytes", "clock_ns", "recomputed"):
        assert plan["facts"][key] == facts[key]
    for key in ("modules", "kinds"):
        assert plan["tables"][key] == run["tables"][key]
    capsys.readouterr()
    assert inside(folder, "--policy", "plan.json", "--budget", "1MiB") == 1
    assert "The plan does not fit 1 MiB" in capsys.readouterr().out


def test_a_run_that_does_not_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = called(folder, "remat", "simulate", "gpt2.tide", "--budget", "30%", *POLICY, "--plan", "none.json")
    assert done.returncode == 1
    assert done.stderr == "error: no plan was written to none.json: the run did not end\n"
    assert not (folder / "none.json").exists()
    text = " ".join(done.stdout.split())
    assert "Does not fit " in text
    assert "dtr-eq fits from " in text
    assert "What could not be evicted" in text
    assert "parameter" in text
    budget = text.split("(--budget ")[1].split(")")[0]
    assert inside(folder, "--budget", budget, *POLICY) == 0
    assert "Fits " in capsys.readouterr().out


def test_the_best_of_all_policies_and_plans_is_the_default(folder: Path) -> None:
    best = shown(planned(folder, "--budget", "80%", "--plan", "best.json", "--json"))
    facts, others = best["facts"], best["tables"]["policies"]
    assert facts["policy"].startswith("auto: ")
    fitting = [ratio for ratio, status in zip(others["overhead"], others["status"], strict=True) if status == "ok"]
    assert facts["overhead"] <= min(fitting)
    played = replay(load(folder / "mlp.tide"), load_plan(folder / "best.json"))
    assert played.peak_bytes == facts["peak_bytes"] <= facts["budget_bytes"]


def test_advice_names_a_budget_for_which_a_plan_is_made_ahead(folder: Path) -> None:
    done = called(folder, "remat", "simulate", "mlp.tide", "--budget", "30%")
    assert done.returncode == 1
    text = " ".join(done.stdout.split())
    assert " fits from " in text
    budget = text.split("(--budget ")[1].split(")")[0]
    facts = shown(planned(folder, "--budget", budget, "--json"))["facts"]
    assert facts["status"] == "ok"
    assert facts["overhead"] <= 2


def test_mistakes_leave_nothing_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "a budget is missing" in error_of(folder, capsys)
    assert "there is no policy 'dtr-x'" in error_of(folder, capsys, "--budget", "80%", "--policy", "dtr-x")
    assert "'much' is no budget" in error_of(folder, capsys, "--budget", "much")
    assert "cannot read nothing.json" in error_of(folder, capsys, "--policy", "nothing.json")
    assert "is not a tensortide plan" in error_of(folder, capsys, "--policy", "gpt2.tide")
    assert "no/such does not exist" in error_of(folder, capsys, "--budget", "80%", "--plan", "no/such/plan.json")
    assert "is in no, which does not exist" in error_of(folder, capsys, "--budget", "80%", "--csv", "no/such")
    assert "a figure is a file that ends in" in error_of(folder, capsys, "--budget", "80%", "--figure", "memory.txt")
