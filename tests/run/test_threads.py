"""Threads beside the one that opened the budget see tensors as they would be without it, or get one clear error."""

from __future__ import annotations

import _thread
import asyncio
import copy
import gc
import io
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.pool import ThreadPool
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import RunError
from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, identical
from tests.run.test_budget import KIB, chain, room

PATIENCE_S = 300.0
"""Longest time that a test waits for another thread."""


@pytest.fixture(autouse=True)
def no_mode_left() -> Iterator[None]:
    gc.collect()
    yield
    assert torch._C._len_torch_dispatch_stack() == 0
    assert _thread.start_new_thread.__module__ == "_thread"


def started(work: Callable[[], Any], start: Start) -> Any:
    """Result of ``work`` in a thread that ``start`` starts, or what it raises."""
    results: queue.Queue[Any] = queue.Queue()

    def run() -> None:
        try:
            results.put(work())
        except Exception as error:  # noqa: BLE001
            results.put(error)

    start(run)
    return results.get(timeout=PATIENCE_S)


def threaded(run: Callable[[], None]) -> None:
    threading.Thread(target=run, daemon=True).start()


Start: TypeAlias = Callable[[Callable[[], None]], object]


def _executor(stack: ExitStack, warm: bool) -> Start:
    executor = stack.enter_context(ThreadPoolExecutor(1))
    if warm:
        executor.submit(int).result(PATIENCE_S)
    return executor.submit


def _pool(stack: ExitStack) -> Start:
    pool = stack.enter_context(ThreadPool(1))
    pool.apply(int)
    return pool.apply_async


def _waiting() -> Start:
    """A thread that is in the midst of waiting for its work."""
    tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def wait() -> None:
        tasks.get()()

    threaded(wait)
    time.sleep(0.01)
    return tasks.put


def _polling() -> Start:
    """A thread that looks for its work again and again; one that never slept would take most of the time."""
    tasks: list[Callable[[], None]] = []

    def poll() -> None:
        while not tasks:
            time.sleep(1e-4)
        tasks[0]()

    threaded(poll)
    return tasks.append


WAYS: dict[str, Callable[[ExitStack], Start]] = {
    "thread": lambda _: threaded,
    "raw": lambda _: lambda run: _thread.start_new_thread(run, ()),
    "timer": lambda _: lambda run: threading.Timer(0, run).start(),
    "asyncio": lambda _: lambda run: asyncio.run(asyncio.to_thread(run)),
    "executor": lambda stack: _executor(stack, warm=False),
    "warm executor": lambda stack: _executor(stack, warm=True),
    "warm pool": _pool,
    "waiting": lambda _: _waiting(),
    "polling": lambda _: _polling(),
}


@pytest.mark.parametrize("way", WAYS)
def test_any_thread_reads_what_was_evicted(way: str) -> None:
    """Those that run before the budget is opened, too."""
    x = torch.randn(1024)
    want = chain(x, 20)
    with ExitStack() as stack:
        start = WAYS[way](stack)
        with Budget(room(24 * KIB)) as budget:
            made = chain(x, 20)
            assert budget.usage.evictions >= 14
            total, listed, copied = started(lambda: (made[1].sum(), made[2].tolist(), copy.deepcopy(made[3])), start)
            assert total.item() == want[1].sum().item()
            assert listed == want[2].tolist()
            assert identical(copied, want[3])
            assert budget.usage.recomputations > 0
        assert all(map(identical, made, want))
        if way not in ("waiting", "polling"):  # which work once
            assert started(torch._C._len_torch_dispatch_stack, start) == 0


def test_views_and_writes_of_other_threads_count() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    want[1].add_(1)
    with Budget(room(24 * KIB)):
        made = chain(x, 20)
        started(lambda: made[1].view(32, 32).add_(1), threaded)
        again = chain(x, 20)
        assert all(map(identical, made, want))
        del again


def test_threads_and_the_program_work_on_the_same_tensors_at_once() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(room(32 * KIB)) as budget:
        made = chain(x, 20)
        failures: list[Any] = []

        def check() -> None:
            for turn in range(40):
                at = turn * 7 % 20
                if not identical(made[at], want[at]) or made[at][::2].tolist() != want[at][::2].tolist():
                    failures.append(at)

        with ThreadPoolExecutor(3) as executor:
            checks = [executor.submit(check) for _ in range(3)]
            check()
            for done in checks:
                done.result(PATIENCE_S)
        assert not failures
        assert budget.usage.recomputations > 20


def test_threads_release_what_the_program_is_about_to_need() -> None:
    """The last reference to an input of a recomputation may go at any time."""
    x = torch.randn(4096)
    stop = threading.Event()
    handed: queue.SimpleQueue[torch.Tensor | None] = queue.SimpleQueue()

    def drop() -> None:
        while handed.get(timeout=PATIENCE_S) is not None:
            pass

    dropper = threading.Thread(target=drop, daemon=True)
    dropper.start()
    want = [x.sin().cos().exp().tanh() for _ in range(4)]
    with Budget(room(160 * KIB)) as budget:
        for _ in range(60):
            kept = []
            for _ in range(4):
                a = x.sin()
                b = a.cos()
                c = b.exp()
                kept.append(c.tanh())
                for near in (a, b, c):
                    handed.put(near)
                del a, b, c, near
            fill = [x + 1 for _ in range(6)]
            assert all(map(identical, kept, want))
            del fill
        handed.put(None)
        dropper.join(PATIENCE_S)
        assert budget.usage.evictions > 0
    stop.set()


