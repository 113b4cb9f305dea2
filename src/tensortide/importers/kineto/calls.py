"""The ops of a profiler's trace: what each was called with, and the module, line and phase that it ran in."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from tensortide.errors import TimesError
from tensortide.graph.model import Phase, Source, Value
from tensortide.importers.execution.nodes import DTYPES
from tensortide.timing.json_stream import members
from tensortide.timing.kineto import TraceEvent

_STEP = re.compile(r"ProfilerStep#(\d+)")
_FRAME = re.compile(r"(?P<file>[^<].*\.py)\((?P<line>\d+)\): (?P<function>.*)")
_MODULE = "nn.Module: "
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"
ACCUMULATE = "torch::autograd::AccumulateGrad"
_LIBRARY = ("torch/", "contextlib.py", "runpy.py", "threading.py")
_LONGEST = 10_000
_MOST_DIMS = 64


class Given(NamedTuple):
    """A tensor as a call was given it. ``strides`` count elements; None where they were not recorded, as the ``dtype``
    of a tensor in a list is not: it is empty."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None


Argument = Given | tuple["Given | None", ...] | Value
"""An argument: a tensor, a list of tensors, or a value."""


class TracedOp(NamedTuple):
    """A call of an op and where it ran. ``arguments`` None: the trace does not have their shapes."""

    name: str
    start_ns: int
    end_ns: int
    arguments: tuple[Argument, ...] | None
    sequence: int | None
    phase: Phase
    module: tuple[str, ...]
    source: Source | None


class Reading(NamedTuple):
    """What is read of a trace: ops in order of their start, the marks of steps, and ``allocated``: the time and the
    bytes that the profiler counted on GPUs, else on the host, with ``profile_memory``."""

    ops: tuple[TracedOp, ...]
    steps: dict[int, tuple[int, int]]
    has_shapes: bool
    allocated: tuple[tuple[int, int], ...] = ()


class _Args(msgspec.Struct):
    dims: Any = msgspec.field(name="Input Dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)
    strides: Any = msgspec.field(name="Input Strides", default=None)
    concrete: Any = msgspec.field(name="Concrete Inputs", default=None)
    sequence: int | None = msgspec.field(name="Sequence number", default=None)


class _Counted(msgspec.Struct):
    kind: int = msgspec.field(name="Device Type", default=0)
    total: int = msgspec.field(name="Total Allocated", default=0)


class _Memory(msgspec.Struct):
    args: _Counted
    ts: Decimal | int = 0


class _Span(TraceEvent):
    args: _Args = msgspec.field(default_factory=_Args)


def read_calls(path: str | os.PathLike[str]) -> Reading:
    """Read a trace as a stream. Raises TimesError, which names the file and the event, if it is damaged."""
    spans: dict[tuple[Any, Any], list[_Span]] = {}
    steps: dict[int, tuple[int, int]] = {}
    memory: list[_Memory] = []
    count = 0
    try:
        for key, value in members(path, "traceEvents", "trace of a profiler (Chrome trace JSON)"):
            if key != "traceEvents" or not isinstance(value, dict):
                continue
            count += 1
            if value.get("name") == "[memory]":
                memory.append(msgspec.convert(value, _Memory))
            if value.get("ph") != "X" or value.get("cat") not in ("cpu_op", "user_annotation", "python_function"):
                continue
            span = msgspec.convert(value, _Span)
            if span.cat == "user_annotation" and (found := _STEP.fullmatch(str(span.name))):
                steps[int(found[1])] = span.start_ns, span.end_ns
            elif span.cat != "python_function" or _is_place(str(span.name)):
                spans.setdefault(span.thread, []).append(span)
    except msgspec.ValidationError as error:
        raise TimesError(f"{path}: event {count - 1} is no event of a profiler: {error}") from error
    except ValueError as error:
        raise TimesError(f"{path}: {error}") from error
    ops = sorted((op for some in spans.values() for op in _outermost(some)), key=lambda op: op.start_ns)
    gpu = [one for one in memory if one.args.kind] or memory
    allocated = tuple((round(one.ts * 1000), one.args.total) for one in gpu)
    return Reading(tuple(ops), steps, any(op.arguments is not None for op in ops), allocated)


def _is_place(name: str) -> bool:
    return name.startswith(_MODULE) or (_FRAME.fullmatch(name) is not None and not name.startswith(_LIBRARY))


def _outermost(spans: Iterable[_Span]) -> Iterator[TracedOp]:
    """Yield the ops of a thread that are not called by other ops, each with the places around it."""
    around: list[_Span] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)):
        while around and around[-1].end_ns <= span.start_ns:
            around.pop()
        if not any(_is_op(outer) for outer in around) and _is_op(span):
            yield _traced(span, around)
        around.append(span)


def _is_op(span: _Span) -> bool:
    """Tell whether a call is an op of its own: one with a kernel, not one that is only made of others."""
    from tensortide.recorder.schema import only_composite

    name = str(span.name)
    if span.cat != "cpu_op" or "::" not in name or name.startswith("autograd::"):
        return False
    return name == ACCUMULATE or (not name.startswith("torch::") and not only_composite(name))


def _traced(span: _Span, around: Sequence[_Span]) -> TracedOp:
    names = [str(outer.name) for outer in around]
    frames = [found for name in names if (found := _FRAME.fullmatch(name))]
    node = next((outer for outer in around if str(outer.name).startswith(_BACKWARD)), None)
    last = frames[-1] if frames else None
    return TracedOp(
        str(span.name),
        span.start_ns,
        span.end_ns,
        _arguments(span.args),
        span.args.sequence if node is None else node.args.sequence,
        Phase.BACKWARD if node else Phase.OPTIMIZER if any(n.startswith(_OPTIMIZER) for n in names) else Phase.FORWARD,
        tuple(name.removeprefix(_MODULE) for name in names if name.startswith(_MODULE)),
        None if last is None else Source(last["file"], int(last["line"]), last["function"]),
    )


def _arguments(args: _Args) -> tuple[Argument, ...] | None:
    """Read what a call was given; None if shapes are missing, as those of long lists are."""
    lists = args.dims, args.types
    if not all(isinstance(part, list) for part in lists) or len(args.dims) != len(args.types):
        return None
    count = len(args.dims)
    strides = args.strides if isinstance(args.strides, list) and len(args.strides) == count else [None] * count
    concrete = args.concrete if isinstance(args.concrete, list) and len(args.concrete) == count else [""] * count
    try:
        return tuple(map(_argument, args.dims, args.types, strides, concrete))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _argument(dims: Any, kind: str, strides: Any, concrete: str) -> Argument:
    """Raises ValueError for what is no argument, or has no shapes."""
    if kind == "TensorList":
        if not dims:
            raise ValueError("a list of tensors whose shapes are not recorded")
        return tuple(Given("", _sizes(each), None) for each in dims)
    if (dtype := DTYPES.get(kind)) is not None:
        shape = _sizes(dims)
        known = isinstance(strides, list) and len(strides) == len(shape)
        return Given(dtype, shape, _sizes(strides) if known else None)
    if not concrete or len(concrete) > _LONGEST:
        return None
    try:
        return _plain(ast.literal_eval(concrete))
    except (ValueError, SyntaxError):
        return concrete


def _sizes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _MOST_DIMS or not all(isinstance(n, int) and n >= 0 for n in value):
        raise ValueError("no shape")
    return tuple(value)


def _plain(value: Any) -> Value:
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError("no value")
