"""``tensortide experiment``: trials listed, run, resumed after kill -9, compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import tensortide
from tensortide.studies.experiment.request import TrialsRequest
from tensortide.studies.experiment.results import RESULTS
from tests.cli.command import called, fails, run
from tests.graphs import path_of

WORKLOAD = """
import torch
from torch import nn

def perceptron(batch=512, width=16, layers=6):
    with open({log!r}, "a") as file:
        file.write("built\\n")
    model = nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.Tanh())))
    optimizer, x = torch.optim.SGD(model.parameters(), 0.1), torch.randn(batch, width)
    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()
    return step
"""
TABLE = """
name = "small"
[[runs]]
workload = "{workload}"
mode = [{modes}]
policy = ["dtr-eq", "lru"]
budget = [0.97, 0.9]
repeats = 2
threads = 1
{more}
"""


def written(folder: Path, modes: str = '"simulated", "live"', more: str = "", workload: str = "") -> Path:
    """The file of an experiment, beside its workload, which writes a line whenever it is built."""
    (folder / "train.py").write_text(WORKLOAD.format(log=str(folder / "builds")))
    path = folder / "small.toml"
    path.write_text(TABLE.format(workload=workload or f"{folder / 'train.py'}:perceptron", modes=modes, more=more))
    return path


def test_a_dry_run_lists_the_trials_and_runs_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path)
    found = json.loads(run(capsys, "experiment", path, "--dry-run", "--json", "--out", tmp_path / "out"))
    assert "train.py:perceptron" in json.dumps(found)
    assert "10 trials: 10 not run" in json.dumps(found)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "builds").exists()
    only = run(capsys, "experiment", path, "--dry-run", "--only", "*/lru")
    assert "6 trials: 6 not run" in only


def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, more="polcy = 3")
    error = fails(capsys, "experiment", path, status=2)
    assert error == f"error: {path}: runs[0]: there is no key 'polcy'; did you mean policy?\n"
    path = written(tmp_path)
    assert "no trial is called nothing/*" in fails(capsys, "experiment", path, "--only", "nothing/*", status=2)
    assert "has no results of an experiment" in fails(capsys, "experiment", "compare", tmp_path, tmp_path, status=2)


def test_a_cluster_is_that_of_the_command_line_or_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, modes='"simulated"')
    run(capsys, "experiment", path, "--dry-run", "--cluster", "auto")
    assert TrialsRequest(target=path, cluster="auto").experiment().cluster == "auto"
    path.write_text('cluster = "local"\n' + path.read_text())
    assert TrialsRequest(target=path).experiment().cluster == "local"


def lines(out: Path) -> list[bytes]:
    """The finished trials, a line each."""
    return (out / RESULTS).read_bytes().splitlines()[1:] if (out / RESULTS).exists() else []


def keys(of: list[bytes]) -> list[str]:
    return [json.loads(line)["key"] for line in of]


@pytest.mark.slow
def test_simulated_trials_of_a_saved_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, modes='"simulated"', workload=str(path_of("mlp_activations")))
    out = tmp_path / "out"
    shown = run(capsys, "experiment", path, "--out", out, "--jobs", 2)
    assert "5 trials: 5 ok" in shown
    for name in ("experiment.html", "results.csv", "summary.csv"):
        assert f"wrote {out / name}" in shown
    assert len((out / "results.csv").read_text().splitlines()) == 6
    found = tensortide.experiment(path, out=out, dry_run=True)
    assert {line.status for line in found.lines} == {"ok"}
    assert min(line.slowdown or 0 for line in found.lines) == 1
    again = fails(capsys, "experiment", "compare", out, tmp_path / "none", status=2)
    assert "has no results of an experiment" in again
    assert "0 of 5 trials differ" in run(capsys, "experiment", "compare", out, out)


@pytest.mark.slow
def test_failures_are_a_line_each_and_the_other_trials_go_on(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def step():\n    raise ValueError('my own fault')\n")
    path = written(
        tmp_path,
        modes='"simulated"',
        workload=str(path_of("mlp_activations")),
        more="""
[[runs]]
workload = "broken.py:step"
[[runs]]
workload = "mlp"
policy = "lru"
budget = "1KiB"
""",
    )
    done = called(tmp_path, "experiment", str(path), "--jobs", "2", "--out", "out")
    assert done.returncode == 3  # a failure is no answer
    assert "my own fault" in "".join(log.read_text() for log in (tmp_path / "out/logs").glob("*.txt"))
    warned = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert sorted(line.partition(": ")[2][:39] for line in warned) == [
        "broken.py:step simulated none: failed: ",
        "mlp simulated lru 1.00 KiB: infeasible:",
    ]
    assert "8 trials: 6 ok, 1 infeasible, 1 failed" in done.stdout


@pytest.mark.slow
def test_kill_9_in_the_middle_repeats_no_finished_trial(tmp_path: Path) -> None:
    path, out = written(tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "tensortide", "experiment", str(path), "--out", str(out), "--jobs", "2"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(lines(out)) < 4:
            assert process.poll() is None
            time.sleep(0.1)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    before = lines(out)
    assert 4 <= len(before) < 10
    done = called(tmp_path, "experiment", str(path), "--out", str(out), "--jobs", "2")
    assert done.returncode == 0, done.stderr
    after = lines(out)
    assert after[: len(before)] == before
    assert len(after) == 10
    assert max(Counter(keys(after)).values()) == 1
    live = [one for line in after if (one := json.loads(line)["outcome"])["trial"].get("mode") == "live"]
    assert len(live) == 5
    for one in live:
        assert len(one["repetitions"]) == 2
        assert one["process_peak_bytes"] > one["process_start_bytes"] > one["repetitions"][0]["peak_bytes"]
    table = (out / "summary.csv").read_text().splitlines()
    assert len(table) == 11
    page = (out / "experiment.html").read_text()
    assert "small" in page
