"""Tasks over many items: the same results in threads, in processes and on Ray, with workers that die in the middle."""

from __future__ import annotations

import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tensortide.errors import RunError
from tensortide.executors import LOCAL, Where, run_all


def square(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number * number


def dies_once(folder: Path, number: int) -> int:
    """Square, but the first worker that gets item 3 is killed."""
    if number == 3:
        try:
            (folder / "killed").touch(exist_ok=False)
        except FileExistsError:
            return square(number)
        os.kill(os.getpid(), signal.SIGKILL)
    return square(number)


def sleeps(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def always_dies(number: int) -> int:
    os._exit(number)


@pytest.mark.parametrize(
    "where",
    [
        Where(workers=2, kind="threads"),
        pytest.param(Where(workers=2), marks=pytest.mark.slow),
        pytest.param(Where(workers=2, cluster=LOCAL), marks=pytest.mark.slow),
    ],
)
def test_results_come_with_the_number_of_their_item(where: Where) -> None:
    assert dict(run_all(square, range(9), where)) == {number: number**2 for number in range(9)}
    with pytest.raises(ValueError, match="-1 is negative"):
        dict(run_all(square, [1, -1], where))


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [None, LOCAL])
def test_a_killed_worker_is_replaced(tmp_path: Path, cluster: str | None) -> None:
    found = dict(run_all(partial(dies_once, tmp_path), range(8), Where(workers=2, cluster=cluster)))
    assert found == {number: number**2 for number in range(8)}
    assert (tmp_path / "killed").exists()


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [None, LOCAL])
def test_workers_that_always_die_are_an_error(cluster: str | None) -> None:
    with pytest.raises(RunError, match="died 2 times"):
        dict(run_all(always_dies, [1], Where(workers=1, cluster=cluster, retries=1)))


def test_no_cluster_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError, match=r"tensortide\[cluster\]"):
        dict(run_all(square, [1], Where(cluster=LOCAL)))


def test_tasks_in_processes_end_where_no_more_results_are_wanted() -> None:
    results = run_all(sleeps, [0, 300], Where(workers=2))
    assert next(results) == (0, 0)
    began = time.monotonic()
    results.close()  # type: ignore[attr-defined]  # a generator: as where Ctrl-C leaves the loop over it
    assert time.monotonic() - began < 100
