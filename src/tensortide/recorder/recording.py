"""Observation of a running training loop, until one of its steps has been recorded."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch
from msgspec.structs import replace
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader

from tensortide.errors import CaptureError, WorkloadError, check_argument
from tensortide.graph.model import Graph
from tensortide.recorder.building import meta_of
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.found import caller, existing
from tensortide.recorder.hand_updates import HandUpdates
from tensortide.recorder.live_step import LiveStep
from tensortide.recorder.not_reached import not_reached, times
from tensortide.recorder.periods import Periods
from tensortide.recorder.steady import Search
from tensortide.recorder.surroundings import alone, replaced, wrapped
from tensortide.recorder.torch_compat import LoaderIterator, disable_current_modes

if TYPE_CHECKING:
    from tensortide.recorder.compiled import CompiledStep

P = ParamSpec("P")
R = TypeVar("R")


class Recording:
    """One training step of the loop that runs while the context is open; ``graph`` once it has ended.

    A training step lasts from one optimizer step to the next (``recorder.periods``). ``step`` is the number of the one
    to record, counted from 1; by default it is the first that repeats (``recorder.steady``), from the second on, which
    finds all optimizer state. The loop continues after it.
    ``recorded`` is called when the step has ended, and ``after`` at every hook that the loop reaches later.
    """

    def __init__(
        self,
        step: int | None = None,
        *,
        name: str = "",
        mode: StepFakeMode | None = None,
        compiled: CompiledStep | None = None,
        recorded: Callable[[Recording], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        if step is not None and step < 1:
            raise CaptureError(f"there is no step {step}: steps are counted from 1")
        self.step, self.name, self.mode, self.compiled = 2 if step is None else step, name, mode, compiled
        self._search = Search() if step is None else None
        self.eager = False
        """True if the ops are the eager ones of what ``torch.compile`` would compile."""
        self.notes: set[str] = set()
        """Assumptions to list in the graph."""
        self.most: int | None = None
        """Most ops of a step; TooManyOps is raised in the program when it has more."""
        self.alive: Callable[[], None] | None = None
        """Called now and then while the loop runs."""
        self.error: Exception | None = None
        self._graph: Graph | None = None
        self._on_recorded, self._on_later_hook = recorded, after
        self._open = contextlib.ExitStack()
        self.periods = Periods()
        self._record: LiveStep | None = None
        self._done = False
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._older: set[int] = set()
        """Optimizers made before, perhaps for another loop; not awaited until a module that they train runs."""
        self._tensors: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()
        """Results computed before, perhaps by other code."""
        self._stepping: list[int] = []
        self._called: weakref.WeakValueDictionary[int, torch.nn.Module] = weakref.WeakValueDictionary()
        self._depth = self._in_backward = self._forwards = self._backwards = 0
        self._whole = self._end_pending = self._is_function = False
        self._by_hand: HandUpdates | None = None
        """Training steps of a loop without an optimizer, once it has run a backward pass."""

    # -- results --------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The recorded step. Raises CaptureError if none has been."""
        if self.error is not None:
            raise self.error
        if self._graph is None:
            raise CaptureError(self.missed())
        return self._graph

    @property
    def done(self) -> bool:
        """True once the step has been recorded, or could not be."""
        return self._done

    @property
    def progress(self) -> tuple[int, int]:
        """The number of the training step that runs, and of its ops that are recorded."""
        return self.periods.count + 1, 0 if self._record is None else len(self._record.recorder.ops)

    def missed(self) -> str:
        """Explain why no step has been recorded so far, by what was seen."""
        return not_reached(self.periods, self.step, self._forwards, self._backwards)

    def _notes(self) -> list[str]:
        notes = sorted(self.notes)
        if self.periods.skipped:
            skipped = times(self.periods.skipped, "step")
            notes.append(f"the gradient scaler skipped {skipped} before the recorded one")
        if self.periods.missing:
            others = times(self.periods.missing, "optimizer")
            notes.append(f"{others} did not step before the end of the recorded step: another step may cost more")
        return notes

    def __repr__(self) -> str:
        return f"<Recording {self._graph!r}>" if self._graph is not None else f"<Recording: {self.missed()}>"

    def _repr_html_(self) -> str | None:
        return None if self._graph is None else self._graph._repr_html_()

    # -- the loop -------------------------------------------------------------------------------

    def __enter__(self) -> Recording:
        self.name = self.name or caller()
        with contextlib.ExitStack() as stack:
            stack.enter_context(alone())
            stack.callback(self._leave)
            for handle in (
                register_module_forward_pre_hook(self._forward_starts),
                register_module_forward_hook(self._forward_ends, always_call=True),
                register_optimizer_step_pre_hook(self._step_starts),
                register_optimizer_step_post_hook(self._step_ends),
            ):
                stack.callback(handle.remove)
            for owner, name, around in (
                (torch.optim.Optimizer, "__init__", self._made),
                (torch.autograd, "backward", self._backward),
                (torch.autograd, "grad", self._backward),
                (GradScaler, "step", self._scaled_step),
                (DataLoader, "__iter__", self._iterated),
                (LoaderIterator, "__next__", self._next),
            ):
                stack.enter_context(replaced(owner, name, wrapped(getattr(owner, name), around)))
            gc.collect()
            for optimizer in existing(torch.optim.Optimizer):
                if "state" in vars(optimizer) and self._know(optimizer):  # a wrapper shares that of another
                    self._older.add(id(optimizer))
            self._tensors.update((id(each), each) for each in existing(torch.Tensor) if each.grad_fn is not None)
            self._open = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.close()
        if self._graph is not None and not (self._done or self._is_function):  # the loop ended before a step repeated
            self._ends()

    def _leave(self) -> None:
        if self._record is not None:
            self._record.close()
            self._record, self._whole = None, False

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Record a step of ``function``, which runs one, or a loop of them, whenever it is called.

        A function that returns before a second training step has ended is a step itself; a later call of it is recorded
        from beginning to end.
        """
        calls = 0

        @functools.wraps(function)
        def watched(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal calls
            if self._done:
                return function(*args, **kwargs)
            calls += 1
            with self:
                if calls < self.step or calls == 1:
                    return function(*args, **kwargs)
                self._start(whole=True)
                result = function(*args, **kwargs)
                self._finish(result)
                return result

        self.name, self._is_function = self.name or function.__qualname__, True
        vars(watched)["recording"] = self
        return watched

    # -- the record -----------------------------------------------------------------------------

    def _start(self, *, whole: bool = False) -> LiveStep:
        """Record from here on, to the end of the training step, or with ``whole`` to the end of the function."""
        optimizers = [each for key, ref in self._optimizers.items() if key not in self._older and (each := ref())]
        self._whole = whole
        self._record = LiveStep(optimizers, {*self._called}, self._tensors, self.compiled)
        self._record.recorder.most = self.most
        return self._record

    def _finish(self, result: Any = None) -> None:
        record, self._record = self._record, None
        if record is None:
            return
        meta = meta_of(self.name, self.mode, first_step=self.step == 1, notes=self._notes())
        try:
            if self.mode is not None:
                self.mode.values.check()
            graph = record.finish(replace(meta, compiled=self.eager), result)
            if graph is None:
                raise CaptureError("the recorded step ran no op in this thread")
            over = self._search is None or self._search.ends(graph)
            self._graph = graph if self._search is None else self._search.result()
            if not over:
                return
        except Exception as error:  # noqa: BLE001 the loop continues; ``graph`` raises it
            self.error = error if self._graph is None else None
        self._ends()

    def _ends(self) -> None:
        """Stop watching for a step, and report the one that was recorded."""
        self._done = True
        if self._on_recorded is not None:
            self._on_recorded(self)

    def _end_training_step(self) -> None:
        """Begin, end or restart the record after the end of a training step."""
        self._end_pending = False
        if self._record is not None and not self._whole:
            skipped = self.periods.count < self.step  # an optimizer's step was
            self._leave() if skipped else self._finish()
        if self.mode is not None:
            self.mode.values.starts()
        if not self._done and not self._whole and self._record is None and self.periods.count >= self.step - 1:
            self.step = self.periods.count + 1
            self._start()

    # -- what the loop does ---------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Return whether recording is over; if so, report that the loop has reached another hook."""
        if self._done and self._on_later_hook is not None:
            self._on_later_hook()
        return self._done

    def _know(self, optimizer: torch.optim.Optimizer) -> bool:
        """Remember an optimizer. Returns True if it is new."""
        key = id(optimizer)
        if key in self._optimizers:
            return False
        self._optimizers[key] = weakref.ref(optimizer, lambda _: self._forget(key))
        return True

    def _forget(self, key: int) -> None:
        self._optimizers.pop(key, None)
        self._older.discard(key)
        self.periods.dropped(key)

    def _await_older(self) -> None:
        """Expect steps of older optimizers that train modules of the loop."""
        ran = {id(p) for module in self._called.values() for p in module._parameters.values()}
        for key in list(self._older):
            optimizer = self._optimizers[key]()
            if optimizer is not None and any(id(p) in ran for group in optimizer.param_groups for p in group["params"]):
                self._older.discard(key)
                self.periods.made(key)

    def _made(self, function: Callable[..., Any], optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(optimizer, *args, **kwargs)
        self._know(optimizer)
        self.periods.made(id(optimizer))
        return result

    def _forward_starts(self, module: torch.nn.Module, args: Any) -> None:
        del args
        if self.alive is not None:
            self.alive()
        if self._is_over():
            return
        if self._by_hand is not None and not self._depth and torch.is_grad_enabled():
            self._updated_by_hand(self._by_hand)
        self._called[id(module)] = module
        self._forwards += not self._depth
        self._depth += 1
        if self.step == 1 and self._record is None and torch.is_grad_enabled():
            self._called.update((id(each), each) for each in module.modules())
            self._await_older()
            if self._optimizers.keys() - self._older:  # otherwise the loop's optimizer is made later
                self._start().tracker.enter(module)

    def _forward_ends(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        del module, args, output
        self._depth = max(0, self._depth - 1)

    def _step_starts(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if not self._is_over():
            self._stepping.append(id(optimizer))

    def _step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del args, kwargs
        if self.alive is not None:
            self.alive()
        if self._record is not None:
            self._record.tracker.optimizer_ends()
        if id(optimizer) in self._stepping:
            del self._stepping[self._stepping.index(id(optimizer)) :]
        if self._done:
            return
        if self._stepping:  # a part of another optimizer, which has the state
            self.periods.dropped(id(optimizer))
        else:
            self._stepped(optimizer)

    def _stepped(self, optimizer: torch.optim.Optimizer, *, skipped: bool = False) -> None:
        self._know(optimizer)
        self._older.discard(id(optimizer))
        self._await_older()
        if self.periods.stepped(id(optimizer), skipped=skipped):
            self._end_pending = True
            if not self._in_backward:
                self._end_training_step()

    def _scaled_step(self, function: Callable[..., Any], scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a step of a gradient scaler, and note if it skips the optimizer's."""
        before = self.periods.steps[id(optimizer)]
        result = function(scaler, optimizer, *args, **kwargs)
        if not self._done and self.periods.steps[id(optimizer)] == before:
            self._stepped(optimizer, skipped=True)
        return result

    def _backward(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run a backward pass. Optimizers may step in its hooks, but a record cannot begin or end there."""
        self._backwards += not self._is_over()
        self._in_backward += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._in_backward -= 1
        if self._end_pending and not self._in_backward:
            self._end_training_step()
        elif not (self._in_backward or self._is_function or self._optimizers or self._done):
            if self._by_hand is None:
                self._by_hand = HandUpdates(self._called)
                self._open.enter_context(self._by_hand.writes)
            self._by_hand.passed(sys._getframe(2))
        return result

    def _updated_by_hand(self, updates: HandUpdates) -> None:
        """End a training step if it wrote to parameters. Several lines of backward passes are as several optimizers."""
        line = updates.ended()
        if line is not None and self.periods.stepped(line):
            self.notes.add(updates.note)
            self._end_training_step()

    def _iterated(self, function: Callable[..., Any], loader: Any) -> Any:
        """Begin to load: fork workers without a mode, and none on fake tensors, which processes cannot share."""
        if self.mode is None:
            with disable_current_modes():
                return function(loader)
        with replaced(loader, "num_workers", 0), replaced(loader, "timeout", 0):  # a timeout needs workers
            return function(loader)

    def _next(self, function: Callable[..., Any], loading: Any) -> Any:
        """Load a batch, which is real work and not part of the step."""
        if self.mode is not None:  # ``loaders`` has seen to that
            return function(loading)
        with disable_current_modes():
            return self.loaded(function(loading))

    def loaded(self, batch: R) -> R:
        """Note a batch that a data loader hands out. Returns it."""
        if self._record is not None:
            self._record.loaded(batch)
        return batch


def record(function: Callable[P, R] | None = None, *, step: int | None = None, name: str = "") -> Any:
    """Record one training step of a running loop, on real tensors and without changing it.

    >>> with tensortide.record() as recording:
    ...     train(model, loader)
    >>> recording.graph

    A training step lasts from one optimizer step to the next; ``step`` is the number of the one to record, by
    default the first that repeats, from the second on. The loop continues after it. As a decorator
    (``@tensortide.record``) of a function that runs one step, or a loop of them, it leaves the graph in
    ``function.recording.graph``.
    """
    check_argument("step", step, (int, type(None)), "the number of a training step, from 1 up")
    if function is not None and not callable(function):
        raise WorkloadError(f"record takes the function below @tensortide.record, not a {type(function).__name__}")
    return Recording(step, name=name) if function is None else Recording(step, name=name)(function)
