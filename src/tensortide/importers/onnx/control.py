"""Control flow: loops stay loops, arms of a conditional exclude each other, functions are written out where they are
called, or priced once where that would be too many nodes."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tensortide.expr import Size
from tensortide.graph.handles import Out
from tensortide.importers.onnx.contents import scalar
from tensortide.importers.onnx.frame import Frame, dim_size
from tensortide.importers.onnx.read import Body, Node
from tensortide.importers.onnx.shapes.base import Call
from tensortide.importers.onnx.trips import title, trips_of
from tensortide.importers.onnx.value import OnnxError, Value

if TYPE_CHECKING:
    from tensortide.importers.onnx.convert import Conversion


def _body(call: Call, name: str) -> Body:
    body = call.node.attributes.get(name)
    if not isinstance(body, Body):
        raise call.fail(f"it has no graph {name}")
    return body


def _inner(conversion: Conversion, frame: Frame, call: Call, body: Body) -> Frame:
    """Return the frame of a graph inside a node, with its stored tensors."""
    inner = frame.inner(body, f"{frame.place}{call.node}: ")
    conversion.store(inner)
    return inner


def _ran(conversion: Conversion, frame: Frame, count: int | None = None) -> list[Value]:
    """Convert the nodes of a graph; what it makes: its first ``count`` outputs."""
    conversion.run(frame)
    found = []
    for port in frame.body.outputs[:count]:
        if port.name not in frame.scope:
            raise OnnxError(f"{conversion.model.file}: {frame.place}its output {port.name} is not computed")
        found.append(frame.scope[port.name])
    return found


# --- functions -----------------------------------------------------------------------------------------


def called(conversion: Conversion, frame: Frame, call: Call, function: Body) -> list[Value]:
    """Convert the body of a local function where it is called."""
    node = call.node
    if len(call.inputs) > len(function.inputs):
        raise call.fail(f"{len(call.inputs)} inputs of a function of {len(function.inputs)}")
    scope = {}
    for port, value in zip(function.inputs, call.inputs, strict=False):
        if value is not None:
            scope[port.name] = value
    path = f"{frame.path}{node.name or node.type}." if frame.depth < 8 else frame.path
    inner = Frame(
        function, scope, function.opsets, {**function.defaults, **node.attributes},
        f"{frame.place}{node}: "[-300:], path, frame.depth + 1,
        frozenset(port.name for port in function.inputs if port.name not in scope),
    )  # fmt: skip
    return _ran(conversion, inner, len(node.outputs))


class Repeated:
    """Calls of one function in one body, priced once and multiplied: where functions that call functions would be
    too many nodes. All calls must have the same attributes and the same shapes."""

    def __init__(self, conversion: Conversion, frame: Frame) -> None:
        self.conversion = conversion
        self.frame = frame
        self.calls: dict[object, int] = {}
        self.made: dict[object, tuple[object, list[Value]]] = {}
        for node in frame.body.nodes:
            if (node.domain, node.type) in conversion.model.functions:
                key = self._key(frame.resolved(node))
                self.calls[key] = self.calls.get(key, 0) + 1

    def _key(self, node: Node) -> object:
        return node.domain, node.type, repr(sorted(node.attributes.items()))

    def take(self, node: Node) -> bool:
        """Convert ``node`` if it calls a function that is called several times here."""
        node = self.frame.resolved(node)
        function = self.conversion.model.functions.get((node.domain, node.type))
        key = self._key(node) if function is not None else None
        if function is None or self.calls[key] < 2:
            return False
        inputs = self.conversion.inputs(self.frame, node)
        signature = tuple(None if value is None else (tuple(map(int, value.shape)), value.dtype) for value in inputs)
        if key not in self.made:
            call = Call(node, inputs, self.frame.version(node), self.conversion.settings, self.conversion.model.file,
                        self.frame.place)  # fmt: skip
            with self.conversion.builder.loop(f"calls of {node.type}", self.calls[key]):
                self.made[key] = signature, called(self.conversion, self.frame, call, function)
            text = f"{node.type} is called {self.calls[key]} times in {self.frame.body.name or 'a graph'}: as a loop"
            self.conversion.settings.notes[text] = None
        known, values = self.made[key]
        if known != signature:
            raise OnnxError(
                f"{self.conversion.model.file}: {self.frame.place}{node}: its functions call one another too often to "
                "be written out, and this one with different shapes"
            )
        for name, value in zip(node.outputs, values, strict=False):
            self.frame.scope[name] = value
        return True


# --- conditionals --------------------------------------------------------------------------------------


def conditional(conversion: Conversion, frame: Frame, call: Call) -> list[Value]:
    """Convert an If: the arm that is taken if the condition is known, else both, which exclude each other."""
    arms = [_body(call, "then_branch"), _body(call, "else_branch")]
    known = call.content(0)
    if known and isinstance(known[0], bool | int) and not isinstance(known[0], Size):
        taken = arms[0] if known[0] else arms[1]
        return _ran(conversion, _inner(conversion, frame, call, taken))
    arm, results = conversion.builder.conditional(), []
    for number, body in enumerate(arms):
        with arm(number):
            results.append(_ran(conversion, _inner(conversion, frame, call, body)))
    if len(results[0]) != len(results[1]):
        raise call.fail(f"arms of {len(results[0])} and {len(results[1])} outputs")
    return [_merged(conversion, call, *pair) for pair in zip(*results, strict=True)]


def _merged(conversion: Conversion, call: Call, first: Value, second: Value) -> Value:
    """Return the result of whichever arm runs; of different sizes the larger one."""
    if first.items is not None or second.items is not None:
        return first if first.items is not None else second
    if tuple(map(int, first.shape)) != tuple(map(int, second.shape)):
        text = f"{call.node}: its arms have results of different shapes; the larger one is taken"
        conversion.settings.notes[text] = None
        if math.prod(map(int, second.shape)) > math.prod(map(int, first.shape)):
            first, second = second, first
    handles = [conversion.handle(first), conversion.handle(second)]
    out = Out(first.shape, first.dtype, view_of=handles[0])
    made = conversion.builder.op("onnx.If", *handles, out=out, label=call.node.name)
    return Value(first.shape, first.dtype, None, made)


# --- loops ---------------------------------------------------------------------------------------------


def loop(conversion: Conversion, frame: Frame, call: Call) -> list[Value]:
    """Convert a Loop: its body once, and how often it runs as far as that is known."""
    body = _body(call, "body")
    states = [value for value in call.inputs[2:] if value is not None]
    if len(body.inputs) != 2 + len(states) or len(body.outputs) < 1 + len(states):
        raise call.fail(f"a body of {len(body.inputs)} inputs and {len(body.outputs)} outputs for {len(states)} states")
    trips, assumed = trips_of(call, body, frame.scope)
    inner = _inner(conversion, frame, call, body)
    number = Value((), "int64", None, name=body.inputs[0].name, iteration=int(trips))
    given = call.given(1)
    going = Value((), "bool", scalar(True) if given is None else given.contents, name=body.inputs[1].name)
    inner.scope[body.inputs[0].name], inner.scope[body.inputs[1].name] = number, going
    names = [port.name for port in body.inputs[2:]]
    return _looped(conversion, call, inner, names, states, trips, assumed, skipped=1)


def _looped(
    conversion: Conversion, call: Call, inner: Frame, names: Sequence[str], states: Sequence[Value], trips: int,
    assumed: bool, *, skipped: int, axes: Sequence[int] = (), scanned: Sequence[tuple[str, Value, int]] = (),
) -> list[Value]:  # fmt: skip
    """Convert the body of a loop. The first ``skipped`` of its outputs are the condition, then come the states, and
    what is stacked over all trips along ``axes``. ``scanned`` are inputs of which each trip takes a slice."""
    builder = conversion.builder
    if int(trips) == 0:
        return _nothing(conversion, inner, states)
    with builder.loop(title(call), trips, assumed=assumed) as carry:
        entering = [_entering(conversion, call, state) for state in states]
        for name, value in zip(names, entering, strict=True):
            inner.scope[name] = value
        for name, value, axis in scanned:
            inner.scope[name] = _slice(conversion, call, value, axis)
        results = _ran(conversion, inner)
        for before, after in zip(entering, results[skipped:], strict=False):
            if before.items is None and after.items is None and _alike(before, after):
                carry(conversion.handle(before), conversion.handle(after))
    final = [_grown(conversion, call, *pair, trips) for pair in zip(states, results[skipped:], strict=False)]
    stacked = []
    for i, value in enumerate(results[skipped + len(states) :]):
        axis = call.axis(axes[i] if i < len(axes) else 0, value.rank + 1)
        shape = conversion.checked((*value.shape[:axis], trips, *value.shape[axis:]), f"{call.node}: an output")
        made = builder.op(f"onnx.{call.node.type}.stack", conversion.handle(value), out=shape, label=call.node.name)
        stacked.append(Value(shape, value.dtype, None, made))
    return [*final, *stacked]


def _nothing(conversion: Conversion, inner: Frame, states: Sequence[Value]) -> list[Value]:
    """The results of a loop that does not run: what it stacks has the sizes that its body declares, else none."""
    made, settings = list(states), conversion.settings
    for port in inner.body.outputs[1 + len(states) :]:
        sizes = [dim_size(settings, dim, port.name, i) for i, dim in enumerate(port.shape or ())]
        made.append(Value((0, *sizes), port.dtype or "float32", None))
    return made


def _entering(conversion: Conversion, call: Call, state: Value) -> Value:
    """Return a state as an iteration starts: its contents are those of the iteration before."""
    if state.items is not None:
        return state
    handle = conversion.handle(state)
    out = Out(state.shape, state.dtype, view_of=handle)
    made = conversion.builder.op(f"onnx.{call.node.type}.state", handle, out=out, label=call.node.name)
    return Value(state.shape, state.dtype, None, made)


def _slice(conversion: Conversion, call: Call, value: Value, axis: int) -> Value:
    """Return the slice that one trip takes: a view."""
    from tensortide.graph.handles import contiguous

    handle = conversion.handle(value)
    strides = contiguous(value.shape)
    out = Out(
        (*value.shape[:axis], *value.shape[axis + 1 :]), value.dtype, handle, (*strides[:axis], *strides[axis + 1 :])
    )
    made = conversion.builder.op(f"onnx.{call.node.type}.slice", handle, out=out, label=call.node.name)
    return Value(tuple(out.shape), value.dtype, None, made)


def _alike(before: Value, after: Value) -> bool:
    """Return whether a state leaves an iteration as large as it came, so that the next one can read it there."""
    return tuple(map(int, before.shape)) == tuple(map(int, after.shape)) and before.dtype == after.dtype


def _grown(conversion: Conversion, call: Call, before: Value, after: Value, trips: int) -> Value:
    """Return a state after all trips; one that grows with each is that much larger."""
    if after.items is not None or before.items is not None:
        return after
    if _alike(before, after) or before.rank != after.rank:
        return Value(after.shape, after.dtype, None, after.handle)
    shape = [a + (b - a) * trips for a, b in zip(before.shape, after.shape, strict=True)]
    text = f"{call.node}: a state grows with every trip; the body is priced at the sizes of the first"
    conversion.settings.guesses[text] = None
    if any(int(n) < 0 for n in shape):
        raise call.fail(f"a state of the shape {tuple(map(int, shape))} after all trips")
    made = conversion.builder.op("onnx.Loop.grown", conversion.handle(after), out=shape, label=call.node.name)
    return Value(tuple(shape), after.dtype, None, made)


def scan(conversion: Conversion, frame: Frame, call: Call) -> list[Value]:
    """Convert a Scan: its trips are the dimension that it scans."""
    if call.version < 9:
        raise call.fail("Scan of opset 8, which has a batch, is not read")
    body, count = _body(call, "body"), call.attr("num_scan_inputs", 0)
    values = [call.x(i) for i in range(len(call.inputs))]
    states, inputs = values[: len(values) - count], values[len(values) - count :]
    if not 1 <= count <= len(values) or len(body.inputs) != len(values) or len(body.outputs) < len(states):
        raise call.fail(f"{count} scanned inputs of {len(values)}, and a body of {len(body.inputs)}")
    axes = call.attr("scan_input_axes", (0,) * count)
    if len(axes) != count:
        raise call.fail(f"its attribute scan_input_axes is {axes}")
    places = [call.axis(axis, max(value.rank, 1)) for axis, value in zip(axes, inputs, strict=True)]
    if any(not value.rank for value in inputs):
        raise call.fail("it scans a single number")
    lengths = {int(value.shape[axis]) for value, axis in zip(inputs, places, strict=True)}
    if len(lengths) != 1:
        raise call.fail(f"it scans inputs of the lengths {sorted(lengths)}")
    trips = inputs[0].shape[places[0]]
    names = [port.name for port in body.inputs]
    inner = _inner(conversion, frame, call, body)
    scanned = list(zip(names[len(states) :], inputs, places, strict=True))
    return _looped(
        conversion, call, inner, names[: len(states)], states, trips, False, skipped=0,
        axes=call.attr("scan_output_axes", ()), scanned=scanned,
    )  # fmt: skip


def sequence_map(conversion: Conversion, frame: Frame, call: Call) -> list[Value]:
    """Convert a SequenceMap: its body for every item. Items of one shape are a loop."""
    body, first = _body(call, "body"), call.given(0)
    if first is None or first.items is None or len(body.inputs) != len(call.inputs):
        raise call.fail("it maps no sequence, or a body of other inputs")
    alike = len({(tuple(map(int, item.shape)), item.dtype) for item in first.items}) <= 1
    made: list[list[Value]] = [[] for _ in body.outputs]
    groups = [first.items[:1]] * bool(first.items) if alike else [(item,) for item in first.items]
    for index, group in enumerate(groups):
        inner = _inner(conversion, frame, call, body)
        for port, value in zip(body.inputs, call.inputs, strict=True):
            if value is not None:
                items = value.items
                inner.scope[port.name] = value if items is None else group[0] if items is first.items else items[index]
        times = len(first.items) if alike else 1
        around = conversion.builder.loop(title(call), times) if times > 1 else contextlib.nullcontext()
        with around:
            results = _ran(conversion, inner)
        for values, value in zip(made, results, strict=True):
            values.extend([value] * times)
    return [Value(items=tuple(values)) for values in made]


CONTROL: dict[str, Callable[[Conversion, Frame, Call], list[Value]]] = {
    "If": conditional,
    "Loop": loop,
    "Scan": scan,
    "SequenceMap": sequence_map,
}
"""Ops with graphs inside them."""
