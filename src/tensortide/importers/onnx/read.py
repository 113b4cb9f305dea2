"""An ONNX file as plain data: nodes with attributes, stored tensors without their bytes, functions.

Nothing is executed, and no file but the model itself is opened: of external data the sizes are enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tensortide import dtypes
from tensortide.dtypes import numbered, storage_bytes
from tensortide.errors import MissingExtra
from tensortide.gzipped import contents
from tensortide.importers.onnx.value import FEW, MOST_DIMS, Contents, OnnxError

LARGEST_FILE = 1 << 31
"""Bytes of the largest message that protobuf reads."""
OLDEST, NEWEST = 7, 28
"""Opsets of the standard domain that are read."""
STANDARD = ("", "ai.onnx")
DEEPEST = 40
"""Most graphs inside one another."""

DTYPES = numbered("onnx")
_FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data", 12: "uint64_data", 13: "uint64_data"}
_NUMPY = {
    number: f"<{code}"
    for number, name in DTYPES.items()
    if (code := dtypes.DTYPES[name].numpy) and dtypes.kind_of(name) is not dtypes.Kind.COMPLEX
}
"""Dtypes whose contents are read, as NumPy has them."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in the file: its shape and dtype, the bytes that it takes there, and the contents if they are few.
    ``masks``: there are infinite numbers among its first elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    contents: Contents | None = None
    masks: bool = False


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a graph as declared. Dimensions are numbers, names, or None; no shape: it is not known.
    ``kind``: ``tensor``, ``sequence``, ``optional`` or ``other``; ``dtype`` is empty where it is not said."""

    name: str
    kind: str = "tensor"
    dtype: str = ""
    shape: tuple[int | str | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """An attribute of a node in a function that is an attribute of the call."""

    name: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``domain`` is empty for the standard one; omitted inputs have empty names."""

    type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    scopes: tuple[str, ...] = ()

    @property
    def full_type(self) -> str:
        """Op type with its domain."""
        return f"{self.domain}::{self.type}" if self.domain else self.type

    def __str__(self) -> str:
        return f"node {self.name or self.outputs[0] if self.outputs else '?'} ({self.full_type})"


@dataclass(frozen=True, slots=True)
class Body:
    """A graph, or the body of a function (whose inputs and outputs are names alone)."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    stored: tuple[Stored, ...] = ()
    shapes: Mapping[str, Port] = field(default_factory=dict)
    opsets: Mapping[str, int] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Model:
    """A whole file. ``functions`` by domain and name; those of an overload have its name appended."""

    file: str
    graph: Body
    functions: Mapping[tuple[str, str], Body]
    opsets: Mapping[str, int]
    producer: str


def read_model(path: Path) -> Model:
    """Read the model at ``path``. Raises OnnxError."""
    if path.is_file() and path.stat().st_size >= LARGEST_FILE:
        raise OnnxError(f"{path}: 2 GiB or more are no ONNX file: store the weights as external data")
    return model_of(message_of(contents(path, OnnxError, unpack=False), str(path)), str(path))


def message_of(data: bytes, file: str) -> Any:
    """Decode the bytes of a model."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MissingExtra(
            f"{file} is an ONNX model, which needs the package onnx: pip install 'tensortide[onnx]'"
        ) from None
    try:
        return onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError, MemoryError, ValueError) as error:
        raise OnnxError(f"{file}: no ONNX model, or a damaged one ({error})") from None


def model_of(message: Any, file: str) -> Model:
    """Convert a ModelProto. Raises OnnxError for what is damaged or of an opset that is not read."""
    reader = _Reader(file)
    opsets = reader.opsets(message.opset_import)
    if "" not in opsets and not opsets:
        raise OnnxError(f"{file}: it names no opset")
    functions = {}
    for function in message.functions:
        body = reader.function(function, opsets)
        kind = _text(function.name) + f":{_text(function.overload)}" * bool(function.overload)
        key = _domain(_text(function.domain)), kind
        if key in functions:
            raise OnnxError(f"{file}: there are two functions {'::'.join(filter(None, key))}")
        functions[key] = body
    graph = reader.graph(message.graph, 0)
    producer = " ".join(filter(None, (_text(message.producer_name), _text(message.producer_version))))
    return Model(file, graph, functions, opsets, producer)


