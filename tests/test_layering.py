"""The import contracts in pyproject.toml hold, and each of them can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.conftest import ROOT

LAYERS = "Data only flows right"
FRAMEWORKS = "Only recorder, importers, profile, run and the examples know a framework"
EXAMPLES = "Examples are workloads like any other: only cli and recorder look them up"
TF1 = "TensorFlow's graphs are packages apart: no other room imports them"


def lint_imports(root: Path) -> tuple[int, str]:
    """Exit status and output of import-linter on the sources under ``root``."""
    command = [sysconfig.get_path("scripts") + "/lint-imports", "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the sources, to break."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_sources_keep_the_contracts() -> None:
    status, output = lint_imports(ROOT)
    assert status == 0, output
    for contract in (LAYERS, FRAMEWORKS, EXAMPLES, TF1):
        assert f"{contract} KEPT" in output


PLANTED = (
    ("graph", "import tensortide.cost", "tensortide.cost", LAYERS),
    ("cost", "import tensortide.memory", "tensortide.memory", LAYERS),
    ("memory", "import tensortide.cost", "tensortide.cost", LAYERS),
    ("recorder", "def late():\n    from tensortide import reports", "tensortide.reports", LAYERS),
    ("examples", "from tensortide import capture", "tensortide", LAYERS),
    ("cost", "import torch.nn", "torch", FRAMEWORKS),
    ("cli", "def late():\n    from transformers import GPT2Config", "transformers", FRAMEWORKS),
    ("reports", "import onnx", "onnx", FRAMEWORKS),
    ("reports", "import tensortide.examples", "tensortide.examples", EXAMPLES),
    (
        "cost",
        "def late():\n    import tensortide.importers.tensorflow.rules",
        "tensortide.importers.tensorflow.rules",
        TF1,
    ),
    (
        "formulas",
        "from tensortide.importers.tf1.load import import_graph",
        "tensortide.importers.tf1.load",
        TF1,
    ),
)


def test_planted_imports_break_their_contracts(copy: Path) -> None:
    """All at once; each is named where its contract is broken, and the room without a place. Capture may import a
    framework."""
    (copy / "src/tensortide/attic.py").write_text("")
    (copy / "src/tensortide/recorder/allowed.py").write_text("import torch.fx\n")
    for number, (room, statement, *_) in enumerate(PLANTED):
        (copy / f"src/tensortide/{room}/planted_{number}.py").write_text(f"{statement}\n")
    status, output = lint_imports(copy)
    assert status == 1, output
    for number, (room, _, imported, contract) in enumerate(PLANTED):
        assert f"{contract} BROKEN" in output
        broken = output.partition("Broken contracts")[2].partition(f"\n{contract}\n")[2]
        assert f"tensortide.{room}.planted_{number} -> {imported} " in broken, output
    assert "recorder.allowed" not in output
    assert "attic" in output, output
