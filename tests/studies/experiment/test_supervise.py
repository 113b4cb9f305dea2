"""Processes of trials, as their parent sees them: played by scripts that say what a trial says."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import ExitStatus
from tensortide.studies.experiment import supervise as supervised
from tensortide.studies.experiment import trial_process
from tensortide.studies.experiment.results import Outcome
from tensortide.studies.experiment.supervise import Supervisor
from tensortide.studies.experiment.trials import Trial
from tensortide.studies.experiment.ways import Asked
from tests.graphs import path_of

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
    with Supervisor() as supervisor:
        found = supervisor.run(Asked(trial=trial, budget_bytes=5), tmp_path / "key.txt", tmp_path)
    assert not supervisor.running
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
    assert found.reason.startswith(reason)
    assert "key.txt" not in found.reason  # the line that tells it names the log
    assert "\n" not in found.reason


def test_a_trial_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    began = time.monotonic()
    found = tried(monkeypatch, tmp_path, "repeat(5)\ntime.sleep(60)", timeout=0.5)
    assert (found.status, found.reason) == ("timeout", "ended: its 0.5 s are over")
    assert len(found.repetitions) == 1
    assert time.monotonic() - began < 30


def test_the_start_of_a_process_is_none_of_the_time_of_its_trial(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready = 'tell(kind="ready")'
    monkeypatch.setattr(f"{__name__}.PRELUDE", PRELUDE.replace(ready, f"time.sleep(1.5)\n{ready}"))
    assert tried(monkeypatch, tmp_path, END, timeout=1).status == "ok"


def test_the_next_repetition_must_end_within_twice_the_time_of_the_longest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(supervised, "LEAST_BEAT_S", 0)
    found = tried(monkeypatch, tmp_path, "time.sleep(0.6)\nrepeat(5)\nrepeat(5)\ntime.sleep(60)")
    assert found.status == "timeout"
    assert found.reason == "ended: a repetition has not ended within 2 s, twice the time of the longest before"
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
    with Supervisor() as supervisor:
        pass
    script = tmp_path / "trial.py"
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    monkeypatch.setattr(supervised, "COMMAND", (sys.executable, str(script)))
    found = supervisor.run(Asked(trial=Trial(workload="mlp", retries=9)), tmp_path / "key.txt", tmp_path)
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
    with Supervisor() as supervisor:
        found = supervisor.run(Asked(trial=trial, budget_bytes=None), tmp_path / "key.txt", tmp_path)
    assert (found.status, len(found.repetitions)) == ("ok", 2)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no file that is always full")
def test_a_log_that_cannot_be_written_changes_no_answer(tmp_path: Path) -> None:
    (tmp_path / "key.txt").symlink_to("/dev/full")
    trial = Trial(workload=str(path_of("mlp_activations")), policy="lru")
    with Supervisor() as supervisor:
        for _ in range(2):  # the second in the process of the first
            found = supervisor.run(Asked(trial=trial, budget_bytes=1), tmp_path / "key.txt", tmp_path)
            assert (found.status, found.exit_status) == ("infeasible", 1)


def test_an_error_is_told_where_it_cannot_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: bytes) -> int:
        written.append(data)
        raise OSError(errno.ENOSPC, "No space left on device")

    written = list[bytes]()
    monkeypatch.setattr(os, "write", full)
    trial_process._print(ValueError("of the workload"))
    assert b"ValueError: of the workload" in written[0]


SERVING = """
while True:
    with open(asked["printed"], "a") as log: log.write(str(os.getpid()))
    repeat(os.getpid())
    tell(kind="end", again=True)
    asked = json.loads(sys.stdin.readline())
    {meanwhile}
    tell(kind="ready")
"""


def served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *modes: str, meanwhile: str = "pass"
) -> list[tuple[str, int]]:
    """The status of trials of these modes, one after the other, and the process of each by its log."""
    script = tmp_path / "trial.py"
    script.write_text(PRELUDE + SERVING.replace("{meanwhile}", meanwhile))
    monkeypatch.setattr(supervised, "COMMAND", (sys.executable, str(script)))
    found: list[tuple[str, int]] = []
    with Supervisor() as supervisor:
        for number, mode in enumerate(modes):
            log = tmp_path / f"{number}.txt"
            one = supervisor.run(Asked(trial=Trial(workload="mlp", mode=mode)), log, tmp_path)  # type: ignore[arg-type]
            found.append((one.status, int(log.read_text() or 0)))
    for _, process in found:
        with pytest.raises(ProcessLookupError):
            os.kill(process or 1 << 22, 0)
    return found


def test_a_process_that_takes_another_trial_runs_the_next_simulation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (_, first), (_, second), (_, live), (_, last) = served(
        monkeypatch, tmp_path, "simulated", "simulated", "live", "simulated"
    )
    assert first == second != live
    assert last in (first, live)


def test_the_end_of_a_run_ends_nothing_of_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "trial.py"
    script.write_text(PRELUDE + SERVING.replace("{meanwhile}", "pass"))
    monkeypatch.setattr(supervised, "COMMAND", (sys.executable, str(script)))
    logs = [tmp_path / f"{number}.txt" for number in range(3)]
    asked = Asked(trial=Trial(workload="mlp"))
    with Supervisor() as lasting:
        lasting.run(asked, logs[0], tmp_path)
        with Supervisor() as ending:
            ending.run(asked, logs[1], tmp_path)
        lasting.run(asked, logs[2], tmp_path)
    assert logs[0].read_text() == logs[2].read_text() != logs[1].read_text()  # the same process has run both


def test_a_supervisor_has_no_processes_elsewhere() -> None:
    with Supervisor() as here:
        here.running["key"] = 1
        assert pickle.loads(pickle.dumps(here)).running == {}


@pytest.mark.parametrize(
    ("keys", "takes"),
    [
        ({"policy": "lru"}, True),
        ({"policy": "mine.py:Mine"}, False),
        ({"policy": "plan"}, False),
        ({"mode": "live", "policy": "lru"}, False),
    ],
)
def test_a_process_takes_another_trial_if_it_has_run_no_code_of_the_users(
    keys: dict[str, Any], takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_process, "made", set())
    asked = Asked(trial=Trial(workload="mlp", **keys), budget_bytes=9)
    assert trial_process._ran_nothing_of_users(asked) is takes


def test_a_simulation_that_ends_its_process_ends_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = served(monkeypatch, tmp_path, "simulated", "simulated", "simulated", meanwhile="sys.exit(3)")
    assert [status for status, _ in found] == ["ok", "killed", "ok"]
    assert found[0] != found[2]
