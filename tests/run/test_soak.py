"""Long runs, runs that are killed, and the memory of a process as others see it."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.forked_script import forked
from tests.run import soak
from tests.run.same import UNLIMITED
from tests.run.soak import EVERY

SOAK = Path(soak.__file__)
MIB = 1 << 20
SMALL = 40 << 10
"""A budget for a step of Run that is tight: its parameters and moments take most of it."""
SLACK_KIB = 12 << 10
"""What a process may take beyond the budget: books, workspace of kernels, what the allocator keeps."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def finished(steps: int, budget_bytes: int, checkpoint: Path, *shape: int) -> tuple[list[list[str]], list[str]]:
    """The lines of the steps, and the last line."""
    done = forked(SOAK, *map(str, (steps, budget_bytes, checkpoint, 0, *shape)))
    assert done.returncode == 0, done.stderr
    *lines, last = [line.split() for line in done.stdout.splitlines()]
    assert last[0] == "end"
    return lines, last


def tight_bytes(folder: Path) -> int:
    """A budget under which Run has to compute again, where no tensors of other tests are resident."""
    _, last = finished(1, UNLIMITED, folder / "apart")
    return int(last[5]) - SMALL


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    _, whole = finished(5 * EVERY, 0, tmp_path / "none")
    budget = tight_bytes(tmp_path)
    path = tmp_path / "checkpoint"
    assert forked(SOAK, *map(str, (5 * EVERY, budget, path, 3 * EVERY + 2))).returncode == -signal.SIGKILL
    steps, last = finished(5 * EVERY, budget, path)
    assert int(steps[0][0]) == 3 * EVERY + 1
    assert int(last[4]) > 0, "nothing was computed again"
    assert last[1] == whole[1]


@pytest.mark.slow
def test_the_process_stays_within_the_budget_and_does_not_grow(tmp_path: Path) -> None:
    shape = (8, 16 << 10)  # 40 tensors of 2 MiB
    _, plain = finished(2, 0, tmp_path / "none", *shape)
    free = int(plain[3]) - int(plain[2])
    budget = 56 * MIB
    steps, tight = finished(6, budget, tmp_path / "none", *shape)
    taken = int(tight[3]) - int(tight[2])
    assert free > (80 << 10), "the step needs more than that without a budget"
    assert taken <= (budget >> 10) + SLACK_KIB
    assert int(tight[4]) > 0
    resident = [int(line[2]) for line in steps]
    assert max(resident[3:]) <= max(resident[:3]) + SLACK_KIB


@pytest.mark.slow
def test_hundreds_of_steps_do_not_make_a_process_grow(tmp_path: Path) -> None:
    """By less than 5 KiB a step, once all is there that stays: one lost activation has 8 KiB."""
    steps, last = finished(250, tight_bytes(tmp_path), tmp_path / "checkpoint")
    assert int(last[4]) > 250
    assert int(steps[-1][2]) <= int(steps[100][2]) + 750
