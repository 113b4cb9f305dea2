"""Runs in forks of one interpreter: each alone, none longer than allowed, none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensortide.recorder import script_entry
from tensortide.recorder.forked_runs import Forks

ENTRY = """
import json, os, runpy, sys, time
count = 0
def run(request, *rest):
    global count
    count += 1
    with open(request["path"] + ".part", "w") as file:
        file.write(f"{os.getpid()} {count}" if "environment" not in request else " ".join((os.environ["RANK"], *rest)))
    os.rename(request["path"] + ".part", request["path"])
    time.sleep(request["sleeps_s"])
    return 3
forks = runpy.run_path(sys.argv[1])["_forks"]
sys.exit(forks(run, *json.load(open(sys.argv[2]))["forks"]))
"""


class Entry:
    """A script whose runs write their process ID, and how many ran in that process, and sleep."""

    folder = None

    def command(self, request: Path) -> list[str]:
        return [sys.executable, "-c", ENTRY, str(script_entry.__file__), str(request)]


@pytest.fixture
def forks(tmp_path: Path) -> Iterator[Forks]:
    made = Forks(Entry(), tmp_path / "request.json", {**os.environ})  # type: ignore[arg-type]  # it has a command
    yield made
    made.close()


def ran(path: Path) -> tuple[int, int]:
    process, count = map(int, path.read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
    return process, count


def test_each_run_begins_where_the_first_one_did(forks: Forks, tmp_path: Path) -> None:
    for name in ("a", "b"):
        forks.run({"path": str(tmp_path / name), "sleeps_s": 0}, 60)
    one, other = ran(tmp_path / "a"), ran(tmp_path / "b")
    assert one[0] != other[0]
    assert one[1] == other[1] == 1


def test_a_run_that_takes_too_long_is_killed_and_another_one_follows(forks: Forks, tmp_path: Path) -> None:
    forks.run({"path": str(tmp_path / "a"), "sleeps_s": 0}, 60)
    began = time.monotonic()
    forks.run({"path": str(tmp_path / "b"), "sleeps_s": 300}, 2)
    assert time.monotonic() - began < 60
    ran(tmp_path / "b")
    forks.run({"path": str(tmp_path / "c"), "sleeps_s": 0}, 60)
    ran(tmp_path / "c")


def test_a_rank_has_its_own_environment_and_arguments_and_is_waited_for(forks: Forks, tmp_path: Path) -> None:
    for rank, sleeps_s in ((1, 0), (2, 300)):
        own = {"environment": {**os.environ, "RANK": str(rank)}, "command": ["file", f"--rank={rank}"]}
        run = forks.start({"path": str(tmp_path / str(rank)), "sleeps_s": sleeps_s, "imports": ["no.such"], **own})
        assert run is not None
        if sleeps_s:
            with pytest.raises(subprocess.TimeoutExpired):
                run.wait(0.2)
            assert run.poll() is None
            run.kill()
        assert run.wait() == run.poll() == (-signal.SIGKILL if sleeps_s else 3)
    assert (tmp_path / "1").read_text() == "1 file --rank=1"


def test_no_run_starts_in_an_interpreter_that_has_ended(forks: Forks) -> None:
    forks.process.kill()
    assert forks.start({}) is None


def test_a_run_ends_with_the_program_that_waits_for_it(
    forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = forks._answer, []

    def interrupted(until: float) -> Any:
        asked.append(until)
        if len(asked) != 2:
            return answer(until)
        while not (tmp_path / "a").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(forks, "_answer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forks.run({"path": str(tmp_path / "a"), "sleeps_s": 300}, 600)
    ran(tmp_path / "a")


def test_an_interpreter_that_ends_answers_nothing(forks: Forks, tmp_path: Path) -> None:
    forks.process.kill()
    for _ in range(2):
        forks.run({"path": str(tmp_path / "a"), "sleeps_s": 0}, 60)
    assert not (tmp_path / "a").exists()
