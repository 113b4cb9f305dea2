"""Durations of a Graph's ops from a profiler's trace of the same step."""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from tensortide.cost import Resolver
from tensortide.errors import TimesError
from tensortide.graph.model import Graph, Phase
from tensortide.timing.durations import Durations, Platform, sample
from tensortide.timing.kineto import HostOp, Kernel, Shapes, Trace
from tensortide.timing.nesting import callers, in_backward, self_ns
from tensortide.timing.standins import from_samples
from tensortide.units import format_seconds

_SLACK = 64


def align(wanted: Sequence[Hashable], found: Sequence[Hashable]) -> list[int | None]:
    """For each item of ``wanted`` the index of its equal in ``found``, ascending; None for those left out.

    As many as can be are matched, the earliest where there is a choice. An item that occurs very often is looked for
    near its own rank only: within ``_SLACK`` occurrences and the difference of both counts.

    References:
        J. W. Hunt, T. G. Szymanski: A fast algorithm for computing longest common subsequences. CACM 20(5), 1977.
    """
    places: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(found):
        places[key].append(index)
    counts, ranks = Counter(wanted), Counter[Hashable]()
    tails: list[int] = []  # the smallest end of a matching of each length, and the pair that is there
    ends: list[int] = []
    pairs: list[tuple[int, int, int]] = []  # item, place, the pair before
    for item, key in enumerate(wanted):
        candidates, rank = places[key], ranks[key]
        ranks[key] += 1
        slack = _SLACK + abs(len(candidates) - counts[key])
        for place in reversed(candidates[max(0, rank - slack) : rank + slack]):
            length = bisect_left(tails, place)
            pairs.append((item, place, ends[length - 1] if length else -1))
            tails[length : length + 1] = [place]
            ends[length : length + 1] = [len(pairs) - 1]
    result: list[int | None] = [None] * len(wanted)
    pair = ends[-1] if ends else -1
    while pair >= 0:
        item, place, pair = pairs[pair]
        result[item] = place
    return result


SAME = 0.9
"""Least share of the matched calls that have the graph's shapes in a trace of the same step."""


class _Match(NamedTuple):
    """Per op the call in the trace (its position there, None where there is none), and how many agree in shapes, where
    those are known."""

    ops: list[int | None]
    by_shape: int


class Coverage(NamedTuple):
    """Coverage of a graph by a trace: its ops found in the fullest step, and those found by shapes too.

    ``sized``: the trace has shapes.
    """

    ops: int
    found: int
    by_shape: int
    steps: int
    sized: bool

    def __str__(self) -> str:
        shapes = f", {self.by_shape:,} of them by shapes too" if self.by_shape else ", by name and order only"
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return f"{self.found:,} of {self.ops:,} ops found in {steps} of the trace{shapes if self.found else ''}"


def from_trace(graph: Graph, trace: Trace, *, resolver: Resolver | None = None) -> Durations:
    """Durations of ``graph``'s ops: medians over the steps of ``trace``.

    Calls of ops are joined in order, by name and, where the trace has them, by shapes. What runs on a device takes the
    time from the start of its first kernel to the end of its last; what launches none takes none there. In a trace
    without kernels an op takes as long as its call. An op that is not in the trace is unknown; its time is a stand-in.

    Raises:
        TimesError: the trace has none of the ops, or has them at other sizes.
    """
    matches = list(_matches(graph, trace))
    found = Coverage(
        ops=len(graph),
        found=sum(any(match.ops[i] is not None for match in matches) for i in range(len(graph))),
        by_shape=max((match.by_shape for match in matches), default=0),
        steps=len(matches),
        sized=any(op.shapes for op in trace.ops),
    )
    if not found.found:
        names = ", ".join(name for name, _ in Counter(op.name for op in trace.ops).most_common(3))
        raise TimesError(f"{trace.path} has no op of this graph: its ops are {names}, ...\nIs it a trace of this step?")
    if found.sized and found.by_shape < SAME * found.found:
        raise TimesError(
            f"{trace.path} is a trace of other sizes: of {found.found:,} ops found by name {found.by_shape:,} have the "
            "shapes of the graph.\nGive the graph the settings of the step that was traced."
        )
    time = timer(graph, trace)
    samples = [
        [time(index, trace.ops[call]) for match in matches if (call := match.ops[index]) is not None]
        for index in range(len(graph))
    ]
    return from_samples(
        graph,
        samples,
        missing=_reasons(graph, trace),
        source=f"{trace.path}; {found}",
        resolver=resolver,
        how="trace",
        clock="kernel" if trace.kernels else "wall",
        machine=_machine(trace),
        step=sample(end - start for start, end in trace.steps) if trace.steps else None,
        notes=(str(found), *_notes(trace, matches)),
    )


def _machine(trace: Trace) -> Platform | None:
    return Platform(device="cuda", name=" and ".join(trace.devices)) if trace.devices and trace.kernels else None


# -- which call is which op -------------------------------------------------------------------------


def _matches(graph: Graph, trace: Trace) -> Iterator[_Match]:
    """The graph in each step of the trace; where steps are not marked, one after the other as long as it is there."""
    names = [profiler_name(call.op) for call in graph.calls]
    calls = _outermost(trace.ops, frozenset(names))
    backward = in_backward(trace.ops, callers(trace.ops))
    phased = any(backward)  # else the trace does not say
    wanted = [(names[op.call], phased and op.phase is Phase.BACKWARD, _dims(graph, op.inputs)) for op in graph.ops]
    if trace.steps:
        starts = [trace.ops[call].start_ns for call in calls]
        parts = [calls[bisect_left(starts, start) : bisect_left(starts, end)] for start, end in trace.steps]
    else:
        parts = _repeats(trace.ops, calls, len(wanted))
    for part in parts:
        match = _matched(wanted, part, [(op.name, backward[i], op.shapes) for i in part for op in [trace.ops[i]]])
        if any(call is not None for call in match.ops):
            yield match


