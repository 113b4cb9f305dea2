"""``with tensortide.budget("8GiB"):`` and any training loop inside, unchanged."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

import torch

from tensortide.errors import RunError
from tensortide.plan.remat.policies import Policy
from tensortide.plan.remat.policies import policy as named
from tensortide.run.limit import budget_bytes, default_device
from tensortide.run.reads import Reads, Strangers
from tensortide.run.runtime import Runtime

_one = threading.Lock()
"""Taken while a budget is open."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What happened under a budget: most bytes at once; ops of the program and their time; storages evicted and the
    time it took to choose them (with that of what makes room); ops run again and their time."""

    peak_bytes: int
    ops: int
    evictions: int
    recomputations: int
    base_ns: int
    recompute_ns: int
    search_ns: int


class Budget:
    """A limit on the bytes that tensors take while the context is open; results stay what they are, bit for bit.

    ``limit``: bytes, a text such as ``"8GiB"`` or ``"60%"`` (of the device's memory), or ``"auto"``: what is free now,
    less a margin. ``policy``: which tensors go first (``tensortide.plan.remat.policies``). ``device``: whose memory;
    the current GPU if there is one, else the CPU. ``clock``: nanoseconds, for the durations of ops.

    One budget can be open at a time, and covers the thread that opened it. The same object may be entered again
    afterwards. Raises RunError, and BudgetInfeasible when an op does not fit.
    """

    def __init__(
        self,
        limit: int | str,
        policy: str | Policy = "dtr-eq",
        *,
        device: str | torch.device | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.device = torch.device(device) if device is not None else default_device()
        self.budget_bytes = budget_bytes(limit, self.device)
        self.policy = named(policy) if isinstance(policy, str) else policy
        self.clock = clock
        self.runtime: Runtime | None = None
        self._usage: Usage | None = None
        self._open = ExitStack()

    @property
    def usage(self) -> Usage:
        """So far, or of the last time that it was open."""
        if self.runtime is None:
            if self._usage is None:
                raise RunError("the memory budget was never opened: nothing was measured")
            return self._usage
        engine = self.runtime.engine
        return Usage(
            peak_bytes=engine.peak,
            ops=self.runtime.ops,
            evictions=engine.evictions,
            recomputations=engine.recomputations,
            base_ns=engine.base_ns,
            recompute_ns=engine.again_ns,
            search_ns=engine.search_ns,
        )

    @property
    def resident_bytes(self) -> int:
        """What counts against the limit now; 0 unless it is open."""
        return self.runtime.engine.memory if self.runtime is not None else 0

    def __enter__(self) -> Budget:
        if not _one.acquire(blocking=False):
            raise RunError("a memory budget is open already: leave it before another one begins")
        with ExitStack() as stack:
            stack.callback(_one.release)
            self.runtime = Runtime(self.policy, self.budget_bytes, self.device, self.clock)
            stack.callback(self._close, self.runtime)
            for tensor in _tensors():
                self.runtime.storage(tensor)
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # backward runs in this thread
            stack.enter_context(Reads(self.runtime))
            stack.enter_context(Strangers(self.runtime))
            stack.enter_context(self.runtime)
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _close(self, runtime: Runtime) -> None:
        self._usage = self.usage
        try:
            runtime.engine.restore()
        finally:
            runtime.close()
            self.runtime = None


def budget(limit: int | str, policy: str | Policy = "dtr-eq", *, device: str | torch.device | None = None) -> Budget:
    """A context in which tensors take at most ``limit``, whatever the training loop inside does; see Budget.

    >>> with tensortide.budget("8GiB") as memory:
    ...     for batch in loader:
    ...         train(batch)
    >>> memory.usage.peak_bytes
    """
    return Budget(limit, policy, device=device)


def _tensors() -> list[torch.Tensor]:
    """Every tensor that exists."""
    found = [
        thing
        for thing in gc.get_objects()
        if type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.layout is torch.strided and not thing.is_meta
    ]
    return [*found, *(tensor.grad for tensor in found if tensor.is_leaf and tensor.grad is not None)]
