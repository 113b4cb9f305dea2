"""Calls of a profiler's trace as a Graph: shapes of results by the ops themselves, tensors linked by their shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from tensortide.dtypes import is_float
from tensortide.errors import TimesError
from tensortide.graph import Graph, GraphBuilder, Handle, Out, Phase, Role
from tensortide.graph.builder import LASTING
from tensortide.graph.handles import Given as GivenValue
from tensortide.graph.signatures import Signature
from tensortide.importers.kineto.calls import ACCUMULATE, Argument, Given, Reading, TracedOp
from tensortide.importers.kineto.linking import Linking, Result, Seen, results_of, signature_of
from tensortide.recorder import resolver
from tensortide.timing.durations import Durations
from tensortide.timing.kineto import Trace
from tensortide.timing.standins import from_samples
from tensortide.timing.traced import timer
from tensortide.units import format_bytes

ASSUMED = (
    "lifetimes by last use: a trace does not record releases of tensors",
    "tensors are linked by shape, dtype and order: a trace has no identities, so memory is an estimate",
    "roles of storages follow from the ops that use them: a trace does not name parameters",
)
UNRECORDED = "kineto"
"""Namespace of ops whose shapes the trace does not have: no rule prices them."""
_READS = frozenset({"aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"})
"""Ops whose result is no tensor."""
_VIEWS = frozenset({"_unsafe_view", "_reshape_alias", "alias", "detach", "lift_fresh"})


class Traced(NamedTuple):
    """A Graph, and for each of its ops the call that it was read from."""

    graph: Graph
    calls: tuple[TracedOp, ...]


def graph_of(reading: Reading, path: str, step: int | None = None, device: str = "cpu") -> Traced:
    """Make the Graph of a training step: of the profiler's ``step``, else of the last one, else of all calls.

    Raises TimesError for a trace without shapes, and for a step that it does not have.
    """
    if not reading.has_shapes:
        raise TimesError(
            f"{path} is a profiler's trace, with times and no tensors: it was recorded without record_shapes=True. "
            "Record it with shapes, or name the step that it is of: --step TARGET"
        )
    ops, counted = _of_step(reading, path, step)
    ops = list(_after_backward(ops))
    building = _Building(path.rpartition("/")[2], device, ops)
    calls = tuple(building.add(op) for op in ops if not building.accumulates(op))
    if counted:
        building.builder.assume(f"the profiler counted {format_bytes(counted)} allocated at most")
    return Traced(building.graph(), calls)


def _after_backward(ops: Sequence[TracedOp]) -> Iterator[TracedOp]:
    """Give what follows the last backward op, clipping of gradients among it, to the optimizer."""
    last = max((op.start_ns for op in ops if op.phase is Phase.BACKWARD), default=None)
    for op in ops:
        late = last is not None and op.start_ns > last and op.phase is Phase.FORWARD
        yield op._replace(phase=Phase.OPTIMIZER) if late else op


def _of_step(reading: Reading, path: str, step: int | None) -> tuple[list[TracedOp], int]:
    """The ops of the step, and the most bytes that the profiler counted in it."""
    if step is not None and step not in reading.steps:
        known = ", ".join(map(str, sorted(reading.steps))) or "none"
        raise TimesError(f"{path} has no ProfilerStep#{step}; its steps: {known}")
    if not reading.steps:
        return list(reading.ops), max((n for _, n in reading.allocated), default=0)
    start, end = reading.steps[max(reading.steps) if step is None else step]
    counted = max((n for time, n in reading.allocated if start <= time < end), default=0)
    return [op for op in reading.ops if start <= op.start_ns < end], counted


class _Building:
    """Graph under construction."""

    def __init__(self, name: str, device: str, ops: Sequence[TracedOp]) -> None:
        self.builder = GraphBuilder(name, framework="torch, a profiler's trace", device=device)
        self.builder.assume(*ASSUMED)
        self.linking = Linking()
        self.places: dict[int, tuple[str, ...]] = {}
        self.missing = self.untyped = 0
        self.trained = Counter(
            given.shape
            for op in ops
            if op.name == ACCUMULATE and op.arguments
            for given in op.arguments[:1]
            if isinstance(given, Given)
        )

    def graph(self) -> Graph:
        """Return the Graph."""
        if self.missing:
            self.builder.assume(f"{self.missing} ops have no shapes in the trace: what they compute is unknown")
        if self.untyped:
            text = f"{self.untyped} tensors in lists, of which a trace has no dtypes, are taken to be float32"
            self.builder.assume(text, decisive=True)
        return self.builder.build()

    def accumulates(self, op: TracedOp) -> bool:
        """Tell whether a call is the mark that a gradient accumulates; that gradient then stays to the step's end."""
        if op.name != ACCUMULATE:
            return False
        given = op.arguments[0] if op.arguments else None
        if isinstance(given, Given):
            found = self.linking.gradient(given)
            if found is not None:
                self.builder.keep(found.handle, Role.GRADIENT)
                found.read = True
        return True

    def add(self, op: TracedOp) -> TracedOp:
        """Add a call, and return it."""
        if op.module and op.sequence is not None and op.phase is Phase.FORWARD:
            self.places.setdefault(op.sequence, op.module)
        module = op.module or (self.places.get(op.sequence, ()) if op.sequence is not None else ())
        with ExitStack() as around:
            around.enter_context(self.builder.phase(op.phase))
            if module:
                around.enter_context(self.builder.module(".".join(module), module[-1].rpartition("_")[0]))
            if op.source is not None:
                around.enter_context(self.builder.source(op.source.file, op.source.line, op.source.function))
            self._op(op)
        return op

    def _op(self, op: TracedOp) -> None:
        if op.arguments is not None:
            op = op._replace(arguments=tuple(map(self._typed, op.arguments)))
        signature = None if op.arguments is None else signature_of(op.name, op.arguments)
        results: tuple[Result | None, ...] | None = None
        if op.name in _READS:
            results = ()
        elif signature is not None and op.arguments is not None:
            results = results_of(signature, op.arguments)
        if signature is None or results is None or op.arguments is None:
            self._unknown(op)
            return
        taken: list[Seen] = []
        names = [parameter.name for parameter in signature.arguments]
        given = [
            self._linked(op, value, parameter.name, parameter.written, taken)
            for parameter, value in zip(signature.arguments, op.arguments, strict=True)
        ]
        outs = list(self._outs(op, signature, results, taken))
        known = [out for out in outs if out is not None]
        by_position = sum(not parameter.keyword for parameter in signature.arguments)
        written = [
            seen.handle
            for parameter, value in zip(signature.arguments, given, strict=True)
            if parameter.written
            for seen in taken
            if seen.handle is value or (isinstance(value, list) and seen.handle in value)
        ]
        made = self.builder.ops(
            signature.op,
            *given[:by_position],
            names=names[:by_position],
            arguments={n: v for n, v in zip(names[by_position:], given[by_position:], strict=True) if v is not None},
            outs=known,
            mutates=written,
        )
        self._enter(op, made, known, taken, written)

    def _typed(self, value: Argument) -> Argument:
        """Give the tensors of a list their dtypes."""
        if isinstance(value, Given) or not isinstance(value, tuple):
            return value
        return tuple(map(self._with_dtype, value))

    def _with_dtype(self, value: Any) -> Any:
        if not isinstance(value, Given) or value.dtype:
            return value
        dtype = self.linking.dtype(value.shape)
        self.untyped += not dtype
        return value._replace(dtype=dtype or "float32")

    def _unknown(self, op: TracedOp) -> None:
        self.missing += 1
        namespace, _, base = op.name.partition("::")
        name = f"{UNRECORDED if namespace == 'aten' else namespace}.{base}"
        self.builder.ops(name)

    def _linked(self, op: TracedOp, value: Argument, name: str, written: bool, taken: list[Seen]) -> GivenValue:
        if isinstance(value, Given):
            found = self.linking.find(value, name, op.phase, op.sequence, taken, written=written)
            if found is None and value.shape in self.trained and not self.trained[value.shape]:
                found = self.linking.again(value)  # tied: all parameters of this shape are there already
            if found is None:
                found = self._before(op, value, name)
            taken.append(found)
            return found.handle
        if isinstance(value, tuple) and any(isinstance(item, Given) for item in value):
            return [self._item(op, item, name, written, taken) for item in value]
        return value

    def _item(self, op: TracedOp, value: object, name: str, written: bool, taken: list[Seen]) -> Handle | None:
        """Link a tensor of a list."""
        if not isinstance(value, Given):
            return None
        found = self._linked(op, value, name, written, taken)
        return found if isinstance(found, Handle) else None

    def _before(self, op: TracedOp, value: Given, name: str) -> Seen:
        """Add a tensor that existed before the step."""
        role = Role.INPUT
        if op.phase is Phase.OPTIMIZER:
            role = Role.OPTIMIZER_STATE
        elif self.trained[value.shape] > 0 and is_float(value.dtype):
            self.trained[value.shape] -= 1
            role = Role.PARAMETER
        label = f"{'.'.join(op.module)}.{name}".lstrip(".") if role in LASTING else ""
        handle = self.builder.value(label, value.shape, value.dtype, role=role, trainable=role is Role.PARAMETER)
        return self.linking.add(handle, None, value.strides, before=True)

    def _outs(
        self, op: TracedOp, signature: Signature, results: Sequence[Result | None], taken: list[Seen]
    ) -> Iterator[Out | None]:
        from tensortide.recorder.schema import tags_of

        _, base, overload = signature.op.split(".")
        is_view = base in _VIEWS or "view" in tags_of(f"aten::{base}", overload)
        written = any(parameter.written for parameter in signature.arguments)
        for result in results:
            if result is None:
                yield None
            elif (is_view or written) and taken:
                yield Out(result.shape, result.dtype, taken[0].handle, result.strides)
            else:
                yield Out(result.shape, result.dtype, strides=result.strides)

    def _enter(
        self,
        op: TracedOp,
        made: Sequence[Handle],
        outs: Sequence[Out],
        taken: Sequence[Seen],
        written: Sequence[Handle],
    ) -> None:
        """Enter the outputs among the tensors, and what was read and written."""
        for seen in taken:
            seen.read = True
            seen.written = seen.written or seen.handle in written
        if not written:
            views = {out.view_of.index for out in outs if out.view_of is not None}
            before = any(seen.before for seen in taken if seen.handle.index in views)
            fresh = [
                self.linking.add(handle, op.phase, tuple(out.strides or ()), before=before)
                for handle, out in zip(made, outs, strict=True)
            ]
            if op.phase is Phase.FORWARD and op.sequence is not None:
                self.linking.inputs[op.sequence] += taken
                self.linking.outputs[op.sequence] += fresh


def durations_of(traced: Traced, trace: Trace) -> Durations:
    """Return the time of each op: of its kernels, in a trace with kernels, else of its call."""
    calls = {(op.name, op.start_ns): op for op in trace.ops}
    time = timer(traced.graph, trace)
    found = [calls.get((op.name, op.start_ns)) for op in traced.calls]
    return from_samples(
        traced.graph,
        [[] if call is None else [time(index, call)] for index, call in enumerate(found)],
        missing=lambda index: f"the trace has no time of op {index}",
        source=trace.path,
        resolver=resolver,
        how="trace",
        clock="kernel" if trace.kernels else "wall",
        notes=(f"{len(found):,} ops of the trace",),
    )