def function_of(message: Any, file: str, defaults: Sequence[Any]) -> Body:
    """Convert a FunctionProto with ``defaults`` of its attributes. Raises OnnxError for what is damaged."""
    reader = _Reader(file)
    found = {_text(entry.name): reader.attribute(entry, 0) for entry in defaults}
    return replace(reader.function(message, {}), defaults=found)


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _text(text: str | bytes) -> str:
    """Return a text; bytes that are not UTF-8 are shown as escapes."""
    return text.decode(errors="backslashreplace") if isinstance(text, bytes) else text


class _Reader:
    def __init__(self, file: str) -> None:
        self.file = file

    def opsets(self, imports: Any) -> dict[str, int]:
        found = {_domain(_text(entry.domain)): entry.version for entry in imports}
        version = found.get("", NEWEST)
        if not OLDEST <= version <= NEWEST:
            raise OnnxError(
                f"{self.file}: opset {version} of the standard ops; those from {OLDEST} to {NEWEST} are read"
            )
        return found

    def graph(self, message: Any, depth: int) -> Body:
        if depth > DEEPEST:
            raise OnnxError(f"{self.file}: graph {message.name}: more than {DEEPEST} graphs inside one another")
        stored = [self.tensor(tensor) for tensor in message.initializer]
        stored += [self.sparse(tensor) for tensor in message.sparse_initializer]
        shapes = {port.name: port for port in map(self.port, message.value_info)}
        return Body(
            _text(message.name),
            tuple(self.node(node, depth) for node in message.node),
            tuple(map(self.port, message.input)),
            tuple(map(self.port, message.output)),
            tuple(stored),
            shapes,
        )

    def function(self, message: Any, opsets: Mapping[str, int]) -> Body:
        return Body(
            _text(message.name),
            tuple(self.node(node, 0) for node in message.node),
            tuple(Port(_text(name)) for name in message.input),
            tuple(Port(_text(name)) for name in message.output),
            opsets={**opsets, **self.opsets(message.opset_import)},
            defaults={_text(entry.name): self.attribute(entry, 0) for entry in message.attribute_proto},
        )

    def node(self, message: Any, depth: int) -> Node:
        kind = _text(message.op_type) + (f":{_text(message.overload)}" if message.overload else "")
        scopes: tuple[str, ...] = ()
        for entry in message.metadata_props:
            if entry.key == "pkg.torch.onnx.name_scopes":
                scopes = tuple(part.strip(" '\"") for part in _text(entry.value).strip("[]").split(","))[:DEEPEST]
        return Node(
            kind,
            _domain(_text(message.domain)),
            _text(message.name),
            tuple(map(_text, message.input)),
            tuple(map(_text, message.output)),
            {_text(entry.name): self.attribute(entry, depth) for entry in message.attribute},
            scopes,
        )

    def attribute(self, message: Any, depth: int) -> Any:
        if message.ref_attr_name:
            return Reference(_text(message.ref_attr_name))
        simple = {1: "f", 2: "i"}
        several = {6: "floats", 7: "ints"}
        if message.type in simple:
            return getattr(message, simple[message.type])
        if message.type in several:
            return tuple(getattr(message, several[message.type]))
        if message.type == 3:
            return _text(message.s)
        if message.type == 8:
            return tuple(map(_text, message.strings))
        if message.type == 4:
            return self.tensor(message.t)
        if message.type == 11:
            return self.sparse(message.sparse_tensor)
        if message.type == 5:
            return self.graph(message.g, depth + 1)
        return None  # lists of graphs, tensors and types: no op of the standard has them

    def port(self, message: Any) -> Port:
        kind = message.type.WhichOneof("value")
        inner, name = message.type, {"tensor_type": "tensor", "sequence_type": "sequence", "optional_type": "optional"}
        for _ in range(4):
            which = inner.WhichOneof("value")
            if which not in ("sequence_type", "optional_type"):
                break
            inner = getattr(inner, which).elem_type
        which = inner.WhichOneof("value")
        if which not in ("tensor_type", "sparse_tensor_type"):
            return Port(_text(message.name), name.get(kind, "other"))
        tensor = getattr(inner, which)
        if tensor.elem_type and tensor.elem_type not in DTYPES:
            raise OnnxError(f"{self.file}: {message.name} has the unknown dtype {tensor.elem_type}")
        dtype = DTYPES.get(tensor.elem_type, "")
        shape = tuple(map(self.dim, tensor.shape.dim)) if tensor.HasField("shape") else None
        if shape is not None and len(shape) > MOST_DIMS:
            raise OnnxError(f"{self.file}: {message.name} has {len(shape)} dimensions, more than {MOST_DIMS}")
        return Port(_text(message.name), name.get(kind, "tensor"), dtype, shape)

    def dim(self, message: Any) -> int | str | None:
        which = message.WhichOneof("value")
        if which == "dim_param":
            return _text(message.dim_param) or None
        return int(message.dim_value) if which == "dim_value" and message.dim_value >= 0 else None

    def sparse(self, message: Any) -> Stored:
        """A sparse tensor: it takes the bytes of its values and indices."""
        values, indices = self.tensor(message.values), self.tensor(message.indices)
        shape = self.shape(message.dims, values.name)
        return Stored(values.name, shape, values.dtype, values.nbytes + indices.nbytes)

    def shape(self, dims: Any, name: str) -> tuple[int, ...]:
        shape = tuple(dims)
        if len(shape) > MOST_DIMS or min(shape, default=0) < 0:
            raise OnnxError(f"{self.file}: the stored tensor {name} has the shape {shape[:MOST_DIMS]}")
        return shape

    def tensor(self, message: Any) -> Stored:
        shape, kind = self.shape(message.dims, message.name), message.data_type
        if kind not in DTYPES:
            raise OnnxError(f"{self.file}: the stored tensor {message.name} has the unknown dtype {kind}")
        count = math.prod(shape)
        nbytes = storage_bytes(DTYPES[kind], shape)
        contents = self.contents(message, shape, count) if count <= FEW and message.data_location != 1 else None
        return Stored(_text(message.name), shape, DTYPES[kind], nbytes, contents, _masks(message))

    def contents(self, message: Any, shape: tuple[int, ...], count: int) -> Contents | None:
        """Contents of a small tensor; None where they are of another kind or another number than its shape says."""
        kind = message.data_type
        if kind not in _NUMPY:
            return None
        if message.HasField("raw_data"):
            if len(message.raw_data) != count * np.dtype(_NUMPY[kind]).itemsize:
                raise OnnxError(f"{self.file}: the stored tensor {message.name} has {len(message.raw_data)} bytes, "
                                f"which is not what its shape {shape} takes")  # fmt: skip
            found = np.frombuffer(message.raw_data, _NUMPY[kind]).tolist()
        else:
            if kind == 10:
                return None
            found = list(getattr(message, _FIELDS.get(kind, "int32_data")))
            if len(found) != count:
                return None
        flat = np.empty(count, object)
        flat[:] = list(map(bool, found)) if DTYPES[kind] == "bool" else found
        return flat.reshape(shape)


def _masks(message: Any) -> bool:
    """Tell whether the first elements of a tensor of numbers have infinite ones."""
    if message.data_type not in (1, 10, 11):
        return False
    kind = np.dtype(_NUMPY[message.data_type])
    data = message.raw_data[: FEW * kind.itemsize]
    listed = message.float_data[:FEW] if message.data_type == 1 else ()
    first = np.frombuffer(data[: len(data) // kind.itemsize * kind.itemsize], kind) if data else np.array(listed)
    return bool(np.isinf(first).any())
