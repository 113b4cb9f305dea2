"""A signal that arrives at any time leaves tensors as they are, and the context closes."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator

import pytest
import torch

from tensortide.run.budget import Budget
from tests.marks import some_slow
from tests.run.same import identical
from tests.run.test_budget import KIB, chain, room


@pytest.fixture
def no_callbacks() -> Iterator[None]:
    """Other libraries call nothing at a garbage collection: an interrupt there would be lost, with a warning."""
    before = list(gc.callbacks)
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.fixture(autouse=True)
def handlers_are_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    functions = signal.signal, signal.getsignal
    gc.collect()
    yield
    assert (signal.signal, signal.getsignal) == functions
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_an_interrupt_in_the_midst_of_an_op_waits_until_it_is_over() -> None:
    """Of the op itself, and of a recomputation."""
    x = torch.randn(1024)
    held: list[bool] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if held:
            os.kill(os.getpid(), signal.SIGINT)
            held.extend(True for _ in range(1000))
        return x + 1

    with torch.library._scoped_library("tensortide_tests", "FRAGMENT"):
        raises = torch.library.custom_op("tensortide_tests::raises", kernel, mutates_args=())
        raises.register_fake(torch.empty_like)
        with Budget(room(24 * KIB), "lru") as budget:
            y = raises(x)
            made = chain(x, 20)
            assert budget.usage.evictions > 0
            held.append(True)
            with pytest.raises(KeyboardInterrupt):
                y.add_(1)
            assert len(held) == 1001
            with pytest.raises(KeyboardInterrupt):
                raises(x)
            assert len(held) == 2001
            held.clear()
            assert identical(y, x + 1 + 1)
            assert all(map(identical, made, chain(x, 20)))
        assert identical(y, x + 1 + 1)
        assert all(map(identical, made, chain(x, 20)))


@pytest.mark.parametrize("turns", some_slow([10, 32], [32]))
@pytest.mark.usefixtures("no_callbacks")
def test_interrupts_at_any_time_leave_everything_valid(turns: int) -> None:
    """Handlers that are set while the budget is open, too."""
    x = torch.randn(256)
    want = chain(x, 20)

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.getsignal(signal.SIGALRM)
    interrupted, took = 0, 0.0
    for turn in range(turns):  # the first two tell how long it takes
        made: list[torch.Tensor] = []
        try:
            with Budget(1 << 60) as probe:
                limit = probe.resident_bytes
            with Budget(limit + 8 * KIB):
                signal.signal(signal.SIGALRM, interrupt)
                start = time.perf_counter()
                signal.setitimer(signal.ITIMER_REAL, (turn - 1) / (turns - 2) * took if turn > 1 else 0)
                made = []
                try:
                    for _ in range(3):
                        made = [x.sin()]
                        while len(made) < 20:
                            made.append(made[-1].cos())
                        assert identical(made[0], want[0])
                except TimeoutError:
                    interrupted += 1
                took = time.perf_counter() - start if turn < 2 else took
                assert all(map(identical, made, want[: len(made)]))
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert signal.getsignal(signal.SIGALRM) is interrupt
        except TimeoutError:
            interrupted += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert all(map(identical, made, want[: len(made)]))
    assert interrupted > turns // 3


def test_an_interrupt_while_it_closes() -> None:
    x = torch.randn(1024)
    made: list[torch.Tensor] = []
    timer = threading.Timer(0.0, lambda: os.kill(os.getpid(), signal.SIGINT))

    def close() -> None:
        with Budget(room(24 * KIB)) as budget:
            made.extend(chain(x, 20))
            assert budget.runtime is not None
            restore = budget.runtime.engine.restore

            def slowly() -> None:
                timer.start()
                time.sleep(0.05)
                restore()

            budget.runtime.engine.restore = slowly  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        close()
    assert all(map(identical, made, chain(x, 20)))
    with Budget("1GiB"):
        torch.ones(3).sum()


def test_an_error_in_a_hook_of_the_backward_pass() -> None:
    weight = torch.linspace(0, 1, 1024, requires_grad=True)

    def fail(_: torch.Tensor) -> None:
        raise KeyError

    with Budget(room(32 * KIB)):
        made = chain(weight, 20)
        hook = made[5].register_hook(fail)
        with pytest.raises(KeyError):
            made[-1].sum().backward(retain_graph=True)
        hook.remove()
        made[-1].sum().backward()
    assert weight.grad is not None
    again = torch.linspace(0, 1, 1024, requires_grad=True)
    chain(again, 20)[-1].sum().backward()
    assert again.grad is not None
    assert identical(weight.grad, again.grad)


def test_a_generator_that_is_closed_late() -> None:
    """While a mode that was entered after the budget is on."""
    from torch.utils.flop_counter import FlopCounterMode

    x = torch.randn(1024)
    made: list[torch.Tensor] = []

    def steps() -> Generator[None, None, None]:
        with Budget(room(24 * KIB)):
            made.extend(chain(x, 20))
            yield

    generator = steps()
    next(generator)
    with FlopCounterMode(display=False) as counter:
        generator.close()
        assert torch._C._len_torch_dispatch_stack() == 1
        torch.ones(8, 8) @ torch.ones(8, 8)
        assert counter.get_total_flops() == 2 * 8**3
    assert torch._C._len_torch_dispatch_stack() == 0
    assert all(map(identical, made, chain(x, 20)))
