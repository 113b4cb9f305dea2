"""Exit statuses of verbs: each is provoked, and none is that of another answer."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from tensortide import errors
from tensortide.cli import main
from tensortide.errors import ExitStatus, OutputError, RequestError, TensortideError, status_of
from tests.cli.command import called, started
from tests.graphs import path_of

FIT = ("fit", str(path_of("mlp")), "--machine", "t4", "--threads", "1", "-q")
WORKLOADS = """
import torch

@torch.library.custom_op("statuses::mix", mutates_args=())
def mix(x: torch.Tensor) -> torch.Tensor:
    return x.sin()

@mix.register_fake
def like(x):
    return torch.empty_like(x)

def unknown():
    x = torch.ones(3)
    return lambda: mix(x)

def assuming(rows=4):
    weight = torch.randn(4, 4, requires_grad=True)
    x = torch.randn(rows, 4)
    def step():
        loss = (x @ weight).sum()
        if loss.item() > 1e9:
            loss = loss * 2
        loss.backward()
        weight.grad = None
    return step
"""


def ended(capsys: pytest.CaptureFixture[str], *typed: str) -> tuple[int, str, str]:
    """The exit status of a call, and what it printed."""
    with pytest.raises(SystemExit) as stopped:
        main([*typed])
    return int(stopped.value.code or 0), *capsys.readouterr()


def test_they_are_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "statuses.md").read_text("utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert rows[1:] == [*(str(status.value) for status in ExitStatus), "130", "143"]
    assert "128 + n" in page


@pytest.mark.parametrize(("memory", "status"), [("2KiB", ExitStatus.HOLDS), ("1KiB", ExitStatus.FAILS)])
def test_an_answer_is_that_it_holds_or_that_it_does_not(
    memory: str, status: ExitStatus, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = ended(capsys, *FIT, "--memory", memory)
    assert (found, err) == (status, "")
    assert ("does not fit" in out) is (status is ExitStatus.FAILS)


@pytest.mark.parametrize(
    "typed",
    [
        ("fit",),
        ("fit", "mlp", "--nothing"),
        ("fit", "no_such_example"),
        ("fit", "no_such_file.tide"),
        ("fit", "mlp", "--memory", "lots"),
        ("fit", "mlp", "--machine", "h1000"),
        ("fit", "mlp", "--set", "batch=three"),
        ("fit", "mlp", "--set", "btach=3"),
        ("fit", "mlp", "--real", "--fake"),
        ("fit", "mlp", "--machine", "local:tpu"),
        ("fit", "mlp", "--html", "no/such/../x/y.txt", "--csv", "no_such_folder/x.csv"),
        ("fit", "mlp", "--csv", "x=y.csv", "--html", "y.csv"),
        ("nothing",),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_a_wrong_request_is_no_answer(typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ended(capsys, *typed)
    assert (status, out) == (ExitStatus.WRONG, "")
    assert err.startswith("error: ")


def test_what_is_not_here_cannot_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, out, err = ended(capsys, *FIT, "--figure", "x.png")
    assert (status, out) == (ExitStatus.CANNOT, "")
    assert err == "error: figures need matplotlib: pip install 'tensortide[plots]'.\n"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    status, out, err = ended(capsys, "fit", str(path_of("mlp")), "--machine", "local:cuda")
    assert (status, out) == (ExitStatus.CANNOT, "")
    assert "sees no GPU" in err


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("unknown", ["error: 1 op has no cost rule:\n  statuses.mix x1", "`tensortide count TARGET --missing` lists"]),
        ("assuming", ["error: --strict: ops or sizes of the step depend on what was assumed:\n  ", "w.py:"]),
    ],
)
def test_what_is_unknown_is_no_answer_if_strict(name: str, messages: list[str], tmp_path: Path) -> None:
    (tmp_path / "w.py").write_text(WORKLOADS)
    done = called(tmp_path, "count", f"w.py:{name}", "--strict")
    assert (done.returncode, done.stdout) == (ExitStatus.CANNOT, "")
    assert all(message in done.stderr for message in messages), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "status", "message"),
    [
        ("raise ValueError('no data')", ExitStatus.CANNOT, "train.py raised ValueError: no data"),
        ("def f(:", ExitStatus.CANNOT, "train.py cannot be run: SyntaxError"),
        ("raise SystemExit(5)", ExitStatus.CANNOT, "ended with exit status 5"),
        ("import os; os.kill(os.getpid(), 9)", ExitStatus.CANNOT, "was ended by SIGKILL"),
        ("print('no step')", ExitStatus.WRONG, "train.py ended"),
        ("import os; os.environ['RANK']", ExitStatus.WRONG, "--ranks N, which runs it"),
    ],
    ids=range(6),
)
def test_a_script_that_fails_by_itself_is_no_wrong_request(
    script: str, status: ExitStatus, message: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(script)
    done = called(tmp_path, "fit", "--", sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr


def test_a_full_disk_is_no_fault_of_the_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> NoReturn:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "fsync", full)
    status, out, err = ended(capsys, *FIT, "--csv", str(tmp_path / "x.csv"))
    assert (status, out) == (ExitStatus.CANNOT, "")
    assert err == f"error: cannot write {tmp_path}/x.csv: the disk quota is used up.\n"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_device_is_no_fault_of_the_request(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = ended(capsys, *FIT, "--csv", "/dev/full")
    assert (status, err) == (ExitStatus.CANNOT, "error: cannot write /dev/full: the disk is full.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_at_standard_output(tmp_path: Path) -> None:
    said = tmp_path / "said"
    for asked in FIT, ("--version",):
        assert started(tmp_path, asked, {}, out="/dev/full", err=str(said)).readline() == "3\n"
        assert said.read_text() == "error: cannot write to standard output: the disk is full.\n"


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def answer(*_: object) -> NoReturn:
        raise error

    return answer


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (MemoryError(), "memory ran out"),
        (np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("i8")), "memory ran out: Unable to allocate 8.00"),  # type: ignore[attr-defined]
        (OSError(errno.ENOSPC, "No space left on device", "/tmp/cache"), "/tmp/cache: No space left on device"),
    ],
    ids=range(3),
)
def test_memory_or_a_disk_that_is_full_is_one_line(
    error: BaseException, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensortide.cli.fit.answer", raising(error))
    status, out, err = ended(capsys, *FIT)
    assert (status, out) == (ExitStatus.CANNOT, "")
    assert err.startswith(f"error: {text}")
    assert err.count("\n") == 1


def test_a_fault_of_ours_is_no_answer_and_is_shown_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tensortide.cli.fit.answer", raising(ZeroDivisionError("by nothing")))
    status, out, err = ended(capsys, *FIT, "--json")
    assert status == ExitStatus.CANNOT
    assert "Traceback (most recent call last)" in err
    assert err.endswith("error: ZeroDivisionError: by nothing\n")
    assert json.loads(out) == {
        "format": "tensortide.error",
        "schema_version": 1,
        "kind": "ZeroDivisionError",
        "message": "ZeroDivisionError: by nothing",
        "exit_status": 3,
    }


@pytest.mark.slow
def test_what_depends_on_the_allocator_is_undecided(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ("fit", str(path_of("mlp_a100")), "--threads", "1", "-q", "--memory")
    for memory, status in ("16MiB", ExitStatus.FAILS), ("20MiB", ExitStatus.UNDECIDED), ("24MiB", ExitStatus.HOLDS):
        assert ended(capsys, *typed, memory)[0] == status


@pytest.mark.parametrize(
    ("each", "of_any", "of_all"),
    [
        ([4], ExitStatus.UNDECIDED, ExitStatus.UNDECIDED),
        ([1, 4], ExitStatus.UNDECIDED, ExitStatus.FAILS),
        ([4, 0, 1], ExitStatus.HOLDS, ExitStatus.FAILS),
        ([1, 1], ExitStatus.FAILS, ExitStatus.FAILS),
        ([0, 4, 2, 3], ExitStatus.HOLDS, ExitStatus.WRONG),
        ([0, 0], ExitStatus.HOLDS, ExitStatus.HOLDS),
    ],
    ids=range(6),
)
def test_of_several_machines_the_best_counts_and_of_several_checks_the_worst(
    each: list[int], of_any: ExitStatus, of_all: ExitStatus
) -> None:
    assert ExitStatus.of_any(map(ExitStatus, each)) is of_any
    assert ExitStatus.of_all(map(ExitStatus, each)) is of_all


def kinds(kind: type[TensortideError] = TensortideError) -> set[type[TensortideError]]:
    return {kind}.union(*(kinds(each) for each in kind.__subclasses__()))


def test_an_error_is_a_wrong_request_unless_its_class_says_otherwise() -> None:
    own = {kind.__name__: kind.status for kind in kinds() if kind.__module__ == errors.__name__}
    cannot = {"Doubtful", "ProgramFailed", "UnknownCost", "NotHere", "MissingExtra", "TorchUnavailable", "WorkersDied"}
    assert {name for name, status in own.items() if status is ExitStatus.CANNOT} == cannot
    assert ExitStatus.HOLDS not in own.values()
    assert own["RequestError"] is own["WorkloadError"] is own["GraphFileError"] is ExitStatus.WRONG
    assert {name for name in own if name in (errors.__doc__ or "")} == own.keys() - {"RunWarning"}


def caused(error: BaseException, by: BaseException) -> BaseException:
    error.__cause__ = by
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("x"), ExitStatus.WRONG),
        (OutputError("x"), ExitStatus.WRONG),
        (OSError(errno.ENOENT, "x"), ExitStatus.WRONG),
        (OSError(errno.ENOSPC, "x"), ExitStatus.CANNOT),
        (caused(OutputError("x"), OSError(errno.ENOSPC, "x")), ExitStatus.CANNOT),
        (caused(OutputError("x"), OSError(errno.EACCES, "x")), ExitStatus.WRONG),
        (caused(errors.CaptureError("x"), MemoryError()), ExitStatus.CANNOT),
        (caused(RequestError("x"), caused(errors.RunError("x"), errors.MissingExtra("x"))), ExitStatus.CANNOT),
        (caused(errors.NotHere("x"), ValueError("x")), ExitStatus.CANNOT),
        (None, ExitStatus.WRONG),
    ],
    ids=range(10),
)
def test_the_status_of_an_error_is_that_of_what_caused_it(error: Any, status: ExitStatus) -> None:
    assert status_of(error) is status


def test_memory_of_a_gpu_that_ran_out_cannot_answer() -> None:
    import torch

    assert status_of(torch.OutOfMemoryError("x")) is ExitStatus.CANNOT
    assert status_of(caused(errors.RunError("x"), torch.OutOfMemoryError("x"))) is ExitStatus.CANNOT


@pytest.mark.parametrize("page", ["statuses.md", "check.md"])
def test_bisect_skips_what_cannot_be_told(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text("utf-8")
    found = re.search(r"^git bisect run (sh -c '[^']+')", text, re.MULTILINE)
    assert found is not None
    (tmp_path / "tensortide").write_text("#!/bin/sh\nexit $STATUS\n")
    (tmp_path / "tensortide").chmod(0o755)
    ended = {}
    for status in (*map(int, ExitStatus), 130, 143):
        where = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STATUS": str(status)}
        ended[status] = subprocess.run(found[1], shell=True, env=where, check=False).returncode
    assert ended == {0: 0, 1: 1, 2: 128, 3: 125, 4: 125, 130: 130, 143: 143}


@pytest.mark.parametrize(
    ("typed", "status"),
    [
        (("--help",), ExitStatus.HOLDS),
        (("plan", "--help"), ExitStatus.HOLDS),
        (("count", FIT[1]), ExitStatus.HOLDS),
        (("check", FIT[1], "--assert", "peak <= 1KiB"), ExitStatus.FAILS),
        (("check", FIT[1], "--assert", "peak <= 1KiB", "--json"), ExitStatus.FAILS),
        (("compare", FIT[1], str(path_of("gpt2")), "--threshold", "flops=+1%"), ExitStatus.FAILS),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, tuple) else "",
)
def test_a_reader_that_leaves_changes_none(typed: tuple[str, ...], status: ExitStatus) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out, contextlib.redirect_stdout(out), pytest.raises(SystemExit) as stopped:  # noqa: PTH123
        main([*typed])
    assert int(stopped.value.code or 0) == status


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_standard_error_changes_none() -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115 # closing it fails
    with contextlib.redirect_stderr(full), pytest.raises(SystemExit) as stopped:
        main(["fit", "mlp", "--memory", "x"])
    with contextlib.suppress(OSError):
        full.close()
    assert stopped.value.code == ExitStatus.WRONG


def test_sigterm_in_what_a_file_executes_is_that_of_sigterm(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        'def step(): ...\n\nexec("raise KeyboardInterrupt(15)")  # as heard() raises it\n'
    )
    command = [sys.executable, "-m", "tensortide", "count", "train.py:step"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "interrupted by SIGTERM\n")
