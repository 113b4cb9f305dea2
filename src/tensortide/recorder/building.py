"""Building, isolating, warming up and recording the step of the user's target; captures and measurements share it.

A pair (model, inputs) becomes a step too: inference, or training with a loss and an optimizer by name.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from msgspec import UNSET
from msgspec.structs import replace

from tensortide.errors import CaptureError, WorkloadError
from tensortide.graph.model import Graph, Meta
from tensortide.graph.precision import DEFAULT_TF32
from tensortide.recorder.build_graph import State, build
from tensortide.recorder.composites import composites_recorded
from tensortide.recorder.context import Tracker
from tensortide.recorder.control_flow import followed
from tensortide.recorder.cuda_mode import CudaFakeMode, allocator_name
from tensortide.recorder.eager import EagerStep
from tensortide.recorder.failure import explained, fits
from tensortide.recorder.fake_mode import Converter, StepFakeMode, same_paths
from tensortide.recorder.isolate import Isolation
from tensortide.recorder.model_step import Loss, Optimizer, step_of_pair
from tensortide.recorder.periods import Periods
from tensortide.recorder.pretended import Gpu
from tensortide.recorder.ranks import process_groups
from tensortide.recorder.readings import Number, Sentences
from tensortide.recorder.remedies import Remedy
from tensortide.recorder.settings import in_tf32
from tensortide.recorder.standins import clones, fakes, loaders
from tensortide.recorder.steady import first_repeated
from tensortide.recorder.surroundings import undisturbed
from tensortide.recorder.target import Scalar, workload
from tensortide.recorder.torch_compat import disable_current_modes

if TYPE_CHECKING:
    from tensortide.recorder.changes import Change
    from tensortide.recorder.compiled import CompiledStep
from tensortide.recorder.tested_assumptions import with_findings

Step = Callable[[], Any]


class Named(NamedTuple):
    """A workload or a step, its name, and whether it is known to be a step."""

    target: Callable[..., Any]
    name: str
    is_step: bool


def named(target: Any, inputs: Any, loss: Loss, optimizer: Optimizer, name: str, *, verb: str) -> Named:
    """Resolve ``target``: a workload, a step, a model with ``inputs``, or the text that names a workload.

    ``verb`` is for messages. Raises WorkloadError if it cannot be found, CaptureError if it is none of these.
    """
    if isinstance(target, str):
        name = name or target
        target = workload(target).function
    is_step = isinstance(target, torch.nn.Module)
    if is_step:
        name = name or type(target).__name__
        target, is_step = step_of_pair(target, inputs, loss, optimizer), optimizer is None
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
    compiled: CompiledStep | None = None,
    first_step: bool = False,
    changes: Sequence[Change] = (),
    progress: Callable[[str], None],
) -> Iterator[Step]:
    """The step of ``workload``, isolated from the user's objects, for as long as the context lasts.

    It works on fake tensors of ``mode``, or else on clones of the user's tensors. It has run once already, unless
    ``first_step`` is true. It has ``changes``. Code that ``torch.compile`` has compiled runs as graphs of ``compiled``,
    whole models if there is none; without ``compiled`` all runs eagerly.
    """
    builder = _Builder(workload, hyperparameters, mode, first_step=first_step, progress=progress)
    with (
        undisturbed(None if compiled is None else compiled.active()),
        contextlib.nullcontext() if mode is None else mode.installed(),
        loaders(lambda item: builder.outside.visit(item, "batch")),
        contextlib.closing(builder),
        mode or contextlib.nullcontext(),
        contextlib.ExitStack() as placed,
    ):
        step, has_run = builder.build()
        if mode is not None and mode.lacks_gpu(builder.inside.stand_ins()):
            builder.inside.restore()
            builder.outside.restore()
            placed.enter_context(mode.all_on_gpu())
            step, has_run = builder.build()
        with builder.paths(), contextlib.closing(builder.inside):
            if changes:
                from tensortide.recorder.changes.apply import changed

                step, has_run = placed.enter_context(changed(step, builder.inside, changes)), False
            if not has_run and not first_step:
                progress("warming up")
                builder.warm_up(step)
            if compiled is not None and not compiled.called and not (first_step and builder.inside.is_compiled()):
                placed.enter_context(compiled.whole_models(builder.inside))
                if not first_step:
                    builder.warm_up(step)
            yield step


class _Builder:
    """Builds the step of a workload on fake tensors of ``mode``, or else on clones of the user's.

    ``outside`` isolates what the user has, ``inside`` what the workload has made.
    """

    def __init__(
        self,
        workload: Named,
        hyperparameters: Mapping[str, Scalar],
        mode: StepFakeMode | None,
        *,
        first_step: bool,
        progress: Callable[[str], None],
    ) -> None:
        self._workload, self._hyperparameters, self._mode = workload, hyperparameters, mode
        self._first_step, self._progress = first_step, progress
        self._remedy = None if mode is None else mode.remedy
        self._stand_in = clones() if mode is None else mode.stand_in(fakes(mode))
        self.outside = Isolation(self._stand_in)
        self.inside = Isolation(self._stand_in)

    def paths(self) -> contextlib.AbstractContextManager[None]:
        """Have libraries choose the kernels that they choose for real tensors."""
        return contextlib.nullcontext() if self._mode is None else same_paths()

    def build(self) -> tuple[Step, bool]:
        """Build the step. Returns it, and True if it has run once by that."""
        workload, name = self._workload, self._workload.name
        with disable_current_modes():  # the user's tensors are real
            target = self.outside.visit(workload.target, name)
        self._progress("building the workload")
        step, has_run = target, False
        with self.paths(), followed():
            if not workload.is_step:
                step, has_run = _build(target, self._hyperparameters, name, self._remedy)
        if has_run and self._first_step:  # the target was the step itself: undo that call
            self.outside.restore()
            with disable_current_modes():
                if self._mode is not None:
                    self._mode.fake_tensor_converter = Converter()  # stand-ins anew, without gradients
                self.outside.visit(target, name)
        self.inside = Isolation((lambda tensor: tensor) if self._mode is None else self._stand_in)
        return self.inside.visit(step, name), has_run

    def warm_up(self, step: Step) -> None:
        """Run the step once."""
        if self._mode is not None:
            self._mode.values.starts()
        with explained("step", self._workload.name, self._remedy), followed():
            step()

    def close(self) -> None:
        """Put the user's objects back as they were."""
        self.outside.restore()


