"""``with tensortide.budget("8GiB"):`` and any training loop inside, unchanged."""

from __future__ import annotations

import functools
import gc
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from numbers import Integral
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args

import torch

from tensortide.errors import PlanError, RunError, SlowBudget, check_argument
from tensortide.graph import Graph, unrolled
from tensortide.importers.door import open as opened
from tensortide.plans import Plan, validate
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.choice import policy as named
from tensortide.plans.remat.policies import DEFAULT_POLICY, Policy
from tensortide.run.arrays import arrays_over_tensors
from tensortide.run.block import ORDINARY, stored
from tensortide.run.check import Checker
from tensortide.run.compiled import compiled_refused
from tensortide.run.core.switch import switched_on
from tensortide.run.device import device_of, graphs_refused
from tensortide.run.distributed import communication_seen
from tensortide.run.evicted import line_of, read_by, unreadable
from tensortide.run.follow import Follower, tiers_of
from tensortide.run.foreign import foreign_calls_seen
from tensortide.run.heap import tune_heap
from tensortide.run.interrupts import Interrupts
from tensortide.run.limit import budget_bytes
from tensortide.run.movers import TransferMode
from tensortide.run.processes import forks_seen
from tensortide.run.reads import is_leaf, reads_seen, watch_gradients
from tensortide.run.runtime import Runtime
from tensortide.run.settings import settings_seen
from tensortide.run.step_match import StepMatch
from tensortide.run.sums import unshared
from tensortide.run.threads import threads_seen
from tensortide.run.traced import WATCHED, LiveStep, Tracer
from tensortide.run.usage import COUNTED, Usage
from tensortide.run.writers import add_writer, loaded_files
from tensortide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tensortide.run.live import LiveLog

_one = threading.Lock()
"""Taken while a budget is open."""
_opened: list[Budget] = []
"""The open budget, if there is one."""


