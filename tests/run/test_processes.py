"""Processes that a program starts under a budget run free of it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.queues import SimpleQueue
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset, IterableDataset

from tensortide.errors import RunError
from tensortide.run.budget import Budget
from tests.marks import some_slow
from tests.run.same import identical
from tests.run.test_budget import KIB, chain, room

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
PATIENCE_S = 300.0
"""Longest time that a test waits for another process."""
forking = torch.multiprocessing.get_context("fork")


def forked(work: Callable[[], Any]) -> Any:
    """Result of ``work`` in a child, or the error that it raises; it must come soon."""
    pipe, end = multiprocessing.Pipe()
    if not (pid := os.fork()):
        try:
            end.send(work())
        except Exception as error:  # noqa: BLE001
            end.send(error)
        finally:
            sys.stdout.flush()
            os._exit(0)
    assert pipe.poll(PATIENCE_S)
    result = pipe.recv()
    os.waitpid(pid, 0)
    return result


def evicted(budget: Budget, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    assert budget.runtime is not None
    runtime = budget.runtime
    return [t for t in tensors if not runtime.engine.resident[runtime.storage(t)]]


def assert_lost(error: Any) -> None:
    assert isinstance(error, RunError), error
    assert "evicted under the memory budget when this process was forked" in str(error)
    assert "\n" not in str(error)


def error_of(read: Callable[[torch.Tensor], object], tensor: torch.Tensor) -> RunError | None:
    try:
        read(tensor)
    except RunError as error:
        return error
    return None


READS: list[Callable[[torch.Tensor], object]] = [
    lambda t: t.sum(),
    lambda t: t.tolist(),
    lambda t: t.numpy(),
    repr,
    lambda t: t.view(32, 32) @ torch.ones(32, 32),
    lambda t: torch.stack([torch.ones(1024), t]),
    lambda t: forking.SimpleQueue().put(t),
]


def test_a_child_runs_free_and_what_was_evicted_is_one_clear_error() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(room(24 * KIB)) as budget:
        made = chain(x, 20)
        away = evicted(budget, made)
        there = next(t for t in made if all(t is not other for other in away))
        known = want[next(i for i, t in enumerate(made) if t is there)]
        assert forked(lambda: torch._C._len_torch_dispatch_stack() <= 1 and budget.runtime is None)
        assert forked(lambda: identical(there, known) and identical(chain(x, 20)[19], want[19]))
        for error in forked(lambda: [error_of(read, away[0]) for read in READS]):
            assert_lost(error)
        assert_lost(forked(lambda: forked(away[0].sum)))
        assert all(map(identical, made, want))


def test_a_child_opens_a_budget_of_its_own() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)

    def work() -> bool:
        with Budget(room(24 * KIB)) as own:
            again = chain(x, 20)
        return own.usage.evictions >= 10 and all(map(identical, again, want))

    with Budget(room(24 * KIB)) as budget:
        made = chain(x, 20)
        assert evicted(budget, made)
        assert forked(work) is True
        assert all(map(identical, made, want))


def test_a_child_leaves_the_context_that_it_was_forked_in() -> None:
    x = torch.randn(1024)
    pid = -1
    try:
        with Budget(room(24 * KIB)):
            made = chain(x, 20)
            pid = os.fork()
        if not pid:
            torch.ones(3).sum()
            os._exit(0)
    except BaseException:
        if not pid:
            traceback.print_exc()
            os._exit(1)
        raise
    assert os.waitpid(pid, 0)[1] == 0
    assert all(map(identical, made, chain(x, 20)))


def test_a_fork_by_another_thread_in_the_midst_of_ops() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    results: list[Any] = []

    def fork() -> None:
        results.append(forked(lambda: identical(chain(x, 20)[19], want[19])))

    with Budget(room(24 * KIB)):
        thread = threading.Thread(target=fork, daemon=True)
        thread.start()
        while thread.is_alive():
            assert identical(chain(x, 20)[19], want[19])
        thread.join(PATIENCE_S)
    assert results == [True]


class Rows(Dataset[torch.Tensor]):
    """Rows of what it is given."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index] * 2  # type: ignore[no-any-return]


