"""MetaGraphs made by hand, written by Google's library from the table that reads them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensortide.importers.tensorflow.optypes import VARIABLES
from tensortide.importers.tensorflow.program import Program
from tensortide.importers.tensorflow.reading.raw import DTYPES, TABLE
from tests.importers import protobuf

message = functools.partial(protobuf.message, TABLE)
NUMBERS = {name: number for number, name in DTYPES.items()}
Dims = Sequence[int] | None


class Shape(tuple[int, ...]):
    """A shape attribute."""


def shape(*dims: int) -> Shape:
    return Shape(dims)


class Func(str):
    """A function attribute."""

    __slots__ = ()


class Dtype(str):
    """A dtype attribute."""

    __slots__ = ()


FLOAT, INT = Dtype("float32"), Dtype("int32")


def _fill_shape(proto: Any, dims: Dims) -> None:
    if dims is None:
        proto.unknown_rank = True
    else:
        proto.SetInParent()
        for dim in dims:
            proto.dim.add(size=dim)


def _fill_attribute(proto: Any, value: Any) -> None:
    match value:
        case bool():
            proto.b = value
        case int():
            proto.i = value
        case float():
            proto.f = value
        case Dtype():
            proto.type = NUMBERS[value]
        case Func():
            proto.func.name = value
        case str():
            proto.s = value.encode()
        case Shape():
            _fill_shape(proto.shape, value)
        case list():
            proto.list.SetInParent()
            for item in value:
                if item is None or isinstance(item, Shape):
                    _fill_shape(proto.list.shape.add(), item)
                elif isinstance(item, Dtype):
                    proto.list.type.append(NUMBERS[item])
                else:
                    proto.list.i.append(item)
        case _:
            proto.tensor.CopyFrom(value)


def tensor(values: Any, dims: Sequence[int] = (), dtype: str = "int32") -> Any:
    proto = message("TensorProto")(dtype=NUMBERS[dtype])
    _fill_shape(proto.tensor_shape, dims)
    items = values if isinstance(values, Iterable) else [values]
    (proto.int_val if dtype == "int32" else proto.float_val).extend(items)
    return proto


def _node(proto: Any, name: str, kind: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
    proto.name, proto.op = name, kind
    proto.input.extend(inputs)
    for key, value in attributes.items():
        entry = proto.attr.add(key=key)
        _fill_attribute(entry.value, value)


class Graph:
    """A MetaGraph under construction; every method that adds a node returns its name."""

    def __init__(self) -> None:
        self.meta = message("MetaGraphDef")()

    def node(self, name: str, kind: str, *inputs: str, **attributes: Any) -> str:
        _node(self.meta.graph_def.node.add(), name, kind, inputs, attributes)
        return name

    def feed(self, name: str, *dims: int, dtype: Dtype = FLOAT) -> str:
        return self.node(name, "Placeholder", dtype=dtype, shape=Shape(dims), _output_shapes=[Shape(dims)])

    def variable(self, name: str, *dims: int) -> str:
        self.node(name, "VariableV2", dtype=FLOAT, shape=Shape(dims))
        definition = message("VariableDef")(variable_name=f"{name}:0", initializer_name=f"{name}/Assign")
        for key in ("variables", "trainable_variables"):
            self._collection(key).value.bytes_list.value.append(definition.SerializeToString())
        return name

    def const(self, name: str, *values: int, control: str = "") -> str:
        """A vector of whole numbers."""
        return self._const(name, tensor(values, (len(values),)), control)

    def scalar(self, name: str, value: int, control: str = "") -> str:
        return self._const(name, tensor(value), control)

    def _const(self, name: str, value: Any, control: str) -> str:
        return self.node(name, "Const", *([f"^{control}"] if control else []), dtype=INT, value=value)

    def _collection(self, key: str) -> Any:
        for entry in self.meta.collection_def:
            if entry.key == key:
                return entry
        return self.meta.collection_def.add(key=key)

    def train(self, *names: str) -> None:
        self._collection("train_op").value.node_list.value.extend(names)

    def function(
        self, name: str, arguments: Sequence[str], results: Mapping[str, str],
        nodes: Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]],
    ) -> None:  # fmt: skip
        proto = self.meta.graph_def.library.function.add()
        proto.signature.name = name
        for argument in arguments:
            proto.signature.input_arg.add(name=argument)
        for result, source in results.items():
            proto.signature.output_arg.add(name=result)
            proto.ret.add(key=result, value=source)
        for node in nodes:
            _node(proto.node_def.add(), *node)

    def data(self) -> bytes:
        result: bytes = self.meta.SerializeToString()
        return result


def underived(program: Program) -> tuple[str, ...]:
    """Symbols of sizes and trips that nothing tells."""
    return tuple(sorted(name for name in program.hints if "::dim_" in name or name.startswith("trips(")))


def variables(program: Program) -> tuple[str, ...]:
    """Names of the variables of a program."""
    return tuple(node.name for node in program.nodes if node.type in VARIABLES)


def counted_loop(
    graph: Graph,
    scope: str,
    bound: str,
    states: Sequence[str],
    body: Any,
    *,
    around: str = "",
    invariants: Sequence[str] = (),
) -> list[str]:
    """A while loop of control flow v1 that counts from 0 to ``bound``; ``body(names of states, names of invariants)``
    returns the new states. ``around`` is a node of the loop it is in. Returns the exits; the counter's is the first."""
    frame = f"{scope}/frame"
    start = graph.scalar(f"{scope}/start", 0, control=around)
    merges, enters = [], []
    for i, source in enumerate([start, *states]):
        graph.node(f"{scope}/Enter_{i}", "Enter", source, frame_name=frame, is_constant=False, T=FLOAT if i else INT)
        merges.append(
            graph.node(f"{scope}/Merge_{i}", "Merge", f"{scope}/Enter_{i}", f"{scope}/Next_{i}", T=FLOAT if i else INT)
        )
    for i, source in enumerate([bound, *invariants]):
        enters.append(
            graph.node(f"{scope}/Const_{i}", "Enter", source, frame_name=frame, is_constant=True, T=FLOAT if i else INT)
        )
    graph.node(f"{scope}/Less", "Less", merges[0], enters[0], T=INT)
    graph.node(f"{scope}/Cond", "LoopCond", f"{scope}/Less")
    inside = []
    for i, merge in enumerate(merges):
        graph.node(f"{scope}/Switch_{i}", "Switch", merge, f"{scope}/Cond", T=FLOAT if i else INT)
        inside.append(graph.node(f"{scope}/Identity_{i}", "Identity", f"{scope}/Switch_{i}:1", T=FLOAT if i else INT))
    one = graph.scalar(f"{scope}/one", 1, control=inside[0])
    counted = graph.node(f"{scope}/count", "Add", inside[0], one, T=INT)
    for i, source in enumerate([counted, *body(inside[1:], enters[1:])]):
        graph.node(f"{scope}/Next_{i}", "NextIteration", source, T=FLOAT if i else INT)
    return [
        graph.node(f"{scope}/Exit_{i}", "Exit", f"{scope}/Switch_{i}", T=FLOAT if i else INT)
        for i in range(1 + len(states))
    ]
