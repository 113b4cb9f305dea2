"""``tensortide metrics``, as a person runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from tensortide.measures import load_status
from tests.cli.command import called


def test_the_table_and_its_files(tmp_path: Path) -> None:
    run = called(
        tmp_path, "metrics", "mlp", "--layers", "module", "-o", "a.status.json", "--csv", "values=a.csv", "--long"
    )
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert any(line.split()[:3] == ["FLOPs", "1.03", "GFLOP"] for line in lines)
    assert any(line.startswith("not available: activation_peak (the step has a backward") for line in lines)
    assert any(line.split()[:2] == ["0", "Linear"] for line in lines)
    rows = {row["name"]: row for row in csv.DictReader((tmp_path / "a.csv").read_text().splitlines())}
    saved = load_status(tmp_path / "a.status.json")
    assert int(rows["total_params"]["value"]) == saved["total_params"].value == 2913290
    assert "no live model" in rows["execution_time"]["reason"]
    assert saved.of == {"workload": "mlp", "hyperparameters": saved.of["hyperparameters"]}


def test_data_for_scripts(tmp_path: Path) -> None:
    run = called(tmp_path, "metrics", "mlp", "--json", "--machine", "h100-sxm", "--exclude", "bytes")
    facts = json.loads(run.stdout)["sections"]["metrics"]["facts"]
    assert facts["flops"] == 1027202974
    assert 0 < facts["step_time_low_ns"] < facts["step_time_ns"] < facts["step_time_high_ns"]
    assert "bytes" not in facts


def test_what_is_refused(tmp_path: Path) -> None:
    run = called(tmp_path, "metrics", "mlp", "--exclude", "flop")
    assert run.returncode == 2
    assert "no metric 'flop'; did you mean flops?" in run.stderr
    run = called(tmp_path, "metrics", "mlp", "-o", "missing/a.status.json")
    assert run.returncode == 2
    assert "missing" in run.stderr
    assert not run.stdout


def test_a_saved_status_is_shown_again(tmp_path: Path) -> None:
    called(tmp_path, "metrics", "mlp", "-o", "a.status.json")
    run = called(tmp_path, "metrics", "a.status.json", "--exclude", "ops")
    assert run.returncode == 0, run.stderr
    assert any(line.split() == ["FLOPs", "1.03", "GFLOP"] for line in run.stdout.splitlines())
    run = called(tmp_path, "metrics", "a.status.json", "--layers", "op")
    assert run.returncode == 2
    assert "a.status.json is a saved status: --layers goes with a step" in run.stderr
