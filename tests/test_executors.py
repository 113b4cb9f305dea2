"""Tasks over many items: the same results in threads, in processes and on Ray, with workers that die in the middle."""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import MissingExtra, NotHere, RequestError, RunError, WorkersDied
from tensortide.executors import LOCAL, SERIAL, Where, run_all
from tests.worker_functions import (
    Heavy,
    always_dies,
    both_written,
    dies_once,
    fails_after,
    not_copied,
    process,
    sleeps,
    square,
)

THREADS, PROCESSES, RAY = Where(2, "threads"), Where(2), Where(2, cluster=LOCAL)
EVERYWHERE = [
    SERIAL,
    THREADS,
    PROCESSES,
    pytest.param(RAY, marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def _one_cluster(request: pytest.FixtureRequest) -> None:
    """Tests on Ray share a cluster; but the first starts its own, which ends with its pool."""
    parameters = request.node.callspec.params.values() if hasattr(request.node, "callspec") else ()
    if (
        any(each in (RAY, LOCAL) for each in parameters)
        and request.function is not test_results_come_with_the_number_of_their_item
    ):
        request.getfixturevalue("ray_cluster")


@pytest.mark.parametrize("where", EVERYWHERE)
def test_results_come_with_the_number_of_their_item(where: Where) -> None:
    assert dict(run_all(square, range(9), where)) == {number: number**2 for number in range(9)}
    assert dict(run_all(square, [], where)) == {}
    with pytest.raises(ValueError, match="-1 is negative"):
        dict(run_all(square, [1, -1], where))
    assert where is not RAY or not importlib.import_module("ray").is_initialized()


@given(st.lists(st.integers(-1, 5), max_size=12), st.integers(1, 5))
def test_results_and_errors_are_those_of_one_after_the_other(numbers: list[int], workers: int) -> None:
    def outcome(where: Where, act: Callable[[int], int]) -> tuple[dict[int, int], str]:
        found: dict[int, int] = {}
        try:
            found |= dict(run_all(act, numbers, where))
        except ValueError as error:
            return found, str(error)
        return found, ""

    def numbered(number: int) -> int:
        time.sleep(0.001 * (number + 1))
        return square(number)

    assert outcome(Where(workers, "threads"), numbered) == outcome(SERIAL, square)


@pytest.mark.parametrize("where", EVERYWHERE[1:])
def test_the_error_is_that_of_the_first_item(where: Where) -> None:
    """Whichever comes first: the same command ends with the same message."""
    with pytest.raises(ValueError, match=r"after 0.5 s"):
        dict(run_all(fails_after, [0.5, 0.0, 0.1, 0.0], where))


@pytest.mark.parametrize("where", [PROCESSES, pytest.param(RAY, marks=pytest.mark.slow)])
def test_the_function_travels_once_to_each_worker(tmp_path: Path, where: Where) -> None:
    heavy = Heavy(tmp_path / "arrivals")
    assert len(dict(run_all(heavy.square, range(20), where))) == 20
    assert 1 <= len(heavy.arrivals.read_text()) <= 2


@pytest.mark.parametrize("where", EVERYWHERE)
def test_arrays_can_be_written_wherever_they_arrive(where: Where) -> None:
    """Functions that are compiled for arrays of one kind would be compiled again for others."""
    bound, items = np.zeros(100_000), [np.zeros(1), np.zeros(100_000)]
    assert dict(run_all(partial(both_written, bound), items, where)) == {0: True, 1: True}


@pytest.mark.parametrize("cluster", [None, pytest.param(LOCAL, marks=pytest.mark.slow)])
def test_a_killed_worker_is_replaced(tmp_path: Path, cluster: str | None) -> None:
    found = dict(run_all(partial(dies_once, tmp_path), range(8), Where(workers=2, cluster=cluster)))
    assert found == {number: number**2 for number in range(8)}
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize("cluster", [None, pytest.param(LOCAL, marks=pytest.mark.slow)])
def test_workers_that_always_die_are_an_error(cluster: str | None) -> None:
    with pytest.raises(WorkersDied, match="died 2 times on task 1 of 2"):
        dict(run_all(always_dies, [1, 1], Where(workers=2, cluster=cluster, retries=1)))


def test_an_error_that_cannot_be_copied_is_told() -> None:
    with pytest.raises(RunError, match="NotCopied: 1 and 1"):
        dict(run_all(not_copied, [1, 2], PROCESSES))


def test_an_error_of_another_process_says_where_it_was_raised() -> None:
    with pytest.raises(ValueError, match="negative") as caught:
        dict(run_all(square, [-1, 2], PROCESSES))
    assert any("in square" in note for note in caught.value.__notes__)


def test_no_cluster_without_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"tensortide\[cluster\]"):
        dict(run_all(square, [1], Where(cluster=LOCAL)))


def test_an_address_where_nothing_listens_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)  # whatever cluster other tests share
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    for address, why in {
        f"127.0.0.1:{port}": "refused",
        f"ray://127.0.0.1:{port}": "refused",
        "here": "HOST:PORT",
    }.items():
        kind = RequestError if why == "HOST:PORT" else NotHere
        with pytest.raises(kind, match=f"no Ray cluster can be reached at {address}: .*{why}"):
            dict(run_all(square, [1, 2], Where(cluster=address)))
    assert time.monotonic() - began < 20


