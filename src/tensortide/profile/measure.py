"""Time the ops of one step where they run: on real tensors, each op alone on the clock, over several steps."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from tensortide.collector import frozen_heap
from tensortide.errors import CaptureError
from tensortide.graph.model import Graph
from tensortide.profile.host import accelerators, chosen_threads, device_context, machine_of, source_of
from tensortide.profile.stopwatch import Clocks, NullCalls, Pair, Run, Stopwatch, Turns, measurement_of, reading
from tensortide.recorder.building import Named, Step, built, named, record
from tensortide.recorder.control_flow import followed
from tensortide.recorder.failure import explained
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import Schema
from tensortide.recorder.target import Scalar
from tensortide.recorder.torch_compat import pytree
from tensortide.timing import Durations, identity
from tensortide.timing.durations import Platform

STEADY = 0.05
"""Warm-up ends when two successive steps differ by less than this part."""

LEAST, MOST = 2, 12
"""Steps of warm-up."""

RARELY = 3
"""One in so many turns has steps that measure the stopwatch's overhead."""


def measure(
    target: Any,
    inputs: Any = None,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    loss: str | Callable[..., Any] | None = None,
    optimizer: str | None = None,
    repeats: int = 9,
    clock: Literal["wall", "thread"] = "wall",
    threads: int | None = None,
    device: str = "cpu",
    name: str = "",
    progress: Callable[[str], None] | None = None,
    clocks: Clocks = Clocks(),  # noqa: B008
) -> tuple[Graph, Durations]:
    """The Graph of one training step and how long its ops take here: medians over ``repeats`` steps on real tensors.

    The step runs for real, on clones of the user's tensors, with the memory and the time that this takes. Each op is on
    the clock alone; the framework's work between ops is kept apart, by phase, and the overhead of measuring is measured
    too and subtracted. Ordinary steps alternate with those: ``Durations.measurement`` has both, and the share of the
    ordinary step that ops and the work between them explain.

    ``clock="thread"`` counts the time in which the thread has a core, for a machine that others use too; it sees
    neither other threads nor accelerators, so it asks for one thread (``threads=1``) and a CPU. Where the step uses an
    accelerator, its own record of its kernels says how long they take (``device="cuda"`` builds the workload there).

    The other arguments are those of ``tensortide.recorder.capture``; ``clocks`` are for tests.

    Raises:
        WorkloadError, CaptureError: as ``capture``; CaptureError too if the steps do not run the same ops, or for
            ``repeats`` below 1, a clock that cannot see the work, or a device that is not here.
    """
    if repeats < 1:
        raise CaptureError(f"cannot measure over {repeats} steps: repeats is at least 1")
    workload = named(target, inputs, loss, optimizer, name, verb="measure")
    with _prepared(workload, hyperparameters, repeats, clock, threads, device, progress, clocks) as run:
        return run.measure(dict(hyperparameters or {}))


class StepTimes(NamedTuple):
    """Times of ordinary steps in a row, ns, in order; the first is call number ``first`` of the step, from 0.

    ``warm_up`` steps before them were left out; ``steady``: the last two of those took the same time.
    """

    ns: tuple[float, ...]
    first: int
    warm_up: int
    steady: bool
    machine: Platform


def measure_steps(
    target: Any,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    repeats: int = 50,
    clock: Literal["wall", "thread"] = "wall",
    threads: int | None = None,
    device: str = "cpu",
    name: str = "",
    progress: Callable[[str], None] | None = None,
    clocks: Clocks = Clocks(),  # noqa: B008
) -> StepTimes:
    """The time of each of ``repeats`` ordinary steps, with no op on the clock. Arguments and errors are those of
    ``measure``; steps may differ."""
    workload = named(target, None, None, None, name, verb="measure")
    with _prepared(workload, hyperparameters, repeats, clock, threads, device, progress, clocks) as run:
        return run.repeat(dict(hyperparameters or {}))


