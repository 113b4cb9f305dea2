"""Read what PyTorch's profiler writes: Kineto traces, which are Chrome traces (JSON, also gzipped).

The file is read as a stream: of its events, only calls of ops, kernels and their launches are kept. Times in a trace
are microseconds with decimals; here they are integer nanoseconds on the trace's own axis, which begins at ``base_ns``.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

from tensortide.errors import TimesError
from tensortide.timing.json_stream import members

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Thread: TypeAlias = tuple[int | str | None, int | str | None]

_STEP = re.compile(r"ProfilerStep#(\d+)")
_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = ("_runtime", "_driver")
_MOST_US = 1 << 52


class HostOp(msgspec.Struct, frozen=True):
    """A call of an op on the host. ``shapes``: those of its tensors with dimensions; None if not recorded.

    ``record`` numbers it among all calls, as an execution trace of the same run does. ``sequence`` is common to a
    forward call and the node of the backward pass that it made; such a node names the ``forward_thread``.
    """

    name: str
    start_ns: int
    end_ns: int
    thread: Thread
    shapes: Shapes | None
    record: int | None = None
    sequence: int | None = None
    forward_thread: int = 0


class Kernel(msgspec.Struct, frozen=True):
    """Work of a device, and when and where the host launched it."""

    start_ns: int
    end_ns: int
    launched_ns: int
    thread: Thread


class Trace(msgspec.Struct, frozen=True):
    """Ops of a trace, in the order in which they start, the longer of two first. ``steps`` are the profiler's own
    marks, if any.

    ``orphans`` counts kernels whose launch is not in the trace. ``base_ns`` is what the times are counted from, in
    nanoseconds since 1970; 0 if they are counted from there.
    """

    path: str
    ops: tuple[HostOp, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[tuple[int, int], ...]
    orphans: int
    devices: tuple[str, ...] = ()
    base_ns: int = 0


class _Arguments(msgspec.Struct):
    correlation: int | str | None = None
    dims: Any = msgspec.field(name="Input Dims", default=None)
    external: int | None = msgspec.field(name="External id", default=None)
    record: int | None = msgspec.field(name="Record function id", default=None)
    sequence: int | None = msgspec.field(name="Sequence number", default=None)
    forward_thread: int = msgspec.field(name="Fwd thread id", default=0)


class TraceEvent(msgspec.Struct):
    """What every event of a Chrome trace has: its kind, times in microseconds, and where it ran."""

    ph: str = ""
    cat: str = ""
    name: str | int = ""
    ts: Decimal | int | None = None
    dur: Decimal | int | None = None
    pid: int | str | None = None
    tid: int | str | None = None

    @property
    def thread(self) -> Thread:
        return self.pid, self.tid

    @property
    def start_ns(self) -> int:
        return round((self.ts or 0) * 1000)

    @property
    def end_ns(self) -> int:
        return self.start_ns + round((self.dur or 0) * 1000)


class _Event(TraceEvent):
    id: int | str | None = None
    args: _Arguments = msgspec.field(default_factory=_Arguments)

    @property
    def span(self) -> tuple[int, int]:
        assert self.ts is not None
        assert self.dur is not None
        return self.start_ns, self.end_ns


class _Properties(msgspec.Struct):
    name: str = ""


class _Reading:
    """Events of a trace that matter, as they come."""

    def __init__(self) -> None:
        self.events = 0
        self.ops: list[tuple[HostOp, int | None]] = []  # and its External id
        self.steps: list[tuple[int, int]] = []
        self.work: list[_Event] = []
        self.launches: dict[int | str, _Event] = {}  # by correlation: calls of the driver
        self.flow_starts: dict[int | str, _Event] = {}  # by correlation: arrows from launch to kernel
        self.flow_ends: dict[tuple[Thread, int], int | str] = {}

    def add(self, item: Any) -> None:
        """Take an event. Raises msgspec.ValidationError for one of another form, ValueError for one without a time."""
        self.events += 1
        event = msgspec.convert(item, _Event)
        if event.ph == "X":
            if not (_in_range(event.ts) and _in_range(event.dur) and event.dur is not None and event.dur >= 0):
                raise ValueError(
                    f"event {self.events - 1} ({event.name}) has no time in range: ts {event.ts}, dur {event.dur}"
                )
            self._complete(event)
        elif event.cat == "ac2g" and event.id is not None and _in_range(event.ts):
            if event.ph == "s":
                self.flow_starts[event.id] = event
            elif event.ph == "f":
                self.flow_ends[event.thread, event.start_ns] = event.id

    def _complete(self, event: _Event) -> None:
        if event.cat == "cpu_op":
            self.ops.append((_host_op(event), event.args.external))
        elif event.cat in _KERNELS:
            self.work.append(event)
        elif event.cat == "user_annotation" and _STEP.fullmatch(str(event.name)):
            self.steps.append(event.span)
        elif event.args.correlation is not None and event.cat.endswith(_LAUNCHES):
            self.launches[event.args.correlation] = event

    def kernels(self) -> Iterator[Kernel]:
        """Kernels whose launch is known: the call of equal correlation, else the start of the arrow to the kernel, else
        the only op with the External id of the kernel."""
        ids = Counter(external for _, external in self.ops)
        ops = {external: op for op, external in self.ops if external is not None and ids[external] == 1}
        for event in self.work:
            found = event.args.correlation
            if found is None:
                found = self.flow_ends.get((event.thread, event.start_ns))
            launch = None if found is None else self.launches.get(found, self.flow_starts.get(found))
            if launch is not None:
                yield Kernel(*event.span, launch.start_ns, launch.thread)
            elif event.args.external is not None and (op := ops.get(event.args.external)) is not None:
                yield Kernel(*event.span, op.start_ns, op.thread)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace. Raises TimesError, which names the file and the place in it, if it is none or is damaged."""
    reading, others = _Reading(), dict[str, Any]()
    try:
        for key, value in members(path, "traceEvents", "trace of a profiler (Chrome trace JSON)"):
            if key == "traceEvents" and isinstance(value, dict):
                reading.add(value)
            else:
                others[key] = value
    except msgspec.ValidationError as error:
        raise TimesError(f"{path}: event {reading.events - 1} is no event of a profiler: {error}") from error
    except ValueError as error:
        raise TimesError(f"{path}: {error}") from error
    ops = sorted((op for op, _ in reading.ops), key=lambda op: (op.start_ns, -op.end_ns))
    if not ops:
        raise TimesError(f"{path}: none of its {reading.events} events is an op of the host (category cpu_op)")
    kernels = sorted(reading.kernels(), key=lambda kernel: kernel.start_ns)
    return Trace(
        str(path),
        tuple(ops),
        tuple(kernels),
        tuple(sorted(reading.steps)),
        len(reading.work) - len(kernels),
        tuple(_devices(others)),
        _base_ns(others),
    )


def _devices(others: Mapping[str, Any]) -> Iterable[str]:
    try:
        found = msgspec.convert(others.get("deviceProperties", []), list[_Properties])
    except msgspec.ValidationError:
        return ()  # of a vendor's own form
    return dict.fromkeys(properties.name for properties in found if properties.name)


def _base_ns(others: Mapping[str, Any]) -> int:
    found = others.get("baseTimeNanoseconds", 0)
    return found if isinstance(found, int) else 0


def _in_range(time: Decimal | int | None) -> bool:
    if time is None or (isinstance(time, Decimal) and not time.is_finite()):
        return False
    return -_MOST_US < time < _MOST_US


def _host_op(event: _Event) -> HostOp:
    args = event.args
    shapes = None if args.dims is None else tuple(_shapes(args.dims))
    return HostOp(str(event.name), *event.span, event.thread, shapes, args.record, args.sequence, args.forward_thread)


def _shapes(dims: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of tensors, those of lists of tensors among them; scalars and absent tensors have an empty one."""
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        yield tuple(dims)
        return
    for item in dims:
        yield from _shapes(item)