def captured(
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    real: bool | None,
    assume: Mapping[str, Number] | None,
    *,
    gpu: Gpu | None = None,
    first_step: bool,
    compiled: bool = False,
    changes: Sequence[Change] = (),
    progress: Callable[[str], None],
) -> Graph:
    """The Graph of a step of ``workload``, captured on fake tensors, or on real ones if ``real``.

    If ``real`` is None, a failure on fake tensors leads to real ones, provided that the step fits on this machine. A
    pretended ``gpu`` has no real tensors. ``compiled`` captures the graphs that ``torch.compile`` makes. A step with
    ``changes`` is captured on fake tensors, and not run with other values.
    """

    def attempt(mode: StepFakeMode | None) -> Graph:
        graphs = compiled_step(compiled)
        how: dict[str, Any] = {"mode": mode, "compiled": graphs, "first_step": first_step, "changes": changes}
        with built(workload, hyperparameters, **how, progress=progress) as step:
            progress("recording")
            again = functools.partial(record, step, workload, hyperparameters, mode, graphs, first_step=first_step)
            another = functools.partial(again, counted=lambda ops: progress(f"recording: {ops:,} ops"))
            graph = another() if first_step else first_repeated(another)
            if mode is not None:
                mode.values.check()
            if mode is None or changes or not any(reading.in_step for reading in mode.values.readings.values()):
                return graph
            progress("trying other values")
            return with_findings(graph, again, mode, workload.name)

    if real:
        return attempt(None)
    try:
        return attempt(StepFakeMode(assume) if gpu is None else CudaFakeMode(gpu, assume))
    except CaptureError as error:
        if real is not None or gpu is not None or assume or changes or not fits(error.resident):
            raise
        reason = error.reason
    progress("running it for real: it fails on fake tensors")
    graph = attempt(None)
    return with_assumption(graph, f"captured on real tensors; fake ones failed: {reason}")


def compiled_step(wanted: bool) -> CompiledStep | None:
    """Make the runner of ``torch.compile``'s graphs if they are ``wanted``; its import takes a second."""
    if not wanted:
        return None
    from tensortide.recorder.compiled import CompiledStep

    return CompiledStep()


def with_assumption(graph: Graph, text: str) -> Graph:
    """``graph`` with ``text`` as its first assumption."""
    return replace(graph, meta=replace(graph.meta, assumptions=(text, *graph.meta.assumptions)))


