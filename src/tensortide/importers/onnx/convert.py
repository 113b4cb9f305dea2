"""Conversion of a model to a Graph: node by node, shapes and small contents followed, loops and conditionals kept."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tensortide.dtypes import is_float, storage_bytes
from tensortide.errors import GraphError
from tensortide.expr import Size, expr_of
from tensortide.graph.builder import GraphBuilder
from tensortide.graph.handles import Handle, Out
from tensortide.graph.model import Graph, Meta, Named, Role
from tensortide.graph.model import Value as Argument
from tensortide.importers.onnx import control
from tensortide.importers.onnx.bodies import body_of, needs_body
from tensortide.importers.onnx.contents import array
from tensortide.importers.onnx.frame import DEEPEST_CALL, MANY, Frame, dim_size, expanded
from tensortide.importers.onnx.learned import learned
from tensortide.importers.onnx.names import input_names, op_name
from tensortide.importers.onnx.read import Body, Model, Node, Port, Stored
from tensortide.importers.onnx.shapes.base import SHAPES, Call
from tensortide.importers.onnx.shapes.elements import constant, of_elements
from tensortide.importers.onnx.trips import PASSES
from tensortide.importers.onnx.value import OnnxError, Settings, Spec, Value
from tensortide.importers.shapes import ShapeError, plain

MOST_OPS = 300_000
"""Most ops that a model is converted to."""
LARGEST = 1 << 62
"""Largest dimension."""
_TERMS = 64
"""Largest product of the numbers of terms of a shape's dimensions: beyond it sizes are plain numbers."""
_FAILURES = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)