def test_other_threads_change_no_counter_when_they_release_a_tensor() -> None:
    """One that they change in the midst of an op of the program could be overwritten by it."""
    with Budget(UNLIMITED) as memory:
        assert memory.runtime is not None
        before, held = memory.resident_bytes, [torch.ones(1000).sin()]
        there = memory.resident_bytes
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        assert (memory.resident_bytes, held) == (there, [])
        torch.ones(1)
        assert memory.resident_bytes - before < 4000


def test_a_checkpoint_is_saved_while_training_goes_on() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))
    update = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.randn(64, 64)
    want = copy.deepcopy(model.state_dict())

    def save() -> dict[str, Any]:
        file = io.BytesIO()
        torch.save({"model": model.state_dict(), "update": update.state_dict()}, file)
        file.seek(0)
        return dict(torch.load(file)["model"])

    with Budget(room(120 * KIB)), ThreadPoolExecutor(1) as executor:
        saved = executor.submit(save)
        for _ in range(20):
            loss = model(x).square().mean()
            logged = executor.submit(loss.item)
            loss.backward()
            update.step()
            update.zero_grad()
            assert logged.result(PATIENCE_S) == loss.item()
        found = saved.result(PATIENCE_S)
    assert all(identical(found[name], want[name]) for name in want)


def test_an_average_kept_by_another_thread() -> None:
    """It writes tensors from before, from which values of the program were computed."""
    average = torch.zeros(1024)
    with Budget(room(24 * KIB)):
        seen = chain(average, 12)
        started(lambda: average.lerp_(torch.ones(1024), 0.5), threaded)
        chain(average, 12)
        assert identical(seen[0], torch.zeros(1024).sin())
        assert identical(average, torch.full((1024,), 0.5))


def test_random_numbers_are_not_drawn_again_for_another_thread() -> None:
    torch.manual_seed(0)
    want = [torch.rand(1024) for _ in range(12)]
    torch.manual_seed(0)
    with Budget(room(24 * KIB), "lru"):
        made = [torch.rand(1024) for _ in range(12)]
        state = torch.get_rng_state()
        error = started(made[0].sum, threaded)
        assert isinstance(error, RunError)
        assert "draws random numbers" in str(error)
        assert "\n" not in str(error)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(map(identical, made, want))


def test_a_backward_pass_in_another_thread() -> None:
    weight = torch.linspace(0, 1, 1024, requires_grad=True)
    chain(weight, 20)[-1].sum().backward()
    assert weight.grad is not None
    want, weight.grad = weight.grad, None
    for multithreading in (False, True):
        with Budget(room(32 * KIB)) as budget, torch.autograd.set_multithreading_enabled(multithreading):
            loss = chain(weight, 20)[-1].sum()
            started(loss.backward, threaded)
            assert budget.usage.evictions > 0
        gradient: Any = weight.grad
        assert identical(gradient, want)
        weight.grad = None


def test_threads_that_wait_for_each_other_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a deadlock: one op runs at a time, and this one waits for that of a thread."""
    monkeypatch.setattr("tensortide.run.interrupts.LOCK_TIMEOUT_S", 0.2)
    other: list[Any] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        other.append(started(y.sum, threaded))
        return x + 1

    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        library.define("waits(Tensor x) -> Tensor")
        library.impl("waits", kernel, "CompositeExplicitAutograd")
        with Budget("1GiB"):
            y = torch.ones(8).sin()
            assert torch.equal(torch.ops.tensortide_tests.waits(torch.ones(8)), torch.full((8,), 2.0))
    assert isinstance(other[-1], RunError)
    assert "one op runs at a time" in str(other[-1])


def test_a_budget_in_another_thread() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)

    def work() -> bool:
        with Budget(room(24 * KIB)) as budget:
            made = chain(x, 20)
            assert budget.usage.evictions >= 14
            assert identical(made[1], want[1])
        return all(map(identical, made, want))

    assert started(work, threaded) is True


def test_a_budget_left_in_another_thread() -> None:
    with torch.autograd.set_multithreading_enabled(True):  # only this thread can set it again
        x = torch.randn(1024)
        want = chain(x, 20)
        budget = Budget(room(24 * KIB))
        budget.__enter__()
        made = chain(x, 20)
        error = started(lambda: budget.__exit__(None, None, None), threaded)
        assert isinstance(error, RunError)
        assert "another thread" in str(error)
        assert "\n" not in str(error)
        assert all(map(identical, made, want))
        torch.ones(4).sin()
        with tensortide.budget("1GiB"):
            assert identical(chain(x, 20)[-1], want[-1])
