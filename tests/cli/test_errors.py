"""Bad input at the command line: one clear message, a non-zero exit, no traceback, nothing half-written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import called
from tests.marks import some_slow

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

@torch.library.custom_op("tests::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

@mix.register_fake
def like(x):
    return torch.empty_like(x)

def unknown():
    x = torch.ones(3)
    return lambda: mix(x)

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
    (path / "imports.py").write_text("import not_there_at_all\ndef f(): pass\n")
    (path / "exits.py").write_text("raise SystemExit(4)\ndef f(): pass\n")
    (path / "times.csv").write_text("op,ns\n")
    (path / "junk.tide").write_bytes(b"\x80\x04K\x01." * 50)
    done = called(path, "capture", "w.py:ok", "-o", "ok.tide")
    assert done.returncode == 0, done.stderr
    (path / "cut.tide").write_bytes((path / "ok.tide").read_bytes()[:100])
    (path / "folder").mkdir()
    (path / "tables").mkdir()
    for link, target in (
        ("link.html", "w.py"),
        ("link.png", "w.py"),
        ("link.tide", "w.py"),
        ("link.svg", "w.py"),
        ("step.html", "ok.tide"),
    ):
        (path / link).symlink_to(target)
    (path / "tables" / "ops.csv").symlink_to("../w.py")
    for link, target in (("a", "b"), ("b", "a"), ("a.tide", "a.tide"), ("a.py", "a.py")):
        (path / link).symlink_to(target)
    return path


CASES = [
    ("count w.py:ok --html zz.html --figure zz.png", "there is nothing to draw"),
    ("count w.py:ok --html zz.html --figure zz", "there is nothing to draw"),
    ("report w.py:ok --html z.html --csv z.html", "--html and --csv are one file, z.html"),
    ("report w.py:ok --csv ops=z.csv --csv z.csv", "--csv and --csv are one file, z.csv"),
    ("time ok.tide --from times.csv --csv times.csv", "--from and --csv are one file, times.csv"),
    ("time times.csv --csv times.csv", "TARGET and --csv are one file, times.csv"),
    ("count w.py:ok --set batch=three", "w.py:ok: batch takes int (default 2), not 'three'"),
    ("count w.py:ok --set widht=2", "no hyperparameter 'widht'; did you mean width?"),
    ("count w.py:ok --set width", "--set takes key=value, not 'width'"),
    ("count w.py:ok --set batch=-3", "w.py:ok: batch takes an integer from 1 up (default 2), not -3"),
    ("run w.py:ok --budget 1GiB --set batch=0", "w.py:ok: batch takes an integer from 1 up (default 2), not 0"),
    ("count w.py:ok --set batch=1.5", "w.py:ok: batch takes int (default 2), not '1.5'"),
    ("count w.py:ok --set batch=", "w.py:ok: batch needs a value: --set batch=VALUE"),
    ("count w.py:ok --set batch=9999999999999999999", "batch takes an integer below 2**63 (default 2)"),
    ("count w.py:needs --set batch=-1 --set seq=1", "w.py:needs: batch takes an integer from 1 up, not -1"),
    ("count w.py:ok --symbols all --values batch=-3", "--values takes name=1,2,3, not 'batch=-3'"),
    ("report gpt2 --set layers=-1", "gpt2: layers takes an integer from 0 up (default 12), not -1"),
    ("count w.py:needs", "w.py:needs needs a value for: batch, seq."),
    ("count w.py:mismatched", "w.py:31 in mismatched"),
    ("count w.py:returns_model", "returned a module (Linear), not a step"),
    ("count w.py:returns_number", "ran no op"),
    ("count w.py:undefined", "NameError: name 'no_such_name' is not defined"),
    ("count w.py:leaves", "raised SystemExit: 3"),
    ("count w.py:not_a_function", "is a int, not a function"),
    ("count w.py:nope", "w.py has no 'nope'"),
    ("count w.py", "w.py names no function. Write one of"),
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
    ("report ok.tide --html ok.tide", "cannot write ok.tide: a captured step is there"),
    ("report ok.tide --html w.py", "cannot write w.py: it exists and is not a result file"),
    ("capture w.py:ok -o w.py", "cannot write w.py: it exists and is not a result file"),
    *(
        (f"{command} {link}", f"cannot write {link}: it is a link to w.py: it exists and is not a result file")
        for command, link in (
            *((f"report ok.tide --{each}", "link.html") for each in ("html", "csv", "trace", "markdown", "memory-viz")),
            ("report ok.tide --figure", "link.png"),
            ("capture w.py:ok -o", "link.tide"),
            ("draw ok.tide -o", "link.svg"),
            ("time ok.tide -o", "link.html"),
            ("metrics ok.tide -o", "link.html"),
            ("remat simulate ok.tide --budget 90% --plan", "link.html"),
        )
    ),
    ("report ok.tide --html step.html", "it is a link to ok.tide: a captured step is there"),
    ("remat simulate ok.tide --budget 90% --plan ok.tide", "cannot write ok.tide: a captured step is there"),
    ("report ok.tide --csv tables", "cannot write tables/ops.csv: it is a link to tables/../w.py"),
    ("report ok.tide --html a", "cannot write a: its symbolic links form a loop"),
    (
        "report ok.tide --html a/x/y.html",
        "cannot write a/x/y.html: a is a symbolic link that does not lead to a directory",
    ),
    ("report ok.tide --csv a", "a is a symbolic link that does not lead to a directory"),
    ("report ok.tide --figure a", "a is a symbolic link that does not lead to a directory"),
    ("capture w.py:ok -o a", "cannot write a: its symbolic links form a loop"),
    ("count a.tide", "cannot read a.tide: Too many levels of symbolic links"),
    ("count a", "no example 'a'"),
    ("count a.py:f", "there is no file a.py"),
    ("memory ok.tide --idle --durations a", "Too many levels of symbolic links"),
    ("remat simulate ok.tide --budget 90% --policy a.json", "a.json"),
    ("capture w.py:ok -o none/x.tide", "cannot write none/x.tide"),
]


PROGRAMS_THAT_FAIL = ("mismatched", "undefined", "leaves", "syntax.py", "imports.py", "exits.py")


@pytest.mark.parametrize(("command", "message"), CASES, ids=[f"{c} [{m[:20]}]" for c, m in CASES])
def test_one_clear_message(command: str, message: str, folder: Path) -> None:
    before = sorted(path.name for path in folder.rglob("*") if "__pycache__" not in str(path))
    done = called(folder, *command.split())
    by_itself = any(name in command for name in PROGRAMS_THAT_FAIL)
    assert done.returncode == (3 if by_itself else 2)
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""
    assert sorted(path.name for path in folder.rglob("*") if "__pycache__" not in str(path)) == before


USAGE = [
    ("count", "TARGET"),
    ("frobnicate", 'Unknown command "frobnicate". Available'),
    ("repotr x", 'Did you mean "report"?'),
    ("gpt2 --html x", "gpt2 stands where a verb belongs: tensortide report gpt2"),
    ("w.py:ok", "tensortide report w.py:ok"),
    ("count ok.tide --depth x", "--depth takes a whole number from 0, not x"),
    ("count ok.tide --depth -1", "--depth takes a whole number from 0, not -1"),
    ("count ok.tide other.tide", "Unexpected argument: other.tide."),
    ("count w.py:ok --set batch=1 width=4", "width=4 stands alone: write --set before each, as in --set width=4"),
    ("report ok.tide --htlm x", "--html?\nSee tensortide report --help."),
    ("report ok.tide --html", "--html requires an argument"),
    ("memory ok.tide --allocator other", "cuda"),
]


@pytest.mark.parametrize(("command", "message"), USAGE, ids=[command for command, _ in USAGE])
def test_wrong_usage_exits_with_2(command: str, message: str, folder: Path) -> None:
    done = called(folder, *command.split())
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr + done.stdout


JSON_ERRORS = [
    ("count gpt3", 2, "WorkloadError", "no example 'gpt3'; did you mean gpt2?"),
    ("count w.py:unknown --strict", 3, "UnknownCost", "1 op has no cost rule"),
    ("count ok.tide --depth x", 2, "RequestError", "--depth takes a whole number from 0, not x"),
    ("count ok.tide --deph 3", 2, "UsageError", "--deph"),
    ("report ok.tide --trace none/x.json", 2, "OutputError", "cannot write none/x.json"),
    ("run w.py:ok", 2, "RequestError", "--budget"),
]


@pytest.mark.parametrize(("command", "status", "kind", "message"), JSON_ERRORS, ids=[each[0] for each in JSON_ERRORS])
def test_errors_are_objects_under_json(command: str, status: int, kind: str, message: str, folder: Path) -> None:
    done = called(folder, *command.split(), "--json")
    error = json.loads(done.stdout)
    assert done.returncode == status
    assert error == {
        "format": "tensortide.error",
        "schema_version": 1,
        "kind": kind,
        "message": done.stderr.removeprefix("error: ").removesuffix("\n"),
        "exit_status": status,
    }
    assert message in error["message"]


def test_a_run_that_does_not_fit_is_one_object_under_json(folder: Path) -> None:
    command = "remat simulate ok.tide --budget 1% --plan none.json --json"
    done = called(folder, *command.split())
    assert done.returncode == 1
    assert json.loads(done.stdout)["format"] == "tensortide.document"
    assert done.stderr == "error: no plan was written to none.json: the run did not end\n"


def test_a_name_is_proposed_only_if_it_is_close(folder: Path) -> None:
    for command in ("count w.py:ok --set zzz=1", "count zzz", "count w.py:qqqqq", "zzzzz"):
        assert "did you mean" not in called(folder, *command.split()).stderr.lower()
    assert "there are: Block, Stack, " in called(folder, "count", "w.py:qqqqq").stderr


@pytest.mark.parametrize("command", ["report w.py:undefined --trace none/x.json", "capture w.py:undefined -o none/x"])
def test_where_to_write_is_checked_before_the_work(command: str, folder: Path) -> None:
    assert "cannot write none/x" in called(folder, *command.split()).stderr


LONG_ANSWERS = ("capture --list", "place algorithms", "place algorithms --json")


@pytest.mark.parametrize("asked", some_slow(LONG_ANSWERS, LONG_ANSWERS[1:]))
def test_a_reader_that_leaves_is_no_error_and_no_answer(folder: Path, asked: str) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "tensortide", *asked.split()]
    done = subprocess.run(command, cwd=folder, stdout=write, stderr=subprocess.PIPE, timeout=120, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_interrupt_while_libraries_are_loaded(folder: Path) -> None:
    (folder / "early").mkdir()
    (folder / "early" / "cyclopts.py").write_text("raise KeyboardInterrupt\n")
    command = [sys.executable, "-m", "tensortide", "place", "algorithms", "--json"]
    where = {**os.environ, "PYTHONPATH": f"{folder / 'early'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, cwd=folder, env=where, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (130, b"interrupted\n")
    assert json.loads(done.stdout)["kind"] == "Interrupted"


def test_real_captures_what_fake_cannot(folder: Path) -> None:
    done = called(folder, "count", "w.py:branching", "--real")
    assert done.returncode == 0, done.stderr
    assert "addmm " in done.stdout