class Conversion:
    """A model on its way to a Graph. ``builder`` has what was converted, ``settings`` the symbols. ``trained``: ops
    whose gradient no rule knows are written out by the bodies that define them."""

    def __init__(self, model: Model, settings: Settings, trained: bool = False) -> None:
        from tensortide.importers.onnx import rules, shapes  # noqa: F401  the tables are filled by importing

        self.model = model
        self.settings = settings
        self.trained = trained
        self.builder = GraphBuilder(framework=f"ONNX ({model.producer})" if model.producer else "ONNX")
        self.collapses = expanded(model) > MANY
        self.ops = 0
        self._uses = uses(model)

    def graph(self, workload: str) -> Graph:
        """Convert the graph of the model. Raises OnnxError."""
        body = self.model.graph
        frame = Frame(body, {}, self.model.opsets)
        self.store(frame)
        named = []
        for port in body.inputs:
            if port.name not in frame.scope:
                fed = frame.scope[port.name] = self.fed(port)
                named += [Named(port.name, Role.INPUT, self.handle(item).index) for item in fed.items or (fed,)]
        self.run(frame)
        for port in body.outputs:
            value = frame.scope.get(port.name)
            if value is None:
                raise OnnxError(f"{self.model.file}: the output {port.name} is not computed")
            handles = [self.handle(item) for item in (value.items if value.items is not None else (value,))]
            self.builder.output(*handles)
            named += [Named(port.name, Role.OUTPUT, handle.index) for handle in handles]
        try:
            graph = self.builder.build()
        except GraphError as error:
            raise OnnxError(f"{self.model.file}: {error}") from error
        return self._noted(msgspec.structs.replace(graph, named=(*graph.named, *named)), workload)

    def _noted(self, graph: Graph, workload: str) -> Graph:
        """Return the graph with what was assumed of it; of symbols only those that are in its sizes."""
        sizes = [n for t in graph.tensors for n in t.shape if isinstance(n, Size)]
        sizes += [loop.trips for loop in graph.loops if isinstance(loop.trips, Size)]
        used = {name for size in sizes for name in expr_of(size).symbols}
        self.settings.values = {name: n for name, n in self.settings.values.items() if name in used}
        notes = [note for note in self.settings.notes if " = " not in note or note.partition(" = ")[0] in used]
        guesses = tuple(self.settings.guesses)
        assumptions = ("lifetimes by last use", *notes, *guesses)
        meta = Meta(
            workload=workload,
            framework=self.builder.meta.framework,
            captured_on="file",
            assumptions=assumptions,
            decisive=guesses,
        )
        return msgspec.structs.replace(graph, meta=meta)

    # --- values ----------------------------------------------------------------------------------------

    def store(self, frame: Frame) -> None:
        """Add the stored tensors of a graph."""
        for stored in frame.body.stored:
            frame.scope[stored.name] = self.stored(stored, role_of(stored, self._uses.get(stored.name, set())))

    def stored(self, stored: Stored, role: Role) -> Value:
        """Add a stored tensor."""
        shape = self.checked(stored.shape, f"the stored tensor {stored.name}")
        handle = self.builder.value(
            stored.name, shape, stored.dtype, role=role, nbytes=stored.nbytes,
            trainable=role is Role.PARAMETER and is_float(stored.dtype),
        )  # fmt: skip
        return Value(shape, stored.dtype, stored.contents, handle, name=stored.name)

    def fed(self, port: Port) -> Value:
        """Add an input. A few integers are symbols: sizes and trip counts may depend on them."""
        if port.kind == "other" or port.shape is None:
            raise OnnxError(f"{self.model.file}: the input {port.name} has no shape, or is no tensor")
        if not port.dtype:
            raise OnnxError(f"{self.model.file}: the input {port.name} has no dtype")
        dims = [dim_size(self.settings, dim, port.name, i) for i, dim in enumerate(port.shape)]
        shape = self.checked(dims, f"the input {port.name}")
        handle = self.builder.input(port.name, shape, port.dtype)
        value = Value(shape, port.dtype, None, handle, name=port.name)
        if port.kind != "tensor":
            return Value(items=(value,), name=port.name)
        if port.dtype in ("int64", "int32") and len(shape) < 2 and (not shape or shape[0] <= 8):
            names = [f"{port.name}_{i}" for i in range(int(shape[0]))] if shape else [port.name]
            value.contents = array([self.settings.size(name, 1) for name in names], shape)
        return value

    def checked(self, shape: Sequence[int], what: str) -> tuple[int, ...]:
        """Return a shape whose dimensions are numbers that a graph can have."""
        if any(not 0 <= int(n) < LARGEST for n in shape):
            raise OnnxError(f"{self.model.file}: {what} has the shape {tuple(shape)}"[:400])
        if math.prod(len(expr_of(n).terms) for n in shape if isinstance(n, Size)) > _TERMS:
            return tuple(map(int, shape))
        return tuple(shape)

    def handle(self, value: Value) -> Handle:
        """Return the tensor of a value in the Graph; one that only a loop knows is made by it."""
        if value.items is not None:
            raise OnnxError(f"{self.model.file}: {value.name or 'a value'} is a sequence, where a tensor is expected")
        if value.handle is None:
            out = Out(value.shape, value.dtype)
            value.handle = self.builder.op("onnx.Loop.value", out=out, label=value.name)
        return value.handle

    # --- nodes -----------------------------------------------------------------------------------------

    def run(self, frame: Frame) -> None:
        """Convert the nodes of a frame in their order."""
        if frame.depth > DEEPEST_CALL:
            raise OnnxError(f"{self.model.file}: {frame.place}more than {DEEPEST_CALL} graphs inside one another")
        repeated = control.Repeated(self, frame) if self.collapses else None
        for node in frame.body.nodes:
            if repeated is None or not repeated.take(node):
                self.node(frame, node)

    def inputs(self, frame: Frame, node: Node) -> list[Value | None]:
        """Return the inputs of a node. Raises OnnxError for one that no node before it computes."""
        found: list[Value | None] = []
        for name in node.inputs:
            if name and name not in frame.scope and name not in frame.omitted:
                later = any(name in other.outputs for other in frame.body.nodes)
                why = "which only a later node computes: a cycle, or out of order" if later else "which is nowhere"
                raise OnnxError(f"{self.model.file}: {frame.place}{node}: it takes {name}, {why}")
            found.append(frame.scope.get(name) if name else None)
        return found

    def node(self, frame: Frame, node: Node) -> None:
        """Convert a node: a call of a function, control flow, a constant, or an op."""
        node = frame.resolved(node)
        function = self.model.functions.get((node.domain, node.type))
        inputs = self.inputs(frame, node)
        call = Call(node, inputs, frame.version(node), self.settings, self.model.file, frame.place)
        try:
            if function is not None:
                made = control.called(self, frame, call, function)
            elif not node.domain and node.type in control.CONTROL:
                made = control.CONTROL[node.type](self, frame, call)
            elif not node.domain and node.type == "Constant":
                made = [self._constant(node, call)]
            elif self.trained and needs_body(call) and (body := body_of(call)) is not None:
                made = control.called(self, frame, call, body)
            else:
                made = self.op(frame, call)
        except ShapeError as error:
            shapes = ", ".join(str(plain(x.shape)) for x in inputs if x is not None and x.items is None)
            raise call.fail(f"{error}{shapes and f'; its inputs have the shapes {shapes}'}"[:600]) from None
        for name, value in zip(node.outputs, made, strict=False):
            if name:
                frame.scope[name] = value

    def _constant(self, node: Node, call: Call) -> Value:
        spec = constant(call)
        held = next((value for value in node.attributes.values() if isinstance(value, Stored)), None)
        name = node.outputs[0] if node.outputs else ""
        nbytes = held.nbytes if held is not None else storage_bytes(spec.dtype, spec.shape)
        stored = Stored(name, spec.shape, spec.dtype, nbytes, spec.contents)
        return self.stored(stored, role_of(stored, self._uses.get(name, set())))

    def op(self, frame: Frame, call: Call) -> list[Value]:
        """Convert a node that is an op."""
        node = call.node
        function = SHAPES.get(node.full_type)
        try:
            made = of_elements(call) if function is None else function(call)
            made = self._unknown(frame, call) if made is None else made
        except _FAILURES as error:
            raise call.fail(f"its shape cannot be told ({type(error).__name__}: {error})"[:300]) from error
        specs = ([made] if isinstance(made, Spec) else list(made))[: len(node.outputs)]
        if any(spec.items is not None for spec in specs):
            return [Value(items=spec.items, name=name) for spec, name in zip(specs, node.outputs, strict=False)]
        return self.emit(frame, call, specs)

    def emit(
        self, frame: Frame, call: Call, specs: Sequence[Spec], name: str = "", **arguments: Argument
    ) -> list[Value]:
        """Append the op of a node with outputs as described; ``name`` is that of the op, by default of the node."""
        self.ops += 1
        if self.ops > MOST_OPS:
            raise OnnxError(f"{self.model.file}: more than {MOST_OPS:,} ops")
        node = call.node
        given = [(i, value) for i, value in enumerate(call.inputs) if value is not None and value.items is None]
        for value in (value for value in call.inputs if value is not None and value.items is not None):
            given += [(len(given), item) for item in value.items or ()]
        places = {i: place for place, (i, _) in enumerate(given)}
        handles = [self.handle(value) for _, value in given]
        names = input_names(node, call.version, [i for i, _ in given])
        outs = []
        for spec in specs:
            shape = self.checked(spec.shape, f"{frame.place}{node}: an output")
            view = None if spec.view_of is None else handles[places[spec.view_of]]
            outs.append(Out(shape, spec.dtype, view_of=view))
        with self.builder.module(*_module(frame, node)):
            made = self.builder.ops(
                name or op_name(node), *handles, outs=outs, names=names,
                arguments={**_arguments(node, set(names)), **arguments}, label=node.name,
            )  # fmt: skip
        values = []
        for spec, handle, output in zip(specs, made, node.outputs, strict=False):
            values.append(Value(handle.shape, handle.dtype, spec.contents, handle, name=output))
        if node.type in PASSES and call.inputs and call.inputs[0] is not None and values:
            values[0].iteration = call.inputs[0].iteration
        return values

    def _unknown(self, frame: Frame, call: Call) -> list[Spec]:
        """Describe the outputs of an op without a shape function: as declared, else like its first input."""
        declared = {port.name: port for port in frame.body.outputs} | dict(frame.body.shapes)
        made = []
        for name in call.node.outputs:
            port = declared.get(name) or Port(name)
            first = next((value for value in call.inputs if value is not None and value.items is None), Value())
            for fact, is_said in (("shape", port.shape is not None), ("dtype", port.dtype)):
                if not is_said:
                    self.settings.guesses[f"{call.node}: {name} is taken to have the {fact} of its first input"] = None
            dims = (
                None
                if port.shape is None
                else [dim_size(self.settings, dim, name, i) for i, dim in enumerate(port.shape)]
            )
            made.append(Spec(first.shape if dims is None else tuple(dims), port.dtype or first.dtype))
        return made


