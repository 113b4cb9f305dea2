"""Bad input at the command line: one clear message, a non-zero exit, no traceback, nothing half-written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import tensortide

WORKLOADS = """
import torch
from torch import nn

def ok(batch=2, width=8):
    m = nn.Linear(width, 4)
    x = torch.randn(batch, width)
    def step():
        loss = m(x).sum()
        loss.backward()
        return loss
    return step

def needs(batch, seq):
    return ok(batch)

def mismatched():
    m = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    return lambda: m(torch.randn(2, 9))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        if self.fc(x).sum() > 0:
            return x
        return -x

class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

def branching():
    m = Stack()
    return lambda: m(torch.randn(2, 4))

def dynamic():
    return lambda: torch.nonzero(torch.randn(4))

def returns_model():
    return nn.Linear(2, 2)

def returns_number():
    return 3

def undefined():
    return no_such_name

def leaves():
    raise SystemExit(3)

not_a_function = 5
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("errors")
    (path / "w.py").write_text(WORKLOADS)
    (path / "syntax.py").write_text("def f(:\n")
    (path / "imports.py").write_text("import not_there_at_all\n")
    (path / "exits.py").write_text("raise SystemExit(4)\n")
    (path / "junk.tide").write_bytes(b"\x80\x04K\x01." * 50)
    done = tensortide(path, "capture", "w.py:ok", "-o", "ok.tide")
    assert done.returncode == 0, done.stderr
    (path / "cut.tide").write_bytes((path / "ok.tide").read_bytes()[:100])
    (path / "folder").mkdir()
    return path


CASES = [
    ("count w.py:ok --html zz.html --figure zz.png", "there is nothing to draw"),
    ("count w.py:ok --html zz.html --figure zz", "there is nothing to draw"),
    ("report w.py:ok --html z.html --csv z.html", "two outputs go to z.html"),
    ("count w.py:ok --set batch=three", "w.py:ok: batch takes int (default 2), not 'three'"),
    ("count w.py:ok --set widht=2", "no hyperparameter 'widht'; did you mean width?"),
    ("count w.py:ok --set width", "--set takes key=value, not 'width'"),
    ("count w.py:needs", "w.py:needs needs a value for: batch, seq."),
    ("count w.py:mismatched", "w.py:19 in mismatched"),
    ("count w.py:branching", "aten._local_scalar_dense.default"),
    ("count w.py:branching", "w.py:26 in Block.forward: if self.fc(x).sum() > 0:"),
    ("count w.py:branching", "in module Stack.blocks.0"),
    ("count w.py:branching", "--real"),
    ("count w.py:dynamic", "aten.nonzero.default"),
    ("count w.py:returns_model", "returned a module (Linear), not a step"),
    ("count w.py:returns_number", "ran no op"),
    ("count w.py:undefined", "NameError: name 'no_such_name' is not defined"),
    ("count w.py:leaves", "raised SystemExit: 3"),
    ("count w.py:not_a_function", "is a int, not a function"),
    ("count w.py:nope", "w.py has no 'nope'"),
    ("count w.py", "write w.py:FUNCTION"),
    ("count nofile.py:f", "there is no file nofile.py"),
    ("count no.such.module:f", "there is no module 'no.such.module'"),
    ("count gpt3", "did you mean gpt2"),
    ("count :", "is no target"),
    ("count syntax.py:f", "syntax.py:1: def f(:"),
    ("count imports.py:f", "imports.py:1: import not_there_at_all"),
    ("count exits.py:f", "ended the program while it was imported"),
    ("count junk.tide", "junk.tide is nothing that tensortide reads"),
    ("count cut.tide", "cut.tide is damaged"),
    ("count missing.tide", "cannot read missing.tide"),
    ("count ok.tide --set batch=3", "ok.tide is a saved graph"),
    ("count ok.tide --explain nosuch", "no op 'nosuch'"),
    ("count ok.tide --explain 999", "no op 999: the graph has"),
    ("report ok.tide --trace none/x.json", "cannot write none/x.json"),
    ("report ok.tide --html ok.tide/new/x.html", "ok.tide is not a directory"),
    ("report ok.tide --html folder", "cannot write folder"),
    ("capture w.py:ok -o none/x.tide", "cannot write none/x.tide"),
]


@pytest.mark.parametrize(("command", "message"), CASES, ids=[f"{c} [{m[:20]}]" for c, m in CASES])
def test_one_clear_message(command: str, message: str, folder: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*") if "__pycache__" not in str(path))
    done = tensortide(folder, *command.split())
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""
    assert sorted(path.name for path in folder.rglob("*") if "__pycache__" not in str(path)) == before


USAGE = [
    ("count", "TARGET"),
    ("frobnicate", 'Unknown command "frobnicate"'),
    ("count ok.tide --depth x", "--depth"),
    ("count ok.tide --depth -1", "--depth"),
    ("count ok.tide other.tide", "Unexpected argument: other.tide."),
    ("count w.py:ok --set batch=1 width=4", "width=4 stands alone: write --set before each, as in --set width=4"),
    ("report ok.tide --htlm x", "--html?\nSee tensortide report --help."),
    ("report ok.tide --html", "--html requires an argument"),
    ("memory ok.tide --allocator other", "cuda"),
]


@pytest.mark.parametrize(("command", "message"), USAGE, ids=[command for command, _ in USAGE])
def test_wrong_usage_exits_with_2(command: str, message: str, folder: Path) -> None:
    done = tensortide(folder, *command.split())
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


@pytest.mark.parametrize("command", ["report w.py:undefined --trace none/x.json", "capture w.py:undefined -o none/x"])
def test_where_to_write_is_checked_before_the_work(command: str, folder: Path) -> None:
    assert "cannot write none/x" in tensortide(folder, *command.split()).stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_at_standard_output(folder: Path) -> None:
    command = [sys.executable, "-m", "tensortide", "report", "ok.tide"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=folder, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write to standard output: the disk is full.\n"


def test_real_captures_what_fake_cannot(folder: Path) -> None:
    done = tensortide(folder, "count", "w.py:branching", "--real")
    assert done.returncode == 0, done.stderr
    assert "addmm " in done.stdout
