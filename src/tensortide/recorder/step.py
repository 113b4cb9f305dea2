"""Capture one step of a PyTorch workload: build it, warm it up, record it, leave no trace."""

from __future__ import annotations

import contextlib
import gc
import inspect
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch

from tensortide.errors import CaptureError
from tensortide.graph.model import Graph, Meta
from tensortide.recorder.build_graph import State, build
from tensortide.recorder.building import Named, Step, built
from tensortide.recorder.context import Tracker
from tensortide.recorder.control_flow import followed
from tensortide.recorder.failure import explained
from tensortide.recorder.fake_mode import StepFakeMode
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.parity import FIXES
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.target import Scalar


def capture_step(
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    *,
    real: bool,
    first_step: bool,
    progress: Callable[[str], None],
) -> Graph:
    """Graph of one step of ``workload``. See ``tensortide.capture``.

    Whether it is a workload function or a step shows when it is called, unless it is known.
    """
    mode = None if real else StepFakeMode()
    with built(workload, hyperparameters, mode=mode, first_step=first_step, progress=progress) as step:
        progress("recording")
        return record(step, workload, hyperparameters, mode, first_step=first_step)


def record(
    step: Step,
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    mode: StepFakeMode | None = None,
    *,
    first_step: bool = False,
) -> Graph:
    """Run ``step`` once and return its Graph."""
    name, real = workload.name, mode is None
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
        return build(recorder, tracker, state, _meta(workload, hyperparameters, mode, first_step))
    finally:
        state.close()


def _idle(result: Any) -> str:
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        return f": it returned a {type(result).__name__}, which has not run. Capture a function that runs it"
    return " in this thread: a workload returns a function that runs one step"


def _meta(workload: Named, given: Mapping[str, Scalar], mode: StepFakeMode | None, first_step: bool) -> Meta:
    values: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        bound = inspect.signature(workload.target).bind(**given)
        bound.apply_defaults()
        values = {k: v for k, v in bound.arguments.items() if isinstance(v, (str, int, float, bool, type(None)))}
    return Meta(
        workload=workload.name,
        hyperparameters=values,
        framework=f"torch {torch.__version__}",
        captured_on="real" if mode is None else "fake",
        step="first" if first_step else "steady",
        python=platform.python_version(),
        assumptions=() if mode is None else tuple(sorted(mode.assumptions)),
    )
