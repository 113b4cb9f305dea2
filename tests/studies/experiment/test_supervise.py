"""Processes of trials, as their parent sees them: played by scripts that say what a trial says."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tensortide.errors import ExitStatus
from tensortide.studies.experiment import supervise as supervised
from tensortide.studies.experiment.results import Outcome
from tensortide.studies.experiment.supervise import none_left, running, supervise
from tensortide.studies.experiment.trials import Trial
from tensortide.studies.experiment.ways import Asked

PRELUDE = """
import json, os, signal, sys, time
asked = json.loads(sys.stdin.readline())
def tell(**message): print(json.dumps(message), flush=True)
def repeat(ns): tell(kind="repetition", repetition={"times_ns": [ns], "peak_bytes": 7})
tell(kind="ready")
"""
END = "tell(kind='end', batch=4)\nsys.stdin.read()"


def tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, **keys: object) -> Outcome:
    """The outcome of a trial whose process runs ``code``."""
    script = tmp_path / "trial.py"
    script.write_text(PRELUDE + textwrap.dedent(code))
    monkeypatch.setattr(supervised, "COMMAND", (sys.executable, str(script)))
    trial = Trial(workload="mlp", mode="live", **keys)  # type: ignore[arg-type]
    with none_left():
        found = supervise(Asked(trial=trial, budget_bytes=5), tmp_path / "key.txt", tmp_path)
    assert not running
    return found


def test_repetitions_and_memory_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = f"""
        time.sleep(0.5)  # so that its parent looks before it grows
        print("hello", file=sys.stderr)
        repeat(5)
        large = bytearray(50 << 20)
        large[::4096] = b"x" * len(large[::4096])
        tell(kind="repetition")
        repeat(6)
        {"".join(END.splitlines(keepends=True)[:1])}
        sys.stdin.read()
    """
    found = tried(monkeypatch, tmp_path, code)
    assert (found.status, found.batch, found.attempts, found.budget_bytes) == ("ok", 4, 1, 5)
    assert [one.times_ns for one in found.repetitions] == [(5,), (6,)]
    assert found.process_peak_bytes is not None
    assert found.process_start_bytes is not None
    assert 50 << 20 <= found.process_peak_bytes - found.process_start_bytes < 80 << 20
    assert (tmp_path / "key.txt").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("code", "status", "reason", "ends"),
    [
        ("tell(kind='end', reason='no\\n room', status=1)", "infeasible", "no room", 1),
        (
            "tell(kind='end', reason='no room:\\n  1 B a,\\n  2 B b.\\nIt needs 3 B', status=1)",
            "infeasible",
            "no room: It needs 3 B",
            1,
        ),
        ("tell(kind='end', reason='no such example', status=2)", "failed", "no such example", 2),
        ("os.kill(os.getpid(), signal.SIGKILL)", "killed", "killed by SIGKILL", 3),
        ("raise KeyError('of the workload')", "killed", "its process ended with 1: KeyError: 'of the workload'", 3),
        ("sys.exit(0)", "killed", "its process ended with 0", 3),
        ("os.kill(os.getpid(), 40)", "killed", "killed by signal 40", 3),
        ("os.fork() and os._exit(3)\ntime.sleep(60)", "killed", "its process ended with 3", 3),
        ("os.closerange(0, 3)\ntime.sleep(60)", "killed", "its process closed what it reports to", 3),
    ],
)
def test_every_end_is_a_status_and_a_line(
    code: str, status: str, reason: str, ends: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervised, "_END_S", 1)
    found = tried(monkeypatch, tmp_path, code)
    assert (found.status, found.exit_status) == (status, ends)
    assert found.took_s < 30
    assert reason in found.reason
    assert "\n" not in found.reason


def test_a_trial_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = time.monotonic()
    found = tried(monkeypatch, tmp_path, "repeat(5)\ntime.sleep(60)", timeout=0.5)
    assert (found.status, found.reason) == ("timeout", "ended: its 0.5 s are over")
    assert len(found.repetitions) == 1
    assert time.monotonic() - began < 30


def test_the_next_repetition_must_end_within_twice_the_time_of_the_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervised, "LEAST_BEAT_S", 0)
    found = tried(monkeypatch, tmp_path, "time.sleep(0.2)\nrepeat(5)\ntime.sleep(60)")
    assert found.status == "timeout"
    assert found.reason == "ended: a repetition has not ended within 1 s, twice the time of the one before"
    assert found.took_s < 30


def test_a_slow_first_repetition_has_no_heartbeat_yet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervised, "LEAST_BEAT_S", 0)
    found = tried(monkeypatch, tmp_path, f"time.sleep(1.5)\nrepeat(5)\ntime.sleep(1.2)\nrepeat(5)\n{END}")
    assert found.status == "ok"


def test_attempts_are_repeated_where_a_process_was_lost_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    place = tmp_path / "count"
    code = f"""
        with open({str(place)!r}, "a") as file: file.write("x")
        if os.path.getsize({str(place)!r}) < 3: os.kill(os.getpid(), signal.SIGTERM)
        repeat(5)
        tell(kind="end")
        sys.stdin.read()
    """
    found = tried(monkeypatch, tmp_path, code, retries=4)
    assert (found.status, found.attempts, place.read_text()) == ("ok", 3, "xxx")
    assert tried(monkeypatch, tmp_path, "tell(kind='end', reason='x', status=1)", retries=4).attempts == 1
    assert tried(monkeypatch, tmp_path, "tell(kind='end', reason='x', status=2)", retries=4).attempts == 1
    assert tried(monkeypatch, tmp_path, "tell(kind='end', reason='x', status=3)", retries=1).attempts == 2


def test_no_attempt_begins_once_it_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with none_left():
        pass
    script = tmp_path / "trial.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    monkeypatch.setattr(supervised, "COMMAND", (sys.executable, str(script)))
    found = supervise(Asked(trial=Trial(workload="mlp", retries=9)), tmp_path / "key.txt", tmp_path)
    assert (found.status, found.attempts) == ("killed", 1)


@pytest.mark.slow
def test_a_trial_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    """Its input is closed then: the process would wait for a step for ever."""
    (tmp_path / "train.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "def stuck():\n    while True: time.sleep(1)\n"
    )
    command = [sys.executable, "-m", "tensortide.studies.experiment.trial_process"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=tmp_path)
    assert process.stdin is not None
    process.stdin.write(b'{"trial": {"workload": "train.py:stuck", "mode": "live"}}\n')
    process.stdin.flush()
    while not (tmp_path / "pid").exists():
        assert process.poll() is None
        time.sleep(0.1)
    assert int((tmp_path / "pid").read_text()) == process.pid
    process.stdin.close()
    assert process.wait(30) == ExitStatus.HOLDS
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.slow
def test_a_fork_of_the_workload_that_comes_back_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\ndef step():\n    os.fork()\n    return lambda: None\n")
    trial = Trial(workload=f"{tmp_path / 'train.py'}:step", mode="live", repeats=2)
    with none_left():
        found = supervise(Asked(trial=trial, budget_bytes=None), tmp_path / "key.txt", tmp_path)
    assert (found.status, len(found.repetitions)) == ("ok", 2)