class Budget:
    """A limit on the bytes that tensors take while the context is open; results stay what they are, bit for bit.

    ``limit``: bytes, a text such as ``"8GiB"`` or ``"60%"`` (of the peak of ``graph``), or ``"auto"``: what tensors
    have and what is free besides when it is entered, less a margin. ``policy``: which tensors go first
    (``tensortide.plans.remat.policies``); or a Plan, or the path of one, to be followed in each step
    (``run.follow``). ``graph``: the captured step, or the path of one; a plan needs it, and with it ``steps`` tells
    what was done. ``device``: whose memory; the current GPU if there is one, else the CPU. ``workspace``: what kernels
    are known to take while they run (``memory.workspace``) counts, as far as evicting makes room for it. ``check``:
    search for what the budget cannot see (``run.check``): writes by native code, ops that do not repeat; in every
    storage, or in every n-th. ``compiled``: a core compiled on first use handles ordinary ops (``run.core``); results
    and decisions are the same without it. ``offload_dir``: the folder for what a plan moves over another link than
    ``host``, whose tier is memory that does not count. ``transfers``: ``"overlapped"``, which run beside the ops, or
    ``"serial"``: the peak is that of the plan's serial replay, then. ``clock``: nanoseconds, for the durations of ops.

    One budget can be open at a time; the thread that entered it leaves it. The same object may be entered again
    afterwards. Raises RunError, BudgetInfeasible when an op does not fit, and PlanError for a plan of another graph.
    """

    def __init__(
        self,
        limit: float | str,
        policy: str | os.PathLike[str] | Policy | Plan = DEFAULT_POLICY,
        *,
        graph: Graph | str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
        workspace: bool = True,
        check: bool | int = False,
        compiled: bool = True,
        offload_dir: str | os.PathLike[str] | None = None,
        transfers: TransferMode = "overlapped",
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        check_argument("check", check, (bool, Integral), "True, False or a number N, for every N-th storage")
        check_argument("offload_dir", offload_dir, (str, os.PathLike, NoneType), "the path of a folder, or None")
        if check < 0:
            raise RunError(f"cannot check every {check}-th storage: True checks all, and N > 0 every N-th")
        self.device = device_of(device).device
        self.limit = limit
        self.graph = _graph_of(graph)
        self.policy, self.plan, self.name = _decision(policy)
        if self.plan is not None:
            self.graph = _graph_of_plan(self.plan, self.name, self.graph)
        self.budget_bytes = budget_bytes(limit, self.device, graph=self.graph)
        self.workspace, self.check, self.compiled, self.clock = workspace, int(check), compiled, clock
        if transfers not in get_args(TransferMode):
            raise RunError(f"transfers are {' or '.join(get_args(TransferMode))}, not {transfers!r}")
        self.transfers = transfers
        self.offload_dir = Path(tempfile.gettempdir() if offload_dir is None else offload_dir)
        self.runtime: Runtime | None = None
        self.steps: tuple[LiveStep, ...] = ()
        """With ``graph``: the latest steps that ran its ops, when it was open last; of a plan the first two."""
        self.log: LiveLog | None = None
        self._usage: Usage | None = None
        self._open = ExitStack()
        self.interrupts = Interrupts()
        self._since_ns = self._ops_before = self._process = 0
        self._follower: Follower | None = None
        self._checker: Checker | None = None

    def __repr__(self) -> str:
        return f"<Budget of {self.budget_bytes:,} B on {self.device}: {self.name[-100:]}>"

    @property
    def usage(self) -> Usage:
        """Totals so far, or of the last time that the budget was open."""
        if self.runtime is None:
            if self._usage is None:
                raise RunError("the memory budget was never opened: nothing was measured")
            return self._usage
        engine, follower = self.runtime.engine, self._follower
        self.runtime.execution.wait()
        return Usage(
            peak_bytes=engine.peak,
            ops=self.runtime.engine.ops - self._ops_before,
            open_ns=time.perf_counter_ns() - self._since_ns,
            followed_steps=follower.steps if follower is not None else engine.repeats.followed,
            left_steps=follower.left if follower is not None else engine.repeats.left,
            unfollowed="" if follower is None else follower.unfollowed,
            run_bytes=None if follower is None else follower.run_bytes,
            plain_peak_bytes=engine.plain_peak,
            **{name: getattr(engine, name) for name in COUNTED},
        )

    def reset(self) -> None:
        """Count from now on, while it is open: ``usage`` starts at zero, and its peak at what is resident."""
        if self.runtime is None:
            raise RunError("the memory budget is not open: there is nothing to count")
        engine = self.runtime.engine
        self.runtime.execution.wait()
        engine.peak, self._ops_before, self._since_ns = engine.memory, self.runtime.engine.ops, time.perf_counter_ns()
        engine.plain_peak = engine.memory + engine.away_bytes
        for name in COUNTED:
            setattr(engine, name, 0)

    @property
    def resident_bytes(self) -> int:
        """Bytes that count against the limit now; 0 unless the budget is open."""
        return self.runtime.engine.memory if self.runtime is not None else 0

    def __enter__(self) -> Budget:
        if not _one.acquire(blocking=False):
            raise RunError("a memory budget is open already: leave it before another one begins")
        self.interrupts = Interrupts()
        try:
            with self.interrupts.lock:
                self._enter()
            self.interrupts.deliver()
        except BaseException:
            self._leave(sys.exc_info())
            raise
        return self

    def _enter(self) -> None:
        with ExitStack() as stack:
            stack.enter_context(self.interrupts.held())
            stack.callback(_one.release)
            tune_heap()
            self.runtime = Runtime(
                self.policy, self.budget_bytes, self.device, self.clock, self.workspace, self.interrupts
            )
            self._since_ns, self._ops_before, self._process = time.perf_counter_ns(), 0, os.getpid()
            stack.callback(self._close, self.runtime)
            tensors = self._meet(self.runtime)
            engine = self.runtime.engine
            self.budget_bytes = engine.budget = budget_bytes(self.limit, self.device, engine.memory, self.graph)
            engine.when_slow = self._slow
            self._watch(self.runtime, stack)
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # backward runs in this thread
            stack.enter_context(reads_seen(self.runtime))
            stack.enter_context(foreign_calls_seen(self.runtime))
            stack.enter_context(self.runtime.composites.autocast_seen())
            stack.enter_context(forks_seen(self.runtime, self._forget))
            stack.enter_context(threads_seen(self.runtime))
            stack.enter_context(graphs_refused())
            stack.enter_context(settings_seen(self.runtime.changed))
            stack.enter_context(compiled_refused())
            stack.enter_context(communication_seen(self.runtime))
            stack.enter_context(self.runtime)
            if self.compiled and not self.check:
                stack.enter_context(switched_on(self.runtime))
            if self.graph is not None:
                self.runtime.unshared = unshared(self.runtime)
                self.reset()
            watch_gradients(self.runtime, tensors, stack)
            self._open = stack.pop_all()

    def __exit__(self, *error: Any) -> None:
        runtime = self.runtime
        elsewhere = runtime is not None and runtime.thread != threading.get_ident()
        try:
            self._leave(error)
        finally:
            self.interrupts.deliver()
        if elsewhere:
            raise RunError(
                "a memory budget was left in another thread than the one that opened it: its tensors are back"
            )
        if unreadable(error[1]):
            raise read_by(f"native code called at {line_of(error[2])}") from error[1]

    def _leave(self, error: Sequence[Any]) -> None:
        with self.interrupts.lock:
            opened, self._open = self._open, ExitStack()
            if self.runtime is not None:
                self.runtime.engine.thread = threading.get_ident()
            try:
                if self._checker is not None and error[0] is None:
                    self._checker.finish()
            finally:
                opened.__exit__(*error)

    def _forget(self) -> None:
        """Leave it in a forked process: nothing is brought back, and nothing is written."""
        opened, self._open, self.log, self._checker = self._open, ExitStack(), None, None
        opened.close()

    def _meet(self, runtime: Runtime) -> list[torch.Tensor]:
        """Count every tensor that exists; returns them."""
        tensors = _tensors()
        runtime.storages.loaded = functools.cache(loaded_files)
        for tensor in tensors:
            with suppress(NotImplementedError):  # it has no memory
                runtime.storage(tensor)
        runtime.storages.loaded = tuple
        for tensor, array in arrays_over_tensors():
            if (value := runtime.storages.found(tensor)) is not None:
                add_writer(value.block, array)
        return tensors

    def _watch(self, runtime: Runtime, stack: ExitStack) -> None:
        """Follow the plan, and remember the steps."""
        _opened.append(self)
        self._checker = Checker(runtime, self.check) if self.check else None
        runtime.graph = self.graph
        if self.graph is None:
            return
        if self.plan is not None:
            mover = runtime.hardware.mover(self.transfers)
            runtime.engine.tiers = tiers_of(self.plan, self.graph, mover, self.offload_dir)
            self._follower = Follower(runtime, self.graph, self.plan, self.name)
            runtime.shed()
        if self._follower is None or self.plan is None:
            tracer = Tracer(runtime, self.graph)
            match = StepMatch(runtime, self.graph, [tracer])
        else:
            most = WATCHED if any(self._follower.actions.unneeded) else None
            tracer = Tracer(runtime, self.graph, self.plan.home, most)
            match = StepMatch(runtime, self.graph, [self._follower, tracer], self._follower.actions.first)
        stack.callback(match.close)
        stack.callback(lambda: setattr(self, "steps", tuple(tracer.traced)))

    def _slow(self) -> None:
        """Warn, once, that the program mostly recomputes."""
        assert self.runtime is not None
        engine, self.runtime.engine.when_slow = self.runtime.engine, None
        again, own = (
            format_seconds((engine.recompute_ns + engine.arguments_ns) / 1e9),
            format_seconds(engine.base_ns / 1e9),
        )
        warnings.warn(
            f"recomputation has taken {again}, longer than the program's own ops ({own}), under a budget of "
            f"{format_bytes(engine.budget)}. Without evictions about {format_bytes(engine.plain_peak)} would have been "
            "resident so far: a budget as large recomputes nothing, and one in between less; `tensortide run TARGET "
            "--least` finds out how much. This is said once.",
            SlowBudget,
            stacklevel=2,
        )

    def _close(self, runtime: Runtime) -> None:
        self._usage = self.usage
        self._follower = None
        _opened.clear()
        runtime.watchers.clear()
        runtime.engine.when_slow = None
        runtime.engine.listeners.clear()
        try:
            if os.getpid() == self._process:
                runtime.restore()
        finally:
            if runtime.engine.tiers is not None:
                runtime.engine.tiers.close()
            runtime.close()
            self.runtime = None
            if self.log is not None:
                log, self.log = self.log, None
                log.write()


def budget(
    limit: float | str,
    policy: str | os.PathLike[str] | Policy | Plan = DEFAULT_POLICY,
    *,
    graph: Graph | str | os.PathLike[str] | None = None,
    device: str | torch.device | None = None,
    workspace: bool = True,
    check: bool | int = False,
    compiled: bool = True,
    offload_dir: str | os.PathLike[str] | None = None,
    transfers: TransferMode = "overlapped",
) -> Budget:
    """A context in which tensors take at most ``limit``, whatever the training loop inside does; see Budget.

    >>> with tensortide.budget("8GiB") as memory:
    ...     for batch in loader:
    ...         train(batch)
    >>> memory.usage.peak_bytes
    """
    return Budget(
        limit,
        policy,
        graph=graph,
        device=device,
        workspace=workspace,
        check=check,
        compiled=compiled,
        offload_dir=offload_dir,
        transfers=transfers,
    )


def current() -> Budget:
    """The budget that is open. Raises RunError if none is."""
    if not _opened:
        raise RunError("no memory budget is open: this acts on the one of `with tensortide.budget(...):` around it")
    return _opened[0]


def _graph_of(given: Graph | str | os.PathLike[str] | None) -> Graph | None:
    graph = given if given is None or isinstance(given, Graph) else opened(given, durations=False).graph
    return graph if graph is None else unrolled(graph)


def _decision(given: str | os.PathLike[str] | Policy | Plan) -> tuple[Policy, Plan | None, str]:
    """The policy, the plan to be followed if there is one, and what decides is called."""
    if not isinstance(given, str | os.PathLike | Plan) and not hasattr(given, "name"):
        raise RunError(f"a policy is a name, a policy, a plan or the path of one, not a {type(given).__name__}")
    found = decision(given)
    if isinstance(found, Plan):
        return named(DEFAULT_POLICY), found, "the plan" if isinstance(given, Plan) else str(given)
    return found, None, found.name


def _graph_of_plan(plan: Plan, name: str, graph: Graph | None) -> Graph:
    """The captured step that ``plan`` was made for. Raises RunError without one, PlanError if it is another."""
    if graph is None:
        raise RunError(
            f"{name} refers to the ops of a captured step by number: give the step too, "
            "budget(..., policy=plan, graph=tensortide.capture(step)), or the path of one that was saved"
        )
    try:
        validate(plan, graph)
    except PlanError as error:
        raise PlanError(f"{name} does not execute this step: {error}") from error
    return graph


def _tensors() -> list[torch.Tensor]:
    """Every tensor that exists, with what sparse ones consist of."""
    found = [t for t in gc.get_objects() if type(t) in ORDINARY and not t.is_meta]
    return stored([*found, *(tensor.grad for tensor in found if is_leaf(tensor) and tensor.grad is not None)])