def _module(frame: Frame, node: Node) -> tuple[str, str]:
    """Return the path of the module that a node belongs to, by the names that PyTorch's exporters give, and its class
    (which they do not say)."""
    if node.scopes:
        return frame.path + ".".join(dict.fromkeys(part for part in node.scopes[-2:-1] if part)), ""
    if node.name.startswith("/"):
        return frame.path + ".".join(node.name.strip("/").split("/")[:-1]), ""
    return frame.path.rstrip("."), ""


_LONG = 32


def _arguments(node: Node, taken: set[str]) -> Mapping[str, Argument]:
    """Return the attributes that an op keeps: numbers, texts and short lists of them; of long ones what matters, of
    graphs their names."""
    found: dict[str, Any] = dict(learned(node))
    for key, given in node.attributes.items():
        value = given.name if isinstance(given, Body) else given
        short = isinstance(value, tuple) and len(value) <= _LONG
        if isinstance(value, bool | int | float) or short or (isinstance(value, str) and len(value) <= 200):
            found[f"{key}_" if key in taken else key] = value
    return found


# -- roles ------------------------------------------------------------------------------------------
# The roles of stored tensors: parameters that training changes, and the constants that are none.


QUANTIZED = {
    "DequantizeLinear": (0,), "ConvInteger": (0, 1), "MatMulInteger": (0, 1), "QLinearConv": (3, 8),
    "QLinearMatMul": (0, 3), "MatMulNBits": (1,), "QGemm": (0, 3, 6), "MatMulIntegerToFloat": (0, 1),
    "DynamicQuantizeMatMul": (1,), "DynamicQuantizeLSTM": (1, 2), "QAttention": (1,),
}  # fmt: skip
"""Inputs of quantized ops that are weights, by op type."""

