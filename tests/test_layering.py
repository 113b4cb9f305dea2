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


@pytest.mark.parametrize(
    ("module", "statement", "contract"),
    [
        ("graph/planted.py", "import tensortide.cost", LAYERS),
        ("cost/planted.py", "import tensortide.memory", LAYERS),
        ("memory/planted.py", "import tensortide.cost", LAYERS),
        ("recorder/planted.py", "def late():\n    from tensortide import reports", LAYERS),
        ("examples/planted.py", "from tensortide import capture", LAYERS),
        ("attic.py", "", LAYERS),
        ("cost/planted.py", "import torch.nn", FRAMEWORKS),
        ("cli/planted.py", "def late():\n    from transformers import GPT2Config", FRAMEWORKS),
        ("reports/planted.py", "import onnx", FRAMEWORKS),
        ("reports/planted.py", "import tensortide.examples", EXAMPLES),
        ("cost/planted.py", "def late():\n    import tensortide.importers.tensorflow.rules", TF1),
        ("formulas/planted.py", "from tensortide.importers.tf1.load import import_graph", TF1),
    ],
)
def test_a_planted_import_breaks_its_contract(copy: Path, module: str, statement: str, contract: str) -> None:
    planted = copy / "src" / "tensortide" / module
    planted.write_text(f"{statement}\n")
    status, output = lint_imports(copy)
    assert status == 1, output
    assert f"{contract} BROKEN" in output


def test_capture_may_import_a_framework(copy: Path) -> None:
    (copy / "src/tensortide/recorder/planted.py").write_text("import torch.fx\n")
    status, output = lint_imports(copy)
    assert status == 0, output
