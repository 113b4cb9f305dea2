"""Every benchmark runs through at its smallest setting, and records what it found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked_script import forked
from tests.reference import dtr_log, measured_times

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py") if path.stem != "harness")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the benchmarks, which import each other, whose results do not replace the recorded ones."""
    made = tmp_path / "benchmarks"
    shutil.copytree(BENCHMARKS, made, ignore=shutil.ignore_patterns("results", "__pycache__"))
    (made / "results").mkdir()
    return made


def run(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **paths()}, check=False)


def paths() -> dict[str, str]:
    """The path on which benchmarks find the tests."""
    return {"PYTHONPATH": os.pathsep.join([str(BENCHMARKS.parent), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_smallest_run_goes_through(
    folder: Path, reference: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "remat_throughput":
        dtr_log(reference, "unet-6")
    if name == "paleo" and not (reference / "placement" / "paleo_layers_totals.json.gz").is_file():
        pytest.skip("the results of the original Paleo are not committed")
    if name in ("predict_collectives", "predict_gpu", "scale_accuracy"):
        measured_times(reference)
    for key, value in paths().items():
        monkeypatch.setenv(key, value)
    done = forked(folder / f"{name}.py", "--smallest", "--write")
    assert done.returncode == 0, done.stderr
    stored = json.loads((folder / "results" / f"{name}.json").read_text("utf-8"))
    text = (folder / "results" / f"{name}.md").read_text("utf-8")
    assert text.startswith("# ")
    assert stored["machine"] in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(lines) == sum(1 + len(rows) for rows in stored["tables"].values()) > len(stored["tables"])
    assert set(lines) <= set(done.stdout.splitlines())


@pytest.mark.slow
def test_memory_of_a_rank_is_that_of_a_step_which_pytorch_divides(folder: Path) -> None:
    done = run(folder / "scale_cuda.py", "--write")
    assert done.returncode == 0, done.stderr
    (rows,) = json.loads((folder / "results" / "scale_cuda.json").read_text("utf-8"))["tables"].values()
    off = {row["case"]: row["bytes_off"] for row in rows}
    assert {name: value for name, value in off.items() if abs(value) > 0.01} == {}
    assert {"gpt2 one", "gpt2 recompute", "gpt2 tensor2", "llama pipeline2 rank1"} == off.keys()


def test_every_benchmark_is_listed() -> None:
    text = (BENCHMARKS / "README.md").read_text("utf-8")
    assert [name for name in NAMES if f"{name}.py" not in text] == []


HALVES = '''"""Halves.

    python halves.py

In numbers.
"""
import harness

def half(number):
    return number / 2

def measure(run):
    table = run.table({"of": "{of}", "half": "{half:.1f}"}, ("of",))
    for name, number in run.cases({"one": 1, "two": 2, "bad": "x"}).items():
        try:
            table.add({"of": name, "half": run.child(half, number)})
        except harness.ChildFailed as failed:
            run.note(str(failed))

harness.main(__doc__, measure)
'''


def test_rows_of_earlier_runs_stay(folder: Path) -> None:
    script = folder / "halves.py"
    script.write_text(HALVES)
    assert "TypeError" in run(script, "two", "bad", "--write").stdout
    done = run(script, "--smallest", "--write")
    assert done.stdout == "| of | half |\n|---|---:|\n| one | 0.5 |\n"
    text = (folder / "results" / "halves.md").read_text("utf-8")
    assert text.startswith("# Halves\n\n`python benchmarks/halves.py --write` on ")
    assert text.endswith(".\n\nIn numbers.\n\n| of | half |\n|---|---:|\n| two | 1.0 |\n| one | 0.5 |\n")
