"""The Graph file: one compressed, versioned, checked file; loading it executes nothing.

Layout: 8 bytes magic, then big-endian version (u16), CRC-32 of the packed data (u32), its length (u64);
then the zlib-compressed MessagePack of the Graph's tables.
"""

from __future__ import annotations

import itertools
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

import msgspec

from tensortide.collector import no_collection
from tensortide.errors import GraphFileError
from tensortide.expr import Size, sized
from tensortide.expr.parse import from_plain, to_plain
from tensortide.graph.composites import Composite, Composites
from tensortide.graph.model import (
    TENSOR,
    Branch,
    Call,
    Const,
    Graph,
    Loop,
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
from tensortide.graph.validate import require_graph, validate
from tensortide.versioned import Format
from tensortide.write import write_file

MAGIC = b"TIDEGRPH"
FORMAT = Format(
    *("graph", MAGIC.decode(), (1, 2, 3), GraphFileError, "capture it again"),
    source="write one with `tensortide capture TARGET -o FILE`",
)
SUFFIX = ".tide"
_HEADER = struct.Struct(">8sHIQ")
_SMALL_BYTES, _MOST_RATIO = 1 << 20, 16
"""Size up to which data may be packed at any ratio, and the largest ratio of larger data. Graphs of real steps are
compressed to a fifth; a file that claims much more is refused before anything is unpacked, as a byte of packed data may
become 64 bytes of objects."""


_PackedCall: TypeAlias = tuple[str, list[tuple[str, Any]], int, list[int], Any, list[str]]


class _Tables(msgspec.Struct, array_like=True):
    """The Graph as it is packed: arguments as plain data, everything else as in memory.

    Sizes are packed as numbers. ``expressions`` are what they carry; ``sized`` says which number, counted over those
    of all tensors, storages and loops in order, carries which. Files of version 1 end with ``named``,
    those of version 2 with ``sized``.
    """

    meta: Meta
    calls: list[_PackedCall]
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    storages: tuple[Storage, ...]
    modules: tuple[Module, ...]
    sources: tuple[Source, ...]
    branches: tuple[Branch, ...]
    named: tuple[Named, ...]
    loops: tuple[Loop, ...] = ()
    expressions: list[Any] = []
    sized: list[tuple[int, int]] = []
    composites: tuple[list[_PackedCall], tuple[Composite, ...]] | None = None


T = TypeVar("T", Graph, _Tables)
_SHARED = [name for name in Graph.__struct_fields__ if name not in ("calls", "composites")]


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write ``graph`` to ``path``, all or nothing. Raises OutputError if it cannot be written."""
    require_graph(graph, "save")
    made, numbers = graph.composites, list(_numbers(graph))
    sizes = [(i, number.expr) for i, number in enumerate(numbers) if isinstance(number, Size)]
    expressions = {expr: i for i, expr in enumerate(dict.fromkeys(expr for _, expr in sizes))}
    plain = _with_numbers(graph, map(int, numbers)) if sizes else graph
    tables = _Tables(
        calls=_packed(graph.calls),
        composites=None if made is None else (_packed(made.calls), made.runs),
        expressions=[to_plain(expr) for expr in expressions],
        sized=[(i, expressions[expr]) for i, expr in sizes],
        **{name: getattr(plain, name) for name in _SHARED},
    )
    packed = msgspec.msgpack.encode(tables)
    header = _HEADER.pack(MAGIC, FORMAT.version, zlib.crc32(packed), len(packed))
    compressed = zlib.compress(packed, 5)
    if not _plausible(len(packed), len(compressed)):
        compressed = zlib.compress(packed, 0)
    write_file(path, header + compressed, replaces=SUFFIX)


def load(path: str | os.PathLike[str]) -> Graph:
    """Read a Graph. Raises GraphFileError if the file is missing, foreign, damaged or of another version."""
    data = FORMAT.read(path)
    if len(data) < _HEADER.size:
        raise FORMAT.foreign(path)
    tag, version, crc, length = _HEADER.unpack_from(data)
    FORMAT.check(path, tag.decode("latin-1"), version)
    packed = _decompress(memoryview(data)[_HEADER.size :], length)
    if packed is None or zlib.crc32(packed) != crc:
        raise FORMAT.damaged(path)
    return FORMAT.decode(path, lambda: _unpack(packed))


def _plausible(length: int, compressed: int) -> bool:
    """Tell whether ``length`` bytes may have been compressed to ``compressed``."""
    return length <= max(_SMALL_BYTES, _MOST_RATIO * compressed)


def _decompress(data: memoryview, length: int) -> bytes | None:
    if not _plausible(length, len(data)):
        return None
    stream = zlib.decompressobj()
    try:
        packed = stream.decompress(data, length + 1)
    except zlib.error:
        return None
    return packed if len(packed) == length and stream.eof and not stream.unused_data else None


def _unpack(packed: bytes) -> Graph:
    with no_collection():
        tables = msgspec.msgpack.decode(packed, type=_Tables)
    if tables.sized:
        numbers = list(_numbers(tables))
        expressions = [from_plain(plain) for plain in tables.expressions]
        for number, expression in tables.sized:
            numbers[number] = sized(expressions[expression], numbers[number])
        tables = _with_numbers(tables, iter(numbers))
    made = None if (held := tables.composites) is None else Composites(_restored(held[0]), held[1])
    graph = Graph(calls=_restored(tables.calls), composites=made, **{name: getattr(tables, name) for name in _SHARED})
    validate(graph)
    return graph


def _numbers(tables: Graph | _Tables) -> Iterator[int]:
    """Every number of these tables that may be a Size, in a fixed order."""
    for tensor in tables.tensors:
        yield from tensor.shape
        yield from tensor.strides
        yield tensor.offset
    for storage in tables.storages:
        yield storage.nbytes
    for loop in tables.loops:
        yield loop.trips


def _with_numbers(tables: T, numbers: Iterator[int]) -> T:
    """The tables with other ``numbers``, in the order of ``_numbers``."""

    def taken(old: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(itertools.islice(numbers, len(old)))

    replace = msgspec.structs.replace
    return replace(
        tables,
        tensors=tuple(
            replace(t, shape=taken(t.shape), strides=taken(t.strides), offset=next(numbers)) for t in tables.tensors
        ),
        storages=tuple(replace(storage, nbytes=next(numbers)) for storage in tables.storages),
        loops=tuple(replace(loop, trips=next(numbers)) for loop in tables.loops),
    )


def _packed(calls: Iterable[Call]) -> list[_PackedCall]:
    return [_pack(msgspec.structs.astuple(call)) for call in calls]


def _restored(calls: Iterable[_PackedCall]) -> tuple[Call, ...]:
    return tuple(Call(*_restore(call)) for call in calls)


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
    if isinstance(value, Size):
        return {"size": [to_plain(value.expr), str(int(value))]}
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        return {"int": str(value)}
    return value


def _restore(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_restore(item) for item in value)
    if isinstance(value, dict):
        [(kind, item)] = value.items()
        if kind == "tensor" and item is None:
            return TENSOR
        if kind == "complex":
            return complex(*item)
        if kind == "size":
            return sized(from_plain(item[0]), int(item[1]))
        return int(item) if kind == "int" else Const(str(kind), str(item))
    return value