def _repeats(ops: Sequence[HostOp], calls: list[int], length: int) -> list[list[int]]:
    """``calls`` in equal parts of about ``length``, if they are the same ops over and over; else as one part."""
    for count in range(round(len(calls) / length) + 1, 1, -1):
        size, rest = divmod(len(calls), count)
        if not rest and all(ops[calls[i]].name == ops[calls[i - size]].name for i in range(size, len(calls))):
            return [calls[i : i + size] for i in range(0, len(calls), size)]
    return [calls]


@functools.cache
def profiler_name(op: str) -> str:
    """``aten::mm`` of ``aten.mm.default``: as the profiler writes it."""
    namespace, _, rest = op.partition(".")
    return f"{namespace}::{rest.rpartition('.')[0] or rest}"


def _dims(graph: Graph, tensors: Sequence[int]) -> Shapes:
    return tuple(tuple(map(int, graph.tensors[t].shape)) for t in tensors if graph.tensors[t].shape)


def _outermost(ops: Sequence[HostOp], names: frozenset[str]) -> list[int]:
    """The calls of the named ops that are not within another of them on the same thread."""
    ends: dict[object, int] = {}
    found: list[int] = []
    for index, op in enumerate(ops):
        if op.name in names and op.start_ns >= ends.get(op.thread, op.start_ns):
            ends[op.thread] = op.end_ns
            found.append(index)
    return found


_Key: TypeAlias = tuple[str, bool, Shapes | None]
"""Name, whether it runs in the backward pass, and shapes."""


def _matched(wanted: Sequence[_Key], calls: Sequence[int], keys: Sequence[_Key]) -> _Match:
    """Match by name, phase and shapes first, then by name between those matches. ``keys`` are those of ``calls``."""
    exact = align(wanted, keys)
    found = list(exact)
    first, after = 0, 0
    for item, place in enumerate([*exact, len(calls)]):
        if place is None:
            continue
        if first < item and after < place:
            names = [key[0] for key in wanted[first:item]]
            for i, other in enumerate(align(names, [key[0] for key in keys[after:place]])):
                found[first + i] = None if other is None else after + other
        first, after = item + 1, place + 1
    by_shape = sum(place is not None and keys[place][2] == wanted[i][2] for i, place in enumerate(found))
    return _Match([None if place is None else calls[place] for place in found], by_shape)


# -- what did not join ------------------------------------------------------------------------------


def _reasons(graph: Graph, trace: Trace) -> Callable[[int], str]:
    """Return why an op has no call in the trace."""
    inside = Counter(op.name for op in trace.ops)
    shapes: defaultdict[str, set[Shapes | None]] = defaultdict(set)
    for op in trace.ops:
        shapes[op.name].add(op.shapes)

    def reason(index: int) -> str:
        op = graph.ops[index]
        name = profiler_name(graph.calls[op.call].op)
        if not inside[name]:
            return "not in the trace"
        if None not in shapes[name] and _dims(graph, op.inputs) not in shapes[name]:
            return "in the trace at other shapes only"
        return "fewer calls in the trace than in the graph"

    return reason


_NAMED = 3


def _notes(trace: Trace, matches: Sequence[_Match]) -> Iterator[str]:
    """Say what of the trace is in no op of the graph."""
    if trace.orphans:
        yield f"{trace.orphans:,} kernels in the trace have no launch: their time is in no op"
    joined = {call for match in matches for call in match.ops if call is not None}
    caller, outside = callers(trace.ops), Counter[str]()
    covered: list[bool] = []
    for index, (outer, ns) in enumerate(zip(caller, self_ns(trace.ops, caller), strict=True)):
        covered.append(index in joined or (outer >= 0 and covered[outer]))
        if not covered[-1]:
            outside[trace.ops[index].name] += ns
    if total := outside.total():
        most = ", ".join(f"{name} {format_seconds(ns / 1e9)}" for name, ns in outside.most_common(_NAMED))
        yield f"{format_seconds(total / 1e9)} of the host in the trace are in calls that are no op of the graph: {most}"


# -- how long it took -------------------------------------------------------------------------------


def timer(graph: Graph, trace: Trace) -> Callable[[int, HostOp], int]:
    """Return the time of an op in a call: from the first kernel that it launched to the last, or of the call itself."""
    launched: defaultdict[object, list[Kernel]] = defaultdict(list)
    for kernel in sorted(trace.kernels, key=lambda kernel: kernel.launched_ns):
        launched[kernel.thread].append(kernel)

    def ns(index: int, call: HostOp) -> int:
        first, after = (
            bisect_right(launched[call.thread], t, key=lambda kernel: kernel.launched_ns)
            for t in (call.start_ns - 1, call.end_ns)
        )
        if mine := launched[call.thread][first:after]:
            return max(kernel.end_ns for kernel in mine) - min(kernel.start_ns for kernel in mine)
        op, storages, tensors = graph.ops[index], graph.storages, graph.tensors
        if trace.kernels and any(storages[tensors[t].storage].device != "cpu" for t in op.inputs + op.outputs):
            return 0
        return call.end_ns - call.start_ns

    return ns
