"""A MetaGraphDef as it is stored: nodes by name with plain attributes, collections, variables, library functions.

Nothing is interpreted yet, and nothing is checked against a registry of ops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensortide.dtypes import numbered, unpacked
from tensortide.gzipped import GzipError, contents, unpack_gzip
from tensortide.importers.protobuf import BYTES, Schema, WireError, tagged
from tensortide.importers.tensorflow.program import Attribute, Constant, MetaGraphError

FEW = 512
"""Stored tensors of up to so many elements keep their values."""

DTYPES = numbered("tensorflow")
"""TensorFlow's DataType numbers; a reference to a dtype has its number plus 100."""

_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int32": "int_val", "uint8": "int_val", "int16": "int_val",
    "int8": "int_val", "uint16": "int_val", "int64": "int64_val", "bool": "bool_val", "uint32": "uint32_val",
    "uint64": "uint64_val", "string": "string_val",
}  # fmt: skip
"""Fields of a TensorProto for values that are not in ``tensor_content``."""


@dataclass(slots=True, eq=False)
class RawNode:
    """One NodeDef. ``inputs`` are names with output numbers, ``control`` names."""

    name: str
    type: str
    inputs: list[tuple[str, int]]
    control: list[str]
    attributes: dict[str, Attribute]


@dataclass(slots=True)
class RawGraph:
    """The whole file. ``variables`` says which are trained, ``initializers`` are their assignments, ``maxima`` the
    tensors that bound the trips of while loops, ``functions`` FunctionDef messages by name."""

    file: str
    nodes: dict[str, RawNode] = field(default_factory=dict)
    collections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: dict[str, bool] = field(default_factory=dict)
    initializers: set[str] = field(default_factory=set)
    maxima: dict[str, str] = field(default_factory=dict)
    functions: Mapping[str, Any] = field(default_factory=dict)
    version: str = ""

    def fail(self, text: str, node: str = "") -> MetaGraphError:
        """Return the error to raise for something wrong in this file."""
        return MetaGraphError(f"{self.file}: {f'node {node}: ' if node else ''}{text}")


def node_name(tensor: str) -> str:
    """Return the node of a tensor or control name: ``^a/b`` and ``a/b:1`` are outputs of ``a/b``."""
    return reference(tensor.removeprefix("^"))[0]


def reference(tensor: str) -> tuple[str, int]:
    """``name:output`` in two; output 0 is not written."""
    name, colon, output = tensor.rpartition(":")
    return (name, int(output)) if colon and output.isdecimal() else (tensor, 0)


def load(source: str | Path | bytes) -> RawGraph:
    """Load the MetaGraphDef in a file or in bytes, compressed with gzip or not. A bare GraphDef is read too.

    Raises MetaGraphError for a file that is unreadable, damaged or something else.
    """
    file = "<bytes>" if isinstance(source, bytes) else str(source)
    data = content(source, file)
    if data[:1] in b"{[" or b"node {" in data[:4096] or b"meta_info_def {" in data[:4096]:
        raise MetaGraphError(f"{file}: this is text (JSON or pbtxt); a binary MetaGraphDef (.meta or .pb) is expected")
    decode_error, meta = _parsed(data)
    if meta is None:
        raise MetaGraphError(f"{file}: no MetaGraphDef, or a damaged one ({decode_error})")
    return raw_graph(file, meta)


def content(source: str | Path | bytes, file: str) -> bytes:
    """Return the bytes of a file, unpacked. Raises MetaGraphError for one that cannot be read."""
    if not isinstance(source, bytes):
        return contents(source, MetaGraphError)
    try:
        return unpack_gzip(source)
    except GzipError as error:
        raise MetaGraphError(f"{file}: {error}") from None


def wrapped(graph: bytes) -> bytes:
    """Return the MetaGraphDef that has a GraphDef alone."""
    return tagged(2, BYTES, graph)


def _parsed(data: bytes) -> tuple[str, Any]:
    """Return why it cannot be read, or the MetaGraphDef with nodes; a GraphDef is put into one."""
    reason = ""
    for message in (data, wrapped(data)):
        try:
            meta = SCHEMA.read("MetaGraphDef", message)
        except WireError as error:
            reason = reason or str(error)
            continue
        if meta.graph_def.node and all(node.name and node.op for node in meta.graph_def.node):
            return "", meta
    return reason or "it has no nodes", None


def raw_graph(file: str, meta: Any) -> RawGraph:
    """Decode a MetaGraphDef message. Raises MetaGraphError for two nodes of one name."""
    graph = RawGraph(file, version=meta.meta_info_def.tensorflow_version)
    for definition in meta.graph_def.node:
        if definition.name in graph.nodes:
            raise graph.fail("two nodes have this name", definition.name)
        graph.nodes[definition.name] = raw_node(definition)
    graph.functions = {f.signature.name: f for f in meta.graph_def.library.function}
    for entry in meta.collection_def:
        graph.collections[entry.key] = tuple(entry.value.node_list.value)
        for data in entry.value.bytes_list.value:
            _collect(graph, entry.key, data)
    return graph


def raw_node(definition: Any, given: Mapping[str, Attribute] = MappingProxyType({})) -> RawNode:
    """Decode a NodeDef message. ``given`` are the attributes of a call: a function's body refers to them by name."""
    attributes = {
        entry.key: given.get(entry.value.placeholder) if entry.value.placeholder else _attribute(entry.value)
        for entry in definition.attr
    }
    inputs = [reference(name) for name in definition.input if not name.startswith("^")]
    control = [name[1:] for name in definition.input if name.startswith("^")]
    return RawNode(definition.name, definition.op, inputs, control, attributes)


