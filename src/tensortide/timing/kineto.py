"""Read what PyTorch's profiler writes: Kineto traces, which are Chrome traces (JSON, also gzipped).

Times in a trace are microseconds with decimals; here they are integer nanoseconds on the trace's own axis.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from tensortide.errors import TimesError

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Thread: TypeAlias = tuple[int | str | None, int | str | None]

_STEP = re.compile(r"ProfilerStep#(\d+)")
_KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
_LAUNCHES = ("_runtime", "_driver")


class HostOp(msgspec.Struct, frozen=True):
    """A call of an op on the host. ``shapes``: those of its tensors with dimensions; None if not recorded."""

    name: str
    start_ns: int
    end_ns: int
    thread: Thread
    shapes: Shapes | None


class Kernel(msgspec.Struct, frozen=True):
    """Work of a device, and when and where the host launched it."""

    start_ns: int
    end_ns: int
    launched_ns: int
    thread: Thread


class Trace(msgspec.Struct, frozen=True):
    """Ops of a trace, in the order in which they start. ``steps`` are the profiler's own marks, if any.

    ``orphans`` counts kernels whose launch is not in the trace.
    """

    path: str
    ops: tuple[HostOp, ...]
    kernels: tuple[Kernel, ...]
    steps: tuple[tuple[int, int], ...]
    orphans: int
    devices: tuple[str, ...] = ()


class _Arguments(msgspec.Struct):
    correlation: int | str | None = None
    dims: Any = msgspec.field(name="Input Dims", default=None)


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str | int = ""
    ts: float | None = None
    dur: float | None = None
    pid: int | str | None = None
    tid: int | str | None = None
    args: _Arguments | None = None


class _Properties(msgspec.Struct):
    name: str = ""


class _File(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")
    devices: list[_Properties] = msgspec.field(name="deviceProperties", default_factory=list)


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace. Raises TimesError, which names the file and the place in it, if it is none or is damaged."""
    data = read_bytes(path)
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TimesError(f"{path} is no trace of a profiler (Chrome trace JSON): {error}") from error
    complete = [(i, event) for i, event in enumerate(file.events) if event.ph == "X"]
    for i, event in complete:
        if event.ts is None or event.dur is None or not (0 <= event.dur < 2**52 > abs(event.ts)):
            raise TimesError(f"{path}: event {i} ({event.name}) has no time in range: ts {event.ts}, dur {event.dur}")
    events = [event for _, event in complete]
    kernels, orphans = _kernels(events)
    found = Trace(
        str(path),
        tuple(
            sorted(map(_host_op, (e for e in events if e.cat == "cpu_op")), key=lambda op: (op.start_ns, -op.end_ns))
        ),
        tuple(sorted(kernels, key=lambda kernel: kernel.start_ns)),
        tuple(sorted(_steps(events))),
        orphans,
        tuple(dict.fromkeys(properties.name for properties in file.devices if properties.name)),
    )
    if not found.ops:
        raise TimesError(f"{path}: none of its {len(file.events)} events is an op of the host (category cpu_op)")
    return found


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Read the file, unpacked if it is gzipped. Raises TimesError."""
    try:
        data = Path(path).read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TimesError(f"{path} is damaged (gzip): {error}") from error
    except OSError as error:
        raise TimesError(f"cannot read {path}: {error.strerror or error}") from error


def _span(event: _Event) -> tuple[int, int]:
    assert event.ts is not None
    assert event.dur is not None
    start = round(event.ts * 1000)
    return start, start + round(event.dur * 1000)


def _host_op(event: _Event) -> HostOp:
    dims = event.args.dims if event.args is not None else None
    return HostOp(
        str(event.name), *_span(event), (event.pid, event.tid), None if dims is None else tuple(_shapes(dims))
    )


def _shapes(dims: Any) -> Iterator[tuple[int, ...]]:
    """Shapes of tensors, those of lists of tensors among them; scalars and absent tensors have an empty one."""
    if not isinstance(dims, list) or not dims:
        return
    if all(isinstance(size, int) for size in dims):
        yield tuple(dims)
        return
    for item in dims:
        yield from _shapes(item)


def _steps(events: Iterable[_Event]) -> Iterator[tuple[int, int]]:
    return (_span(e) for e in events if e.cat == "user_annotation" and _STEP.fullmatch(str(e.name)))


def _kernels(events: Iterable[_Event]) -> tuple[list[Kernel], int]:
    launches: dict[int | str, _Event] = {}
    work: list[tuple[int | str | None, _Event]] = []
    for event in events:
        correlation = event.args.correlation if event.args is not None else None
        if event.cat in _KERNELS:
            work.append((correlation, event))
        elif correlation is not None and event.cat.endswith(_LAUNCHES):
            launches[correlation] = event
    kernels: list[Kernel] = []
    for correlation, event in work:
        launch = launches.get(correlation) if correlation is not None else None
        if launch is not None:
            kernels.append(Kernel(*_span(event), _span(launch)[0], (launch.pid, launch.tid)))
    return kernels, len(work) - len(kernels)
