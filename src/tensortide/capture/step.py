"""Capture one step of a PyTorch workload: build it, warm it up, record it, leave no trace."""

from __future__ import annotations

import contextlib
import gc
import inspect
import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tensortide.capture.batches import loaders
from tensortide.capture.context import Tracker
from tensortide.capture.control_flow import followed
from tensortide.capture.failure import explained
from tensortide.capture.fake_mode import StepFakeMode
from tensortide.capture.finish import State, build
from tensortide.capture.isolate import Isolation
from tensortide.capture.parity import FIXES, same_paths
from tensortide.capture.recorder import Recorder
from tensortide.capture.standins import clones, fakes
from tensortide.capture.surroundings import undisturbed
from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph.model import Graph, Meta

Step = Callable[[], Any]
Scalar = str | int | float | bool | None


def capture_step(
    target: Callable[..., Any],
    hyperparameters: Mapping[str, Scalar],
    *,
    name: str,
    real: bool,
    first_step: bool,
    progress: Callable[[str], None],
    is_step: bool = False,
) -> Graph:
    """Graph of one step of ``target``, a workload function or a step. See ``tensortide.capture``.

    Whether it is one or the other shows when it is called, unless ``is_step`` says so.
    """
    mode = None if real else StepFakeMode()
    with prepared(
        target, hyperparameters, name=name, mode=mode, first_step=first_step, progress=progress, is_step=is_step
    ) as (target, step, called):
        if not called and not first_step:
            progress("warming up")
            with explained("step", name, real), followed():
                step()
        progress("recording")
        return _record(step, name, real, lambda: _meta(name, target, hyperparameters, mode, first_step))


@contextlib.contextmanager
def prepared(
    target: Callable[..., Any],
    hyperparameters: Mapping[str, Scalar],
    *,
    name: str,
    mode: StepFakeMode | None,
    first_step: bool,
    progress: Callable[[str], None],
    is_step: bool,
) -> Iterator[tuple[Callable[..., Any], Step, bool]]:
    """``target`` and its step with stand-ins for the user's tensors (fake ones of ``mode``, or clones), for as long as
    the body runs; and whether the step has run once. Everything of the user's is restored after it."""
    outside = Isolation(clones() if mode is None else fakes(mode))
    paths = contextlib.nullcontext if mode is None else same_paths
    with undisturbed(), loaders(lambda item: outside.visit(item, "batch")):
        try:
            target = outside.visit(target, name)
            with mode or contextlib.nullcontext():
                progress("building the workload")
                with paths(), followed():
                    step, called = (target, False) if is_step else _build(target, hyperparameters, name)
                if called and first_step:  # it was no workload but the step: as if it had not been called
                    outside.restore()
                    outside.visit(target, name)
                inside = Isolation((lambda tensor: tensor) if mode is None else fakes(mode))
                step = inside.visit(step, name)
                with paths(), contextlib.closing(inside):
                    yield target, step, called
        finally:
            outside.restore()


def _build(target: Callable[..., Any], hyperparameters: Mapping[str, Scalar], name: str) -> tuple[Step, bool]:
    """The step, and whether it has already been called once (``target`` was no workload but the step itself)."""
    try:
        inspect.signature(target).bind(**hyperparameters)
    except TypeError as error:
        raise WorkloadError(_signature_message(target, hyperparameters, name, error)) from None
    with explained("workload", name, real=False):
        result = target(**hyperparameters)
    if callable(result) and not isinstance(result, torch.nn.Module):
        return result, False
    if isinstance(result, torch.nn.Module):
        raise WorkloadError(
            f"{name} returned a module ({type(result).__name__}), not a step.\n"
            "Return a function of no arguments that runs one training step, or pass (model, inputs) to capture()."
        )
    if hyperparameters:
        raise WorkloadError(f"{name} returned {type(result).__name__}, not a step: a workload returns a function.")
    return target, True


def _signature_message(target: Any, given: Mapping[str, Scalar], name: str, error: TypeError) -> str:
    parameters = inspect.signature(target).parameters
    missing = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in (2, 4)]
    missing = [p for p in missing if p not in given]
    known = ", ".join(parameters) or "none"
    if missing:
        return f"{name} needs a value for: {', '.join(missing)}.\nGive it with --set {missing[0]}=VALUE."
    return f"{name}: {error}.\nIts hyperparameters are: {known}."


def _record(step: Step, name: str, real: bool, meta: Callable[[], Meta]) -> Graph:
    found = Isolation(lambda tensor: tensor)
    found.visit(step)
    tracker = Tracker(found.roots())
    recorder = Recorder(tracker.context, fixes={} if real else FIXES)
    state = State(recorder, found)
    state.register()
    state.watch_gradients()
    if real:
        gc.collect()
    try:
        with explained("step", name, real, tracker), tracker.watch(), followed(tracker, recorder), recorder:
            result = step()
        if not recorder.ops:
            raise CaptureError(f"the step of {name} ran no op{_idle(result)}")
        state.add_outputs(result)
        state.register()
        return build(recorder, tracker, state, meta())
    finally:
        state.close()


def _idle(result: Any) -> str:
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        return f": it returned a {type(result).__name__}, which has not run. Capture a function that runs it"
    return " in this thread: a workload returns a function that runs one step"


def _meta(name: str, target: Any, given: Mapping[str, Scalar], mode: StepFakeMode | None, first_step: bool) -> Meta:
    values: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        bound = inspect.signature(target).bind(**given)
        bound.apply_defaults()
        values = {k: v for k, v in bound.arguments.items() if isinstance(v, (str, int, float, bool, type(None)))}
    return Meta(
        workload=name,
        hyperparameters=values,
        framework=f"torch {torch.__version__}",
        captured_on="real" if mode is None else "fake",
        step="first" if first_step else "steady",
        python=platform.python_version(),
        assumptions=() if mode is None else tuple(sorted(mode.assumptions)),
    )