@contextlib.contextmanager
def _prepared(
    workload: Named,
    hyperparameters: Mapping[str, Scalar] | None,
    repeats: int,
    clock: Literal["wall", "thread"],
    threads: int | None,
    device: str,
    progress: Callable[[str], None] | None,
    clocks: Clocks,
) -> Iterator[_Run]:
    """A measurement whose step is built, on so many threads."""
    say = progress or (lambda message: None)
    with chosen_threads(threads), device_context(device):
        if clock == "thread" and torch.get_num_threads() != 1:
            raise CaptureError(
                f"the clock of one thread does not see the work of {torch.get_num_threads()}: "
                "give one thread (threads=1), or take clock='wall'"
            )
        with built(workload, dict(hyperparameters or {}), progress=say) as step:
            gc.collect()  # no garbage is to stay in the frozen heap
            yield _Run(workload, step, repeats, clock, clocks, say)


@dataclass
class _Run:
    """One measurement of a step that is built."""

    workload: Named
    step: Step
    repeats: int
    clock: Literal["wall", "thread"]
    clocks: Clocks
    progress: Callable[[str], None]
    devices: Sequence[str] = ()
    """Accelerators that work asynchronously."""

    @frozen_heap()
    def measure(self, hyperparameters: Mapping[str, Scalar]) -> tuple[Graph, Durations]:
        """Record a step, check that it repeats, warm up, time it."""
        self.progress("recording")
        graph = record(self.step, self.workload, hyperparameters)
        self.devices = accelerators(graph)
        if self.devices:
            return graph, self._by_kernels(graph)
        machine = machine_of(())
        funcs = self._checked(graph)
        warm_up, steady = self._warm()
        found = measurement_of(graph, self._take_turns(funcs), reading(self.clocks), self.clock)
        machine = machine_of((), before=machine)
        found = msgspec.structs.replace(found, machine=machine, warm_up=warm_up, steady=steady)
        thread = self.clock == "thread"
        ns = found.thread_ns if thread else found.wall_ns
        source = source_of(found, ", its own time" if thread else "", self.repeats, ns)
        return graph, Durations(ns, source, "measured", graph=identity(graph), measurement=found)

    @frozen_heap()
    def repeat(self, hyperparameters: Mapping[str, Scalar]) -> StepTimes:
        """Record a step, for the devices that it uses; warm up, and time ordinary steps."""
        self.progress("recording")
        self.devices = accelerators(record(self.step, self.workload, hyperparameters))
        self._check_clock()
        machine = machine_of(self.devices)
        warm_up, steady = self._warm()
        ns = []
        for turn in range(self.repeats):
            self.progress(f"measuring {turn + 1} of {self.repeats}")
            ns.append(self._time()[self.clock == "thread"])
        calls = 2 + warm_up  # one built the state, one was recorded
        return StepTimes(tuple(ns), calls, warm_up, steady, machine_of(self.devices, before=machine))

    def _check_clock(self) -> None:
        if self.devices and self.clock == "thread":
            raise CaptureError(f"the clock of one thread does not see the accelerator that {self.workload.name} uses")

    def _by_kernels(self, graph: Graph) -> Durations:
        from tensortide.profile.kernels import measure_kernels

        self._check_clock()
        warm_up, steady = self._warm()
        return measure_kernels(
            graph, self._ordinary, self.repeats, warm_up=warm_up, steady=steady, progress=self.progress
        )

    def _checked(self, graph: Graph) -> list[Any]:
        """The ops of a step as functions, once it is sure that they are those of the graph."""
        witness = _Witness()
        with witness:
            self._ordinary()
        recorded = [(op.name, tuple([tuple(t.shape) for t in op.outputs])) for op in graph]
        _check_same(recorded, witness.seen, self.workload.name)
        return witness.funcs

    def _warm(self) -> tuple[int, bool]:
        """Steps until two in a row take the same time, but no more than ``MOST``; how many, and whether they do."""
        last = 0.0
        for turn in range(1, MOST + 1):
            self.progress(f"warming up {turn}")
            taken = self._time()[self.clock == "thread"]
            if turn >= LEAST and abs(taken - last) <= STEADY * max(taken, last):
                return turn, True
            last = taken
        return MOST, False

    def _take_turns(self, funcs: Sequence[Any]) -> Turns:
        """Steps under a stopwatch, ordinary ones, and ones that measure the stopwatch's overhead: by turns, so that all
        see the machine in the same states."""
        turns = Turns([], [self._time()], [], [])
        for turn in range(self.repeats):
            self.progress(f"measuring {turn + 1} of {self.repeats}")
            watch = Stopwatch(self.clocks)
            begin, end = self._under(watch)
            _check_same(funcs, watch.funcs, self.workload.name)
            turns.runs.append(Run(watch.times(), watch.gaps(begin, end)))
            turns.steps.append(self._time())
            if turn % RARELY == 0:
                turns.hooks.append(self._hook(funcs))
                nothing = NullCalls(self.clocks)
                self._under(nothing)
                turns.calls.extend(nothing.seen)
        return turns

    def _hook(self, funcs: Sequence[Any]) -> list[Pair]:
        """Cost of a stopwatch for each op: the difference that a second one around it sees."""
        inner, outer = Stopwatch(self.clocks), Stopwatch(self.clocks)
        with inner:
            self._under(outer)
        inside = _without_detaches(inner, funcs)
        for seen in ([func for func, _ in inside], outer.funcs):
            _check_same(funcs, seen, self.workload.name)
        return [around - op for around, (_, op) in zip(outer.times(), inside, strict=True)]

    def _time(self) -> Pair:
        """Duration of an ordinary step."""
        begin, end = self._under(contextlib.nullcontext())
        return end - begin

    def _under(self, watch: contextlib.AbstractContextManager[Any]) -> tuple[Pair, Pair]:
        """Both clocks as a step under ``watch`` begins and ends."""
        gc.collect()  # what steps leave behind: the collector is off while they run
        with explained("step", self.workload.name, None), followed(), watch:
            begin = Pair(self.clocks.wall(), self.clocks.thread())
            self._whole_step()
            return begin, Pair(self.clocks.wall(), self.clocks.thread())

    def _whole_step(self) -> None:
        """Run a step, and wait for what works asynchronously."""
        self.step()
        for device in self.devices:
            torch.accelerator.synchronize(device)

    def _ordinary(self) -> None:
        with explained("step", self.workload.name, None), followed():
            self._whole_step()


