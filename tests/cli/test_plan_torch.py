"""``plan --torch``: a file for PyTorch, or one message that says why there is none."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.cli.command import called
from tests.graphs import path_of

SIZES = [f"--set={s}" for s in ("layers=3", "hidden=32", "heads=2", "seq=64", "batch=16", "vocab=50", "positions=64")]
PLAN = ["plan", "gpt2", *SIZES, "--effort", "0.1", "--time-limit", "30"]


@pytest.mark.slow
def test_a_file_is_written_shown_and_written_anew(tmp_path: Path) -> None:
    for _ in range(2):
        done = called(tmp_path, *PLAN, "--budget", "75%", "--torch", "less.py", "--json")
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)["sections"]["torch_file"]
        assert "checkpoints" in shown["tables"]["torch_forms"]["name"]
        tree = ast.parse((tmp_path / "less.py").read_text())
        imported = {
            name
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not any(name.startswith("tensortide") for name in imported)


@pytest.mark.slow
def test_no_file_is_written_where_none_fits(tmp_path: Path) -> None:
    done = called(tmp_path, *PLAN, "--budget", "30%", "--torch", "less.py")
    assert done.returncode == 4
    assert "No file is written" in " ".join(done.stdout.split())
    assert not (tmp_path / "less.py").exists()


def test_a_program_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    done = called(tmp_path, *PLAN, "--budget", "75%", "--torch", "train.py")
    assert done.returncode == 2
    assert "train.py" in done.stderr
    assert (tmp_path / "train.py").read_text() == "x = 1\n"


def test_a_name_that_is_not_python_s_is_refused(tmp_path: Path) -> None:
    done = called(tmp_path, *PLAN, "--budget", "75%", "--torch", "less.json")
    assert done.returncode == 2
    assert "give a name that ends with .py" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_saved_graph_has_no_model_to_write_a_file_for(tmp_path: Path) -> None:
    done = called(tmp_path, "plan", str(path_of("gpt2")), "--budget", "75%", "--torch", "less.py")
    assert done.returncode == 2
    assert "name the workload that it was captured from" in done.stderr
    assert not (tmp_path / "less.py").exists()