def record(
    step: Step,
    workload: Named,
    hyperparameters: Mapping[str, Scalar],
    mode: StepFakeMode | None = None,
    compiled: CompiledStep | None = None,
    *,
    first_step: bool = False,
    most: int | None = None,
    counted: Callable[[int], None] | None = None,
) -> Graph:
    """Run ``step`` once and return its Graph; ``counted`` receives the number of ops now and then. Raises TooManyOps if
    it has over ``most`` ops."""
    name = workload.name
    found = _found(step)
    tracker = Tracker(found.roots(), compiled)
    how = compiled or EagerStep()
    recorder = how.recorder(tracker.context)
    recorder.most, recorder.counted = most, counted
    state = State(recorder, found)
    state.register()
    found.weaken()
    if mode is None:
        gc.collect()
    else:
        mode.values.starts()
    with state.gradients_watched():
        with (
            how.step(),
            explained("step", name, None if mode is None else mode.remedy, tracker),
            tracker.watch(),
            followed(tracker, recorder),
            recorder.resizes_followed(),
            composites_recorded(recorder, tracker, eager=compiled is None) as composites,
            recorder,
        ):
            result = step()
        if not recorder.ops:
            raise CaptureError(f"the step of {name} ran no op{_idle(result)}")
        state.add_outputs(result)
        left = _found(step)
        state.register_left(left)
        left.weaken()
        meta = how.told(_meta(workload, hyperparameters, mode, first_step, _loop(tracker.stepped, name)))
        return build(recorder, tracker, state, meta, composites)


def _found(step: Step) -> Isolation:
    """Everything that the step reaches now."""
    found = Isolation(lambda tensor: tensor)
    found.visit(step)
    return found


def _idle(result: Any) -> str:
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        return f": it returned a {type(result).__name__}, which has not run. Capture a function that runs it"
    return " in this thread: a workload returns a function that runs one step"


def _loop(stepped: Sequence[int], name: str) -> list[str]:
    """Advice about a call that trains in a loop; ``stepped`` are the optimizers of its steps."""
    periods = Periods()
    for optimizer in {*stepped}:
        periods.made(optimizer)
    for optimizer in stepped:
        periods.stepped(optimizer)
    if periods.count < 2:
        return []
    file, _, function = name.rpartition(":")
    script = file if file.endswith(".py") else "train.py"
    said = f"{len(stepped)} optimizer steps inside one call of {function or name}, all counted"
    return [f"{said}: tensortide report -- python {script} records one training step of a script"]


def _meta(
    workload: Named, given: Mapping[str, Scalar], mode: StepFakeMode | None, first_step: bool, notes: Iterable[str]
) -> Meta:
    values: dict[str, Any] = {}
    with contextlib.suppress(TypeError, ValueError):
        bound = inspect.signature(workload.target).bind(**given)
        bound.apply_defaults()
        values = {k: v for k, v in bound.arguments.items() if isinstance(v, (str, int, float, bool, type(None)))}
    return meta_of(workload.name, mode, first_step=first_step, hyperparameters=values, notes=notes)


def meta_of(
    name: str,
    mode: StepFakeMode | None,
    *,
    first_step: bool,
    hyperparameters: Mapping[str, Scalar] | None = None,
    notes: Iterable[str] = (),
) -> Meta:
    """Describe a capture here and now; ``notes`` are further assumptions."""
    allocator = allocator_name(mode)
    said = Sentences([], [], []) if mode is None else mode.assumptions()
    return Meta(
        workload=name,
        hyperparameters=dict(hyperparameters or {}),
        framework=f"torch {torch.__version__}",
        captured_on="real" if mode is None else "fake",
        step="first" if first_step else "steady",
        python=platform.python_version(),
        assumptions=(*notes, *said.every),
        machine="" if mode is None else mode.machine,
        decisive=tuple(said.decisive),
        untested=tuple(said.untested),
        groups=process_groups(),
        allocator=allocator,
        tf32=UNSET if (tf32 := in_tf32()) == DEFAULT_TF32 else tf32,
    )


def _build(
    target: Callable[..., Any], hyperparameters: Mapping[str, Scalar], name: str, remedy: Remedy | None
) -> tuple[Step, bool]:
    """The step, and True if ``target`` was the step itself rather than a workload, and has thus been called once."""
    try:
        inspect.signature(target).bind(**hyperparameters)
    except TypeError as error:
        raise WorkloadError(_signature_message(target, hyperparameters, name, error)) from None
    with explained("workload", name, remedy):
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