class Stream(IterableDataset[torch.Tensor]):
    """Rows, one after the other."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.rows * 2)


def stacked(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(rows) + torch.rand(())


def loaded(data: Any, **options: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    options |= {"batch_size": 4, "timeout": PATIENCE_S, "multiprocessing_context": "fork"}
    return list(DataLoader(data, collate_fn=stacked, **options))


def _begin(worker: int) -> None:
    torch.ones(worker + 1).sum()


@pytest.mark.parametrize(("kind", "times"), some_slow([(Rows, 1), (Stream, 1), (Stream, 2)], [(Stream, 2)]))
def test_workers_of_a_loader(kind: Callable[[torch.Tensor], Any], times: int) -> None:
    """Each adds a random number of its own."""
    data, x = torch.randn(8, 1024), torch.randn(1024)
    options = {"num_workers": 2, "worker_init_fn": _begin, "persistent_workers": True}
    want = loaded(kind(data), **options)
    with Budget(room(128 * KIB)) as budget:
        made = chain(x, 40)
        for _ in range(times):
            assert all(map(identical, loaded(kind(data), **options), want))
            made = chain(x, 40)
        assert budget.usage.evictions > 0
        assert all(map(identical, made, chain(x, 40)))


@pytest.mark.slow
def test_workers_with_evicted_rows_say_so() -> None:
    x = torch.randn(1024)
    with Budget(room(64 * KIB)) as budget:
        made = chain(x, 40)
        assert len(evicted(budget, made)) > 10
        with pytest.raises(RunError, match="evicted under the memory budget when this process was forked"):
            loaded(Rows(made), num_workers=1)
        gc.collect()  # which waits for workers that have failed


def _answer(tasks: SimpleQueue[Any], results: SimpleQueue[Any]) -> None:
    tensor = tasks.get()
    results.put(tensor.sum().item())
    tensor += 1


def test_tensors_are_sent_to_other_processes_and_come_back() -> None:
    """A thread of the queue pickles them, and moves them into memory that is shared."""
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(room(40 * KIB)) as budget:
        made = chain(x, 20)
        away = evicted(budget, made)[0]
        known = next(want[i] for i, t in enumerate(made) if t is away)
        tasks, results = forking.Queue(), forking.Queue()
        process = forking.Process(target=_answer, args=(tasks, results), daemon=True)
        process.start()
        tasks.put(away)
        chain(x, 20)
        assert results.get(timeout=PATIENCE_S) == known.sum().item()
        process.join(PATIENCE_S)
        assert identical(away, known + 1)
        chain(x, 20)
        assert identical(away, known + 1)


def test_a_model_whose_parameters_are_shared() -> None:
    """Another process updates them between two steps."""
    model = torch.nn.Linear(32, 32, bias=False)
    want = model.weight.detach() + 1
    with Budget(room(64 * KIB)):
        model.share_memory()
        x = torch.randn(32, 32)
        made = [model(x).sin() for _ in range(12)]
        assert all(t.isfinite().all() for t in made)
        tasks, results = forking.SimpleQueue(), forking.SimpleQueue()
        process = forking.Process(target=_answer, args=(tasks, results), daemon=True)
        process.start()
        tasks.put(model.weight.detach())
        process.join(PATIENCE_S)
        assert identical(model.weight.detach(), want)
        assert identical(model(x).detach(), x @ want.T)


@pytest.mark.slow
def test_spawned_processes() -> None:
    x = torch.randn(1024)
    with Budget(room(40 * KIB)) as budget:
        made = chain(x, 20)
        away = evicted(budget, made)[0]
        known = away.clone()
        spawning = torch.multiprocessing.get_context("spawn")
        tasks, results = spawning.Queue(), spawning.Queue()
        process = spawning.Process(target=_answer, args=(tasks, results), daemon=True)
        process.start()
        tasks.put(away)
        assert results.get(timeout=PATIENCE_S) == known.sum().item()
        process.join(PATIENCE_S)
        assert identical(away, known + 1)