# -- whether a step repeats -------------------------------------------------------------------------

_ENGINE_SUM = ("aten.add_.Tensor", "aten.add.Tensor")


class _Witness(Recorder):
    """Takes the same calls for ops as a Recorder, and keeps their names and the shapes of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[tuple[int, ...], ...]]] = []
        self.funcs: list[Any] = []

    def record(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` and keep what it was. Returns its result."""
        result = func(*args, **kwargs)
        shapes = tuple([tuple(x.shape) for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)])
        self.seen.append((schema.name, shapes))
        self.funcs.append(func)
        return result


def _check_same(before: Sequence[Any], after: Sequence[Any], name: str) -> None:
    """Raise CaptureError unless two steps ran the same ops: functions, or names with the shapes of their results."""
    for index, (old, new) in enumerate(itertools.zip_longest(before, after)):
        if old != new and not _is_engine_sum(old, new):
            raise CaptureError(
                f"the steps of {name} do not run the same ops: op {index} is {_shown(old)} in one, {_shown(new)} in "
                "another.\nDurations are medians over steps that repeat: give every step the same batch, and take out "
                "of it what is done only now and then."
            )


def _without_detaches(watch: Stopwatch, funcs: Sequence[Any]) -> list[tuple[Any, Pair]]:
    """The ops that ``watch`` saw, with their times, without what ``funcs`` has not: before PyTorch 2.8 the lower one of
    two modes sees a ``detach`` for each result that autograd keeps."""
    expected = iter([*funcs, None])
    wanted, found = next(expected), []
    for func, time in zip(watch.funcs, watch.times(), strict=True):
        if func is wanted or func is not torch.ops.aten.detach.default:
            found.append((func, time))
            wanted = next(expected, None)
    return found


def _is_engine_sum(old: Any, new: Any) -> bool:
    """True for a sum of gradients: it is in place in an ordinary step, and out of place while a mode watches."""
    return isinstance(old, tuple) and isinstance(new, tuple) and (old[0], new[0], old[1]) == (*_ENGINE_SUM, new[1])


def _shown(op: Any) -> str:
    if isinstance(op, tuple):
        return f"{op[0]} -> {', '.join(str(list(shape)) for shape in op[1])}"
    return "absent" if op is None else str(op)
