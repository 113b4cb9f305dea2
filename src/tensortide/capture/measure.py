"""Time the ops of one step where they run: on real tensors, each op alone on the clock, over several steps."""

from __future__ import annotations

import contextlib
import gc
import itertools
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
import torch.utils._pytree as pytree

from tensortide.capture.batches import loaders
from tensortide.capture.control_flow import followed
from tensortide.capture.failure import explained
from tensortide.capture.isolate import Isolation
from tensortide.capture.pair import step_of_pair
from tensortide.capture.recorder import Recorder
from tensortide.capture.schema import OpaqueSchema, Schema
from tensortide.capture.standins import clones
from tensortide.capture.step import Scalar, Step, _build, _meta, _record
from tensortide.capture.surroundings import undisturbed
from tensortide.capture.target import find
from tensortide.errors import CaptureError
from tensortide.graph.model import Graph
from tensortide.timing import Durations, identity
from tensortide.units import format_percent, format_seconds

__all__ = ["measure"]

Clock: TypeAlias = Callable[[], int]
Seen: TypeAlias = tuple[str, tuple[tuple[int, ...], ...]]

_CLOCKS: dict[str, Clock] = {"wall": time.perf_counter_ns, "thread": time.thread_time_ns}


def _no_wait() -> None:
    """A CPU has done an op when it returns."""


def measure(
    target: Any,
    inputs: Any = None,
    *,
    hyperparameters: Mapping[str, Scalar] | None = None,
    loss: str | Callable[..., Any] | None = None,
    optimizer: str | None = None,
    repeats: int = 5,
    clock: Literal["wall", "thread"] = "wall",
    name: str = "",
    progress: Callable[[str], None] | None = None,
) -> tuple[Graph, Durations]:
    """The Graph of one training step and how long its ops take here: medians over ``repeats`` steps on real tensors.

    The step runs for real, on clones of the user's tensors, so it needs the memory and the time that it needs. Each op
    is on the clock alone: neither the framework's work between ops nor ours counts. Where the step uses an
    accelerator, every op is waited for; an op that is shorter than its launch then takes as long as the launch.
    ``clock="thread"`` counts the time in which the thread has a core, for a machine that others use too; it sees
    neither other threads nor accelerators, so it asks for one thread (``torch.set_num_threads(1)``) and a CPU.

    The other arguments are those of ``tensortide.capture.capture``. ``Durations.source`` names the machine and says
    how much of an ordinary step the ops make up.

    Raises:
        WorkloadError, CaptureError: as ``capture``; CaptureError too if the steps do not run the same ops, or for
            ``repeats`` below 1 or a clock that cannot see the work.
    """
    if repeats < 1:
        raise CaptureError(f"cannot measure over {repeats} steps: repeats is at least 1")
    if clock == "thread" and torch.get_num_threads() != 1:
        raise CaptureError(
            f"the clock of one thread does not see the work of {torch.get_num_threads()}: "
            "call torch.set_num_threads(1) first, or take clock='wall'"
        )
    if isinstance(target, str):
        name = name or target
        target = find(target)
    is_step = isinstance(target, torch.nn.Module)
    if is_step:
        name = name or type(target).__name__
        target = step_of_pair(target, inputs, loss, optimizer)
    elif inputs is not None or loss is not None or optimizer is not None:
        raise CaptureError("inputs, loss and optimizer go with a model; a workload or step brings its own")
    if not callable(target):
        raise CaptureError(f"cannot measure a {type(target).__name__}: give a workload, a step or a model")
    name = name or getattr(target, "__qualname__", type(target).__name__)
    run = _Run(name, repeats, _CLOCKS[clock], progress or (lambda message: None))
    return run.measure(target, dict(hyperparameters or {}), is_step)


