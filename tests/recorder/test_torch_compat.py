"""Versions of PyTorch: those that are too old are refused in one line at every door, and what is missing is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tensortide.errors import ExitStatus
from tensortide.recorder.torch_compat import by_op, found
from tests.marks import some_slow

OLD = '__version__ = "2.3.1+cpu"\n'
ABSENT = "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n"
BROKEN = "raise OSError('libcudart.so.12: cannot open shared object file')\n"
DOORS = {
    "capture": "import tensortide\ntensortide.capture(print)",
    "budget": "import tensortide\ntensortide.budget('1GiB')",
    "live": "import tensortide\ntensortide.live.LiveLog",
    "report": "from tensortide.cli import main\nmain(['report', 'gpt2'])",
    "run": "from tensortide.cli import main\nmain(['run', 'gpt2', '--budget', '1GiB'])",
    "time": "from tensortide.cli import main\nmain(['time', 'gpt2', '--measure'])",
}


def with_torch(folder: Path, text: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` where ``import torch`` runs ``text``."""
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("door", some_slow(DOORS, {"run", "time"}))
def test_a_version_that_is_too_old_is_refused_in_one_line(door: str, tmp_path: Path) -> None:
    done = with_torch(tmp_path, OLD, DOORS[door])
    last = done.stderr.rstrip().splitlines()[-1]
    by_verb = DOORS[door].startswith("from tensortide.cli")
    assert done.returncode == (ExitStatus.CANNOT if by_verb else 1)
    assert last.endswith("this needs PyTorch 2.4 or newer, and 2.3.1+cpu is installed: pip install --upgrade torch")
    assert done.stderr.count("\n") == 1 or not by_verb


@pytest.mark.parametrize(("text", "says"), [(ABSENT, "is not installed"), (BROKEN, "libcudart.so.12")])
def test_a_torch_that_cannot_be_imported_is_one_line(text: str, says: str, tmp_path: Path) -> None:
    done = with_torch(tmp_path, text, DOORS["report"])
    assert (done.returncode, done.stderr.count("\n")) == (ExitStatus.CANNOT, 1)
    assert done.stderr.startswith("error: this needs PyTorch, which")
    assert says in done.stderr


def test_ops_that_this_version_does_not_have_are_left_out_of_tables() -> None:
    rows = {"aten.mm.default": 1, "aten.mm.another": 2, "aten.no_such_op.default": 3, "nobodys.mm.default": 4}
    assert by_op(rows) == {torch.ops.aten.mm.default: 1}


def test_a_name_that_this_version_does_not_have_is_none() -> None:
    assert found("torch.nn.Linear") is torch.nn.Linear
    assert found("torch.nn.NoSuchLayer") is None
    assert found("torch.no_such_module.name") is None