def _collect(graph: RawGraph, key: str, data: bytes) -> None:
    """Read a serialized definition of a collection, if it is of a kind that is known."""
    try:
        if key == "while_context":
            context = SCHEMA.read("WhileContextDef", data)
            graph.maxima[context.context_name] = context.maximum_iterations_name
        elif key.endswith("variables") or key == "global_step":
            variable = SCHEMA.read("VariableDef", data)
            name = node_name(variable.variable_name)
            if name in graph.nodes:
                trained = key == "trainable_variables" or variable.trainable
                graph.variables[name] = graph.variables.get(name, False) or trained
                graph.initializers.add(node_name(variable.initializer_name))
    except WireError:
        pass  # a collection of the user's own: bytes that only they can read


def dtype_name(number: int) -> str:
    """Return the name of a DataType number; references are their base types, and runtimes do not pack."""
    found = DTYPES.get(number % 100, f"dtype{number}")
    return unpacked(found)


def _attribute(value: Any) -> Attribute:
    """Decode an AttrValue."""
    field = value.which
    if field in _READERS:
        return _READERS[field](getattr(value, field))
    if field != "list":
        return None
    for name, items in value.list.items():
        return tuple(map(_READERS[name], items))
    return ()


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def constant_of(tensor: Any) -> Constant:
    """Decode a TensorProto; its values only where they are few and numbers or bytes."""
    dtype, shape = dtype_name(tensor.dtype), tuple(dim.size for dim in tensor.tensor_shape.dim)
    count = math.prod(shape)
    return Constant(dtype, shape, _values(tensor, dtype, count) if 0 <= count <= FEW else None)


def _values(tensor: Any, dtype: str, count: int) -> tuple[Any, ...] | None:
    if tensor.tensor_content:
        if dtype not in _FIELDS or dtype == "string":
            return None
        import numpy as np

        width = np.dtype(dtype).itemsize
        if len(tensor.tensor_content) != count * width:
            return None
        return tuple(np.frombuffer(tensor.tensor_content, np.dtype(dtype).newbyteorder("<")).tolist())
    stored = tuple(getattr(tensor, _FIELDS[dtype])) if dtype in _FIELDS else ()
    if dtype not in _FIELDS or len(stored) > count:
        return None
    if not stored:
        stored = (b"",) if dtype == "string" else (0,)
    return stored + stored[-1:] * (count - len(stored)) if count else ()


_READERS: dict[str, Callable[[Any], Attribute]] = {
    "type": dtype_name,
    "i": int,
    "b": bool,
    "s": _text,
    "shape": lambda shape: None if shape.unknown_rank else tuple(dim.size for dim in shape.dim),
    "tensor": constant_of,
    "f": float,
    "func": lambda func: str(func.name),
}


# --- messages ------------------------------------------------------------------------------------------

TABLE = """
MetaGraphDef: MetaInfoDef meta_info_def=1, GraphDef graph_def=2, CollectionEntry* collection_def=4,
    SignatureEntry* signature_def=5, SavedObjectGraph object_graph_def=7
MetaInfoDef: string* tags=4, string tensorflow_version=5
SavedModel: int64 saved_model_schema_version=1, MetaGraphDef* meta_graphs=2
SignatureEntry: string key=1, SignatureDef value=2
SignatureDef: TensorEntry* inputs=1, TensorEntry* outputs=2
TensorEntry: string key=1, TensorInfo value=2
TensorInfo: string name=1
SavedObjectGraph: SavedObject* nodes=1, ConcreteEntry* concrete_functions=2
SavedObject: SavedVariable| variable=7
SavedVariable: bool trainable=3, string name=6
ConcreteEntry: string key=1, SavedConcreteFunction value=2
SavedConcreteFunction: int32* bound_inputs=2
CollectionEntry: string key=1, CollectionDef value=2
CollectionDef: NodeList node_list=1, BytesList bytes_list=2
NodeList: string* value=1
BytesList: bytes* value=1
GraphDef: NodeDef* node=1, FunctionDefLibrary library=2
NodeDef: string name=1, string op=2, string* input=3, AttrEntry* attr=5
AttrEntry: string key=1, AttrValue value=2
AttrValue: ListValue| list=1, bytes| s=2, int64| i=3, float| f=4, bool| b=5, int32| type=6, TensorShapeProto| shape=7,
    TensorProto| tensor=8, string| placeholder=9, NameAttrList| func=10
ListValue: bytes* s=2, int64* i=3, float* f=4, bool* b=5, int32* type=6, TensorShapeProto* shape=7,
    TensorProto* tensor=8, NameAttrList* func=9
NameAttrList: string name=1
TensorShapeProto: Dim* dim=2, bool unknown_rank=3
Dim: int64 size=1
TensorProto: int32 dtype=1, TensorShapeProto tensor_shape=2, bytes tensor_content=4,
    float* float_val=5, double* double_val=6, int32* int_val=7, bytes* string_val=8, int64* int64_val=10,
    bool* bool_val=11, uint32* uint32_val=16, uint64* uint64_val=17
FunctionDefLibrary: FunctionDef* function=1
FunctionDef: OpDef signature=1, NodeDef* node_def=3, ReturnEntry* ret=4, ReturnEntry* control_ret=6
ReturnEntry: string key=1, string value=2
OpDef: string name=1, ArgDef* input_arg=2, ArgDef* output_arg=3
ArgDef: string name=1
VariableDef: string variable_name=1, string initializer_name=2, bool trainable=7
WhileContextDef: string context_name=1, string maximum_iterations_name=11
"""

SCHEMA = Schema(TABLE)
