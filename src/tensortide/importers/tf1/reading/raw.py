"""A MetaGraphDef as it is stored: nodes by name, collections, variables, while contexts, library functions.

Nothing is interpreted yet, and nothing is checked against a registry of ops.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tensortide.importers.tf1.program import Attribute, MetaGraphError
from tensortide.importers.tf1.reading.attributes import attribute
from tensortide.importers.tf1.reading.proto import message

__all__ = ["RawGraph", "RawNode", "Variable", "WhileContext", "load", "node_name", "reference"]

GZIP_MAGIC = b"\x1f\x8b"


@dataclass(slots=True, eq=False)
class RawNode:
    """One NodeDef. ``inputs`` are names with output numbers, ``control`` names."""

    name: str
    type: str
    inputs: list[tuple[str, int]]
    control: list[str]
    attributes: dict[str, Attribute]


@dataclass(frozen=True, slots=True)
class Variable:
    """A VariableDef: names of the variable op, of its initializing assignment, whether it is trained."""

    name: str
    initializer: str
    trainable: bool | None


@dataclass(frozen=True, slots=True)
class WhileContext:
    """The used parts of a WhileContextDef: its frame, the node that ends the condition, the tensor that bounds its
    trips."""

    name: str
    pivot: str
    maximum: str


@dataclass(slots=True)
class RawGraph:
    """The whole file. ``functions`` are FunctionDef messages by name."""

    file: str
    nodes: dict[str, RawNode]
    collections: dict[str, tuple[str, ...]] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    contexts: dict[str, WhileContext] = field(default_factory=dict)
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
    data = _content(source, file)
    if data[:1] in b"{[" or b"node {" in data[:4096] or b"meta_info_def {" in data[:4096]:
        raise MetaGraphError(f"{file}: this is text (JSON or pbtxt); a binary MetaGraphDef (.meta or .pb) is expected")
    decode_error, meta = _parsed(data)
    if meta is None:
        raise MetaGraphError(f"{file}: no MetaGraphDef, or a damaged one ({decode_error})")
    return _raw(file, meta)


def _content(source: str | Path | bytes, file: str) -> bytes:
    try:
        data = source if isinstance(source, bytes) else Path(source).read_bytes()
        return gzip.decompress(data) if data.startswith(GZIP_MAGIC) else data
    except OSError as error:  # gzip.BadGzipFile is one
        raise MetaGraphError(f"{file}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise MetaGraphError(f"{file}: damaged gzip data: {error}") from None


def _parsed(data: bytes) -> tuple[str, Any]:
    """Return why it cannot be read, or the MetaGraphDef with nodes; a GraphDef is put into one."""
    try:
        from google.protobuf.message import DecodeError
    except ImportError:
        raise MetaGraphError("MetaGraphs are read with protobuf: pip install 'tensortide[metagraph]'") from None

    reason = "it has no nodes"
    for wrapped in (False, True):
        try:
            meta = message("MetaGraphDef")()
            if wrapped:
                meta.graph_def.ParseFromString(data)
            else:
                meta.ParseFromString(data)
        except DecodeError as error:
            reason = str(error)
            continue
        if meta.graph_def.node and all(node.name and node.op for node in meta.graph_def.node):
            return "", meta
    return reason, None


def _raw(file: str, meta: Any) -> RawGraph:
    graph = RawGraph(file, {}, version=meta.meta_info_def.tensorflow_version)
    for definition in meta.graph_def.node:
        if definition.name in graph.nodes:
            raise graph.fail("two nodes have this name", definition.name)
        graph.nodes[definition.name] = raw_node(definition)
    graph.functions = {f.signature.name: f for f in meta.graph_def.library.function}
    for entry in meta.collection_def:
        _collect(graph, entry.key, entry.value)
    return graph


def raw_node(definition: Any, given: Mapping[str, Attribute] = MappingProxyType({})) -> RawNode:
    """Decode a NodeDef message. ``given`` are the attributes of a call: a function's body refers to them by name."""
    inputs: list[tuple[str, int]] = []
    control: list[str] = []
    for name in definition.input:
        if name.startswith("^"):
            control.append(name[1:])
        else:
            inputs.append(reference(name))
    attributes = {
        entry.key: given.get(entry.value.placeholder) if entry.value.placeholder else attribute(entry.value)
        for entry in definition.attr
    }
    return RawNode(definition.name, definition.op, inputs, control, attributes)


def _collect(graph: RawGraph, key: str, value: Any) -> None:
    """Read one collection: names as they are, serialized definitions of the kinds that are known."""
    from google.protobuf.message import DecodeError

    names = list(value.node_list.value)
    for data in value.bytes_list.value:
        try:
            if key == "while_context":
                context = message("WhileContextDef").FromString(data)
                maximum = context.maximum_iterations_name
                graph.contexts[context.context_name] = WhileContext(
                    context.context_name, node_name(context.pivot_name), maximum
                )
                names.append(context.context_name)
            elif key.endswith("variables") or key == "global_step":
                names += _variable(graph, key, message("VariableDef").FromString(data))
        except DecodeError:
            continue  # a collection of the user's own: bytes that only they can read
    graph.collections[key] = tuple(names)


def _variable(graph: RawGraph, key: str, definition: Any) -> Iterable[str]:
    name = node_name(definition.variable_name)
    if name not in graph.nodes:
        return ()
    trainable = definition.trainable if definition.HasField("trainable") else None
    if key == "trainable_variables":
        trainable = True
    known = graph.variables.get(name)
    if known is None or trainable:
        graph.variables[name] = Variable(name, node_name(definition.initializer_name), trainable)
    return (name,)
