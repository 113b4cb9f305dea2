"""Time each distinct op of a Graph by itself, on random tensors: for steps that are too large to run here."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import torch

from tensortide.errors import CaptureError, GraphError
from tensortide.graph.model import Graph, Op, OpView
from tensortide.profile.host import chosen_threads, describe, device_context, machine_of
from tensortide.profile.stopwatch import Clocks, Pair, columns, median, reading, samples
from tensortide.recorder.execute import Operands, arguments, function
from tensortide.recorder.fallback import fallback
from tensortide.recorder.surroundings import undisturbed
from tensortide.recorder.torch_compat import pytree
from tensortide.timing import Durations, identity
from tensortide.timing.durations import Ceilings, Measurement, Sample
from tensortide.timing.host import available_bytes
from tensortide.timing.standins import stand_in
from tensortide.units import format_bytes

BIAS = (
    "Ops timed alone, with warm caches and the same operands again and again, add up to less than the step: of eight "
    "training steps on a CPU the sums were 6 to 17 % short, 10 % on average."
)
"""Caveats of isolated durations, reported with them."""

AHEAD_BYTES = 1 << 28
"""Bytes that an accelerator clears before each op, for about 0.1 ms: meanwhile the host queues the op, so that its
launch is no part of its time, and the caches are cold."""

LEAST, MOST = 3, 30
ENOUGH_NS = 200_000_000
"""Samples of an op: at least and at most so many, no more once they have taken so long."""

_FAILURES = (RuntimeError, LookupError, AttributeError, TypeError, ValueError, ArithmeticError, GraphError)


_NONE = Sample(0, 0, 0, 0)


class _Timed(NamedTuple):
    """One distinct op by both clocks; or why it could not be executed."""

    samples: tuple[Sample, Sample] = (_NONE, _NONE)
    reason: str = ""


def measure_isolated(
    graph: Graph,
    *,
    clock: Literal["wall", "thread"] = "wall",
    threads: int | None = None,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
    clocks: Clocks = Clocks(),  # noqa: B008
) -> Durations:
    """Durations of ``graph``'s ops, each distinct one executed alone on random tensors of the recorded shapes.

    Ops are distinct by name, attributes, and dtypes, shapes, strides and sharing of their operands. Integers are legal
    values where an op takes indices; what an op writes in place is fresh each time. On an accelerator its own events
    time an op, on a CPU the ``clocks``. An op that cannot be executed so, or that does not fit into memory, is unknown:
    ``measurement.stand_ins`` names it with the reason, and its time is a roofline under the best rates of the other
    ops. The durations are known to be low (``BIAS``).

    Raises:
        CaptureError: no op could be executed, the device is not here, or the clock cannot see the work.
    """
    say = progress or (lambda message: None)
    with chosen_threads(threads), device_context(device), undisturbed(), torch.no_grad():
        if clock == "thread" and (torch.get_num_threads() != 1 or device != "cpu"):
            raise CaptureError("the clock of one thread sees one thread of a CPU: give threads=1, or take clock='wall'")
        devices = () if device == "cpu" else (device,)
        machine = machine_of(devices)
        bench = _Bench(graph, device, clocks)
        timed: dict[Hashable, _Timed] = {}
        keys = [_key(graph, op) for op in graph.ops]
        first = {key: index for index, key in reversed(list(enumerate(keys)))}
        for number, (key, index) in enumerate(sorted(first.items(), key=lambda item: item[1]), 1):
            say(f"op {number} of {len(first)}: {graph[index].name}")
            timed[key] = bench.time(graph[index])
        found = _measurement([timed[key] for key in keys], clock)
    ns, ceilings = _filled(graph, found)
    machine = machine_of(devices, before=machine)
    unknown = len(found.stand_ins)
    source = f"measured op by op, in isolation, on {describe(machine)}: {len(first):,} distinct of {len(graph):,} ops"
    source += f", {unknown:,} of them inferred" if unknown else ""
    measurement = msgspec.structs.replace(found, machine=machine, ceilings=ceilings if unknown else None)
    return Durations(ns, source, "measured", unknown, identity(graph), measurement)


def _measurement(timed: Sequence[_Timed], clock: Literal["wall", "thread"]) -> Measurement:
    return Measurement(
        how="isolated",
        **columns([one.samples for one in timed], clock),
        stand_ins={index: one.reason for index, one in enumerate(timed) if one.reason},
        notes=(BIAS,),
    )


def _filled(graph: Graph, found: Measurement) -> tuple[tuple[int, ...], Ceilings]:
    if len(found.stand_ins) == len(graph):
        reason = next(iter(found.stand_ins.values()), "the graph has none")
        raise CaptureError(f"no op of the graph could be executed in isolation: {reason}")
    ns = found.wall_ns if found.clock == "wall" else found.thread_ns
    return stand_in(graph, [None if i in found.stand_ins else t for i, t in enumerate(ns)], resolver=fallback)


def _key(graph: Graph, op: Op) -> Hashable:
    """Key of an op for its duration: two ops of one key take the same time."""
    order = {t: i for i, t in enumerate(dict.fromkeys(op.inputs))}
    tensors = [graph.tensors[t] for t in op.inputs]
    storages = {s: i for i, s in enumerate(dict.fromkeys(t.storage for t in tensors))}
    kinds = tuple((t.dtype, tuple(map(int, t.shape)), tuple(map(int, t.strides))) for t in tensors)
    shared = tuple((order[t], storages[graph.tensors[t].storage]) for t in op.inputs)
    return op.call, kinds, shared, tuple(tuple(map(int, graph.tensors[t].shape)) for t in op.outputs)


class _Bench:
    """Executes ops one at a time; nothing of one is left when the next comes."""

    def __init__(self, graph: Graph, device: str, clocks: Clocks) -> None:
        self._graph = graph
        self._device = device
        self._call = _Clocked(clocks) if device == "cpu" else _Queued(device)
        nothing, operand = torch.ops.aten.alias.default, torch.ones(4)
        self._calling = median([self._call(nothing, [operand], {}) for _ in range(501)])

    def time(self, op: OpView) -> _Timed:
        """One op: warmed up once, then repeated."""
        needed, available = _needed_bytes(op), available_bytes() if self._device == "cpu" else None
        if available is not None and needed > 0.9 * available:
            reason = f"it does not fit into memory: {format_bytes(needed)} of {format_bytes(available)}"
            return _Timed(reason=reason)
        try:
            return self._repeat(op)
        except _FAILURES as error:
            text = str(error).strip().split("\n")[0][:160]
            return _Timed(reason=f"it cannot be executed in isolation: {type(error).__name__}: {text}")

    def _repeat(self, op: OpView) -> _Timed:
        operands = Operands(op, self._device)
        func = function(op.call)
        args, kwargs = arguments(op, operands.make)
        if self._device != "cpu":
            moved = torch.device(self._device)
            args, kwargs = pytree.tree_map_only(torch.device, lambda _: moved, (args, kwargs))
        self._call(func, args, kwargs)
        taken: list[Pair] = []
        began = time.perf_counter_ns()
        while len(taken) < LEAST or (len(taken) < MOST and time.perf_counter_ns() - began < ENOUGH_NS):
            operands.refresh()
            taken.append(self._call(func, args, kwargs))
        ours = Pair(*(max(a, b) for a, b in zip(self._call.reading, self._calling, strict=True)))
        return _Timed(samples(taken, ours))


class _Clocked:
    """Times calls of an op on a CPU. ``reading``: the cost of the clocks."""

    def __init__(self, clocks: Clocks) -> None:
        self._clocks, self.reading = clocks, reading(clocks)

    def __call__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Pair:
        wall, thread = self._clocks
        wall_start = wall()
        thread_start = thread()
        result = func(*args, **kwargs)
        thread_end = thread()
        wall_end = wall()
        del result
        return Pair(wall_end - wall_start, thread_end - thread_start)


class _Queued:
    """Times calls of an op on an accelerator, between two events of its queue."""

    reading = Pair(0, 0)

    def __init__(self, device: str) -> None:
        self._module: Any = torch.get_device_module(device.partition(":")[0])
        self._begin, self._end = (self._module.Event(enable_timing=True) for _ in range(2))
        self._ahead = torch.empty(AHEAD_BYTES, dtype=torch.uint8)

    def __call__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Pair:
        self._module.synchronize()
        self._ahead.zero_()
        self._begin.record()
        result = func(*args, **kwargs)
        self._end.record()
        self._module.synchronize()
        del result
        ns = round(self._begin.elapsed_time(self._end) * 10**6)
        return Pair(ns, ns)


def _needed_bytes(op: OpView) -> int:
    """Bytes that an op needs at least: its operands, those it writes twice, its results."""
    mutated = set(op.call.mutated)
    inputs = sum(int(t.region_bytes) * (2 if slot in mutated else 1) for slot, t in enumerate(op.inputs))
    return inputs + sum(int(t.region_bytes) for t in op.outputs)
