"""The Graph file: one compressed, versioned, checked file; loading it executes nothing.

Layout: 8 bytes magic, then big-endian version (u16), CRC-32 of the packed data (u32), its length (u64);
then the zlib-compressed MessagePack of the Graph's tables.
"""

from __future__ import annotations

import gc
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import GraphError, GraphFileError
from tensortide.graph.model import (
    TENSOR,
    Branch,
    Call,
    Const,
    Graph,
    Meta,
    Module,
    Named,
    Op,
    Slot,
    Source,
    Storage,
    Tensor,
    Value,
)
from tensortide.graph.validate import validate
from tensortide.write import write_file

MAGIC = b"TIDEGRPH"
VERSION = 1
SUFFIX = ".tide"
_HEADER = struct.Struct(">8sHIQ")
_MAX_BYTES = 1 << 32


class _Tables(msgspec.Struct, array_like=True):
    """The Graph as it is packed: arguments as plain data, everything else as in memory."""

    meta: Meta
    calls: list[tuple[str, list[tuple[str, Any]], int, list[int], Any, list[str]]]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    modules: tuple[Module, ...]
    sources: tuple[Source, ...]
    branches: tuple[Branch, ...]
    named: tuple[Named, ...]


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write ``graph`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    calls = [_pack_call(call) for call in graph.calls]
    parts = (graph.ops, graph.tensors, graph.storages, graph.modules, graph.sources, graph.branches, graph.named)
    packed = msgspec.msgpack.encode(_Tables(graph.meta, calls, *parts))
    header = _HEADER.pack(MAGIC, VERSION, zlib.crc32(packed), len(packed))
    write_file(path, header + zlib.compress(packed, 5))


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a Graph. Raises GraphFileError if the file is missing, foreign, damaged or of another version."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise GraphFileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) < _HEADER.size or data[:8] != MAGIC:
        raise GraphFileError(f"{path} is not a tensortide graph (write one with `tensortide capture TARGET -o FILE`)")
    _, version, crc, length = _HEADER.unpack_from(data)
    if version != VERSION:
        raise GraphFileError(f"{path} has graph format {version}; this release reads {VERSION}: capture it again")
    packed = _decompress(data[_HEADER.size :], length)
    if packed is None or zlib.crc32(packed) != crc:
        raise GraphFileError(f"{path} is damaged (truncated or altered): capture it again")
    try:
        return _unpack(packed)
    except (msgspec.DecodeError, GraphError, TypeError, ValueError) as error:
        raise GraphFileError(f"{path} does not hold a valid graph: {error}") from error


def _decompress(data: bytes, length: int) -> bytes | None:
    if length > _MAX_BYTES:
        return None
    stream = zlib.decompressobj()
    try:
        packed = stream.decompress(data, length + 1)
    except zlib.error:
        return None
    return packed if len(packed) == length and stream.eof and not stream.unused_data else None


def _unpack(packed: bytes) -> Graph:
    collecting = gc.isenabled()
    gc.disable()  # no garbage is made here, and looking for it takes most of the time
    try:
        tables = msgspec.msgpack.decode(packed, type=_Tables)
    finally:
        if collecting:
            gc.enable()
    graph = Graph(
        ops=tables.ops,
        calls=tuple(_unpack_call(*call) for call in tables.calls),
        tensors=tables.tensors,
        storages=tables.storages,
        modules=tables.modules,
        sources=tables.sources,
        branches=tables.branches,
        named=tables.named,
        meta=tables.meta,
    )
    validate(graph)
    return graph


def _pack_call(call: Call) -> tuple[str, list[tuple[str, Any]], int, list[int], Any, list[str]]:
    arguments = [(name, _pack(value)) for name, value in call.arguments]
    return call.op, arguments, call.positional, list(call.mutated), _pack(call.returns), list(call.tags)


def _unpack_call(
    op: str, arguments: list[tuple[str, Any]], positional: int, mutated: list[int], returns: Any, tags: list[str]
) -> Call:
    values = tuple((name, _restore(value)) for name, value in arguments)
    return Call(op, values, positional, tuple(mutated), _restore(returns), tuple(tags))


def _pack(value: Value) -> Any:
    """Plain data for MessagePack: what it cannot hold becomes a one-entry map."""
    if isinstance(value, Slot):
        return {"tensor": None}
    if isinstance(value, Const):
        return {value.kind: value.value}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, tuple):
        return [_pack(item) for item in value]
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return {"int": str(value)}
    return value


def _restore(value: Any) -> Value:
    if isinstance(value, list):
        return tuple(_restore(item) for item in value)
    if isinstance(value, dict):
        [(kind, item)] = value.items()
        if kind == "tensor" and item is None:
            return TENSOR
        if kind == "complex":
            return complex(*item)
        return int(item) if kind == "int" else Const(str(kind), str(item))
    return value  # type: ignore[no-any-return]