ANOTHER_SERVER = """
import sys
from tensortide.errors import NotHere
from tensortide.executors import Where, ray_cluster, run_all
ray_cluster.TIMEOUT_S = 3.0
try:
    list(run_all(str, [1, 2], Where(cluster=sys.argv[1])))
except NotHere as error:
    print(error)
"""


@pytest.mark.slow
def test_a_server_that_is_no_cluster_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", ANOTHER_SERVER, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == f"no Ray cluster can be reached at {address}: it has not answered as Ray does in 3 s.\n"
    assert done.returncode == 0


def test_other_processes_start_where_there_is_work_for_them() -> None:
    assert set(dict(run_all(process, range(3), Where(2, serial_s=60))).values()) == {os.getpid()}
    found = dict(run_all(process, range(8), Where(2, serial_s=0.05)))
    assert sorted(found) == [*range(8)]
    assert found[0] == os.getpid() != found[7]


FORKED = """
import os
from tensortide.executors import Where, run_all
print(sorted(run_all(abs, [1, -2], Where(2))), flush=True)
if not os.fork():
    print(sorted(run_all(abs, [3, -4], Where(2))), flush=True)
    os._exit(0)
raise SystemExit(os.wait()[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
def test_a_fork_of_a_process_that_had_workers_has_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(done.stdout.splitlines()) == ["[(0, 1), (1, 2)]", "[(0, 3), (1, 4)]"]


def test_tasks_in_processes_end_where_no_more_results_are_wanted() -> None:
    results = run_all(sleeps, [0, 300], PROCESSES)
    assert next(results) == (0, 0)
    began = time.monotonic()
    results.close()  # type: ignore[attr-defined]  # a generator: as where Ctrl-C leaves the loop over it
    assert time.monotonic() - began < 100


@pytest.mark.parametrize("where", [SERIAL, PROCESSES])
def test_a_request_to_stop_ends_without_the_missing_results(where: Where) -> None:
    requests = threading.Event()
    found = {}
    for place, result in run_all(sleeps, [0, 0.01, 300, 300], where, requests.is_set):
        found[place] = result
        if len(found) == 2:
            requests.set()
    assert found == {0: 0, 1: 0.01}


INTERRUPTED = """
import os, signal, threading, time
import tensortide.executors
from tensortide.executors.forks import prepared

def interrupt():
    for _ in range(50):
        os.killpg(0, signal.SIGINT)
        time.sleep(0.01)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=interrupt).start()
    process = prepared(print, "here")
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there one process is forked for all others")
def test_ctrl_c_does_not_end_what_others_are_forked_from_while_it_imports() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, start_new_session=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


ENDED_WHILE_WORKERS_START = """
import os, signal, threading, time
from functools import partial
from tensortide.executors import Where, run_all

def large(data, number):
    time.sleep(30)

if __name__ == "__main__":
    threading.Timer(DELAY_S, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        list(run_all(partial(large, bytes(4 * 10**6)), [1] * 4, Where(2)))
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_a_worker_that_is_ended_while_it_starts_shows_nothing(tmp_path: Path) -> None:
    """The server that forks workers imports what this process has for longer than the timer runs."""
    program = tmp_path / "program.py"
    program.write_text(ENDED_WHILE_WORKERS_START.replace("DELAY_S", "0.1"), "utf-8")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")