FIXED = {
    "BatchNormalization": (3, 4), "Clip": (1, 2), "Pad": (2,), "Where": (0, 1, 2), "QuantizeLinear": (0, 1, 2),
    "DequantizeLinear": (1, 2), "Resize": (1, 2, 3), "Upsample": (1,), "Pow": (1,), "Expand": (0,), "Range": (0, 1, 2),
    "RotaryEmbedding": (1, 2, 3), "Attention": (3,), "OneHot": (0, 1, 2), "Equal": (0, 1), "Less": (0, 1),
    "Greater": (0, 1), "Dropout": (1, 2), "Cast": (), "QLinearConv": (1, 2, 4, 5, 6, 7),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7), "MatMulNBits": (2, 3), "Trilu": (0, 1), "SoftmaxCrossEntropyLoss": (2,),
    "LSTM": (4, 5, 6), "GRU": (4, 5), "RNN": (4, 5),
    "NegativeLogLikelihoodLoss": (2,), "STFT": (2,), "ScatterND": (0, 1, 2), "MatMulIntegerToFloat": (2, 3, 4, 5),
    "DynamicQuantizeMatMul": (2, 3), "QGemm": (1, 2, 4, 5, 7, 8), "NonMaxSuppression": (2, 3, 4),
}  # fmt: skip
"""Inputs that training does not change, by op type: statistics, bounds, scales, masks, initial states."""


def uses(model: Model) -> dict[str, set[tuple[str, int]]]:
    """Return the ops that take each name of the graph and the graphs inside it, and as which input; of a function what
    its body does with it."""
    of_functions: dict[tuple[str, str], dict[str, set[tuple[str, int]]]] = {}

    def within(body: Body) -> dict[str, set[tuple[str, int]]]:
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for node in body.nodes:
            function = model.functions.get((node.domain, node.type))
            for i, name in enumerate(node.inputs):
                if function is None:
                    found[name].add((node.type, i))
                elif i < len(function.inputs):
                    found[name] |= inside(node.domain, node.type, function)[function.inputs[i].name]
            for value in node.attributes.values():
                if isinstance(value, Body):
                    for name, places in within(value).items():
                        found[name] |= places
        return found

    def inside(domain: str, kind: str, function: Body) -> dict[str, set[tuple[str, int]]]:
        key = (domain, kind)
        if key not in of_functions:
            of_functions[key] = within(function)
        return of_functions[key]

    return within(model.graph)


def role_of(stored: Stored, places: set[tuple[str, int]]) -> Role:
    """Return the role of a stored tensor: a parameter if it is a weight; single numbers and masks
    are none."""
    if is_float(stored.dtype):
        weight = (
            math.prod(stored.shape) > 1 and not stored.masks and any(i not in FIXED.get(kind, ()) for kind, i in places)
        )
    else:
        weight = any(i in QUANTIZED.get(kind, ()) for kind, i in places)
    return Role.PARAMETER if weight else Role.BUFFER