class _Run:
    """One measurement. The step is isolated from the user's objects as in a capture on real tensors."""

    def __init__(self, name: str, repeats: int, clock: Clock, progress: Callable[[str], None]) -> None:
        self.name = name
        self.repeats = repeats
        self.clock = clock
        self.progress = progress

    def measure(
        self, target: Callable[..., Any], hyperparameters: Mapping[str, Scalar], is_step: bool
    ) -> tuple[Graph, Durations]:
        """Build the workload, warm it up, record one step, time the next."""
        outside = Isolation(clones())
        with undisturbed(), loaders(lambda item: outside.visit(item, "batch")):
            try:
                target = outside.visit(target, self.name)
                self.progress("building the workload")
                with followed():
                    step, called = (target, False) if is_step else _build(target, hyperparameters, self.name)
                inside = Isolation(lambda tensor: tensor)
                step = inside.visit(step, self.name)
                with contextlib.closing(inside):
                    if not called:
                        self.progress("warming up")
                        self._once(step)
                    self.progress("recording")
                    graph = _record(
                        step, self.name, True, lambda: _meta(self.name, target, hyperparameters, None, False)
                    )
                    return graph, self._time(step, graph)
            finally:
                outside.restore()

    def _time(self, step: Step, graph: Graph) -> Durations:
        """Steps under the stopwatch and ordinary ones by turns, so that both see the machine in the same states."""
        wait = _waiter(graph)
        if wait is not _no_wait and self.clock is not time.perf_counter_ns:
            raise CaptureError(f"the clock of one thread does not see the accelerator that {self.name} uses")
        runs: list[list[int]] = []
        steps: list[int] = []
        for turn in range(self.repeats):
            self.progress(f"measuring {turn + 1} of {self.repeats}")
            gc.collect()  # what steps leave behind: the collector is off while they run
            steps.append(self._once(step, wait))
            watch = Stopwatch(self.clock, wait)
            self._once(step, wait, watch)
            _check_repeated(watch.seen, graph, self.name)
            runs.append(watch.ns)
        reading = _reading_ns(self.clock)
        ns = tuple(max(1, round(statistics.median(times)) - reading) for times in zip(*runs, strict=True))
        whole = statistics.median(steps)
        share = f"its ops are {format_percent(sum(ns), whole)} of a step of {format_seconds(whole / 1e9)}"
        how = "" if self.clock is time.perf_counter_ns else ", its own time"
        source = f"measured on {_machine(graph)}{how}, median of {self.repeats} steps; {share}"
        return Durations(ns, source, "measured", graph=identity(graph))

    def _once(self, step: Step, wait: Callable[[], None] = _no_wait, watch: Stopwatch | None = None) -> int:
        """Nanoseconds of one step, ordinary or under ``watch``."""
        wait()
        with explained("step", self.name, True), followed(), watch or contextlib.nullcontext():
            start = self.clock()
            step()
            wait()
            return self.clock() - start


class Stopwatch(Recorder):
    """Takes the same calls for ops as a Recorder, and times them instead of recording them.

    ``ns`` are the times of the ops in order, ``seen`` their names and the shapes of their results.
    """

    def __init__(self, clock: Clock = time.perf_counter_ns, wait: Callable[[], None] = _no_wait) -> None:
        super().__init__(lambda index: None)
        self.ns: list[int] = []
        self.seen: list[Seen] = []
        self._clock = clock
        self._wait = wait

    def record(self, func: Any, schema: Schema | OpaqueSchema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` on the clock. Returns its result."""
        wait, clock = self._wait, self._clock
        wait()
        start = clock()
        result = func(*args, **kwargs)
        wait()
        self.ns.append(clock() - start)
        leaves = pytree.tree_leaves(result)
        self.seen.append((schema.name, tuple([tuple(x.shape) for x in leaves if isinstance(x, torch.Tensor)])))
        return result


# -- what was measured ------------------------------------------------------------------------------

_ENGINE_SUM = ("aten.add_.Tensor", "aten.add.Tensor")
"""What the engine does in place, and what it does while anybody watches."""


def _check_repeated(seen: Sequence[Seen], graph: Graph, name: str) -> None:
    """Raise CaptureError unless a step ran the ops of the recorded one."""
    recorded: list[Seen] = [(op.name, tuple([tuple(t.shape) for t in op.outputs])) for op in graph]
    for index, (old, new) in enumerate(itertools.zip_longest(recorded, seen)):
        if old != new and not (old and new and old[1] == new[1] and (old[0], new[0]) == _ENGINE_SUM):
            raise CaptureError(
                f"the steps of {name} do not run the same ops: op {index} is {_shown(old)} in one, {_shown(new)} in "
                "another.\nDurations are medians over steps that repeat: give every step the same batch, and take out "
                "of it what is done only now and then."
            )


def _shown(op: Seen | None) -> str:
    return "absent" if op is None else f"{op[0]} -> {', '.join(str(list(shape)) for shape in op[1])}"


def _waiter(graph: Graph) -> Callable[[], None]:
    """What waits for all devices of ``graph`` that work on their own."""
    devices = sorted({s.device for s in graph.storages if s.device.partition(":")[0] not in ("cpu", "meta")})
    if not devices:
        return _no_wait

    def wait() -> None:
        for device in devices:
            torch.accelerator.synchronize(device)

    return wait


def _reading_ns(clock: Clock, pairs: int = 2001) -> int:
    """What reading ``clock`` takes."""
    return round(statistics.median([-clock() + clock() for _ in range(pairs)]))


def _machine(graph: Graph) -> str:
    """The device and what runs on it."""
    threads = torch.get_num_threads()
    kinds = {s.device.partition(":")[0] for s in graph.storages} - {"cpu", "meta"}
    names = [torch.get_device_module(kind).get_device_name() for kind in sorted(kinds)]
    return f"{' and '.join(names) or _cpu()}, torch {torch.__version__}, {threads} thread{'s' * (threads > 1)}"


def _cpu() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
