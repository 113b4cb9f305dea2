"""Construction of a step from the user's target: built, isolated and warmed up, alike for every run of a workload."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from tensortide.errors import CaptureError, WorkloadError
from tensortide.recorder.batches import loaders
from tensortide.recorder.control_flow import followed
from tensortide.recorder.failure import explained
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.pair import Loss, step_of_pair
from tensortide.recorder.parity import same_paths
from tensortide.recorder.standins import clones, fakes
from tensortide.recorder.surroundings import undisturbed
from tensortide.recorder.target import Scalar, workload

__all__ = ["Named", "Step", "built", "named"]

Step = Callable[[], Any]


class Named(NamedTuple):
    """A workload or step, what it is called, and whether it is known to be a step."""

    target: Callable[..., Any]
    name: str
    is_step: bool


def named(target: Any, inputs: Any, loss: Loss, optimizer: str | None, name: str, *, verb: str) -> Named:
    """Resolve ``target``: a workload, a step, a model with ``inputs``, or the text that names a workload.

    ``verb`` is for messages. Raises WorkloadError if it cannot be found, CaptureError if it is none of these.
    """
    if isinstance(target, str):
        name = name or target
        target = workload(target).function
    is_step = isinstance(target, torch.nn.Module)
    if is_step:
        name = name or type(target).__name__
        target = step_of_pair(target, inputs, loss, optimizer)
    elif inputs is not None or loss is not None or optimizer is not None:
        raise CaptureError("inputs, loss and optimizer go with a model; a workload or step brings its own")
    if not callable(target):
        raise CaptureError(f"cannot {verb} a {type(target).__name__}: give a workload, a step or a model")
    return Named(target, name or getattr(target, "__qualname__", type(target).__name__), is_step)


@contextlib.contextmanager
def built(
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    *,
    mode: StepFakeMode | None = None,
    first_step: bool = False,
    progress: Callable[[str], None],
) -> Iterator[Step]:
    """The step of ``workload``, isolated from the user's objects, for as long as the context lasts.

    It is on fake tensors under ``mode``, else on real ones: clones of the user's. It has run once, unless it is its
    ``first_step`` that is wanted.
    """
    name, real = workload.name, mode is None
    outside = Isolation(clones() if mode is None else fakes(mode))
    paths = contextlib.nullcontext if real else same_paths
    with undisturbed(), loaders(lambda item: outside.visit(item, "batch")):
        try:
            target = outside.visit(workload.target, name)
            with mode or contextlib.nullcontext():
                progress("building the workload")
                with paths(), followed():
                    step, called = (target, False) if workload.is_step else _build(target, hyperparameters, name)
                if called and first_step:  # it was no workload but the step: as if it had not been called
                    outside.restore()
                    outside.visit(target, name)
                inside = Isolation((lambda tensor: tensor) if mode is None else fakes(mode))
                step = inside.visit(step, name)
                with paths(), contextlib.closing(inside):
                    if not called and not first_step:
                        progress("warming up")
                        with explained("step", name, real), followed():
                            step()
                    yield step
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
