"""Files of experiments in ``examples``: each has the trials that its comment and docs/experiments.md say."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tensortide.examples import find
from tensortide.python_object import names_object
from tensortide.studies.experiment.grammar import read_experiment
from tensortide.studies.experiment.results import read_results
from tensortide.studies.experiment.trials import NONE
from tests.cli.command import fails, run
from tests.conftest import ROOT

FILES = ROOT / "examples/experiments"
TRIALS = {
    "budgets": 18,
    "rivals": 10,
    "pareto": 8 * (1 + 16 * 10),
    "ablation": 4 * (1 + 16 * 10),
    "banishing": 4 * (1 + 3 * 10),
    "accesses": 4 * (1 + 3 * 10),
    "large_inputs": 3 * 4 * 2,
    "prototype": 5 * (1 + 5),
}
"""The number of trials of each file, the baselines among them."""


def test_every_file_is_known_and_in_the_table_of_the_page() -> None:
    assert sorted(TRIALS) == sorted(path.stem for path in FILES.glob("*.toml"))
    text = (ROOT / "docs/experiments.md").read_text()
    for name in TRIALS:
        assert f"| `{name}.toml` |" in text


@pytest.mark.parametrize("name", TRIALS)
def test_a_dry_run_lists_its_trials(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = FILES / f"{name}.toml"
    found = json.loads(run(capsys, "experiment", path, "--dry-run", "--json", "--out", tmp_path / "out"))
    assert f"{TRIALS[name]} trials: {TRIALS[name]} not run" in json.dumps(found)
    trials = read_experiment(path).trials
    assert all(find(trial.workload) for trial in trials if not names_object(trial.workload))
    if name in ("large_inputs", "prototype"):
        assert {trial.mode for trial in trials} == {"live"}


@pytest.mark.slow
def test_one_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    shown = run(capsys, "experiment", FILES / "large_inputs.toml", "--only", "unet/*", "--out", out, "--jobs", 2)
    assert "8 trials: 8 ok" in shown
    rows = (out / "summary.csv").read_text().splitlines()
    assert len(rows) == 9
    assert sum(NONE in row for row in rows[1:]) == 4


@pytest.mark.slow
def test_simulated_trials_share_the_capture_of_their_workload(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, began = tmp_path / "out", time.monotonic()
    fails(capsys, "experiment", FILES / "accesses.toml", "--only", "unet/dtr-eq", "--out", out, status=1)
    assert len([*(out / "captures").glob("*.tide")]) == 1
    assert Counter(one.status for one in read_results(out).values()) == {"ok": 8, "infeasible": 3}
    took = {one.trial.budget_text: one.took_s for one in read_results(out).values()}
    assert sum(took.values()) - took[""] < took[""] < time.monotonic() - began
