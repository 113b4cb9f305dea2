"""The processes of ranks: each computes with its part of the cores that this process may use."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tensortide.run.placed import processes


def test_ranks_share_the_cores_that_this_process_may_use_not_those_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7, 9}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    assert [processes.threads_of(ranks) for ranks in (1, 2, 3, 8)] == [4, 2, 1, 1]


ASKER = """
import sys
from tests.run.placed.test_processes import asker
asker(sys.argv[1])
"""


def asker(folder: str) -> None:
    """Ask for two ranks that do not end."""
    processes.run_ranks(functools.partial(staying, folder), 2)


def staying(folder: str, rank: int) -> None:
    """Leave the number of this process, and stay."""
    hidden = Path(folder, f".{rank}")
    hidden.write_text(str(os.getpid()))
    hidden.rename(Path(folder, str(rank)))
    time.sleep(600)


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_ranks_end_with_the_process_that_asked_for_them_however_it_ends(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ASKER, str(tmp_path)]) as asking:
        deadline = time.monotonic() + 120
        while not all((tmp_path / rank).exists() for rank in "01"):
            assert asking.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        asking.send_signal(signal.SIGKILL)
    ranks = [int((tmp_path / rank).read_text()) for rank in "01"]
    while any(map(is_running, ranks)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
