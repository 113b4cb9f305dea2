"""JSON files read into records, with every fault one error that names file and key."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import inspect

from tensortide.errors import TensortideError
from tensortide.file_faults import reading
from tensortide.timing.paleo.nets import refuse_unknown_keys

Record = TypeVar("Record")


def read_json(path: str | os.PathLike[str], kind: type[Record], what: str, *, closed: bool = False) -> Record:
    """Read the file as ``kind``.

    Args:
        path: the file.
        kind: what its JSON is decoded into.
        what: words for the file's content in messages, such as "a device graph".
        closed: refuse keys that the records of ``kind`` do not have: what was meant would be the default unsaid.

    Raises:
        TensortideError: the file cannot be read, is no JSON of that form, or has a key twice or, if ``closed``, one
            that is not known.
    """
    try:
        text = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise TensortideError(f"{path}: cannot be read as {what}: {error.strerror}.") from None
    except ValueError as error:  # a path that no file can have
        raise TensortideError(f"{str(path)!r}: {error}.") from None
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TensortideError(f"{path}: it is in UTF-16: save it in UTF-8.")
    try:
        with reading(path):
            content = refuse_repeated_keys(path, text)
            if closed:
                for place, given, known in _objects(content, inspect.type_info(kind), ""):
                    refuse_unknown_keys(f"{path}, {place or f'read as {what}'}", given, known)
            return _decoded(path, text, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise TensortideError(f"{path}: not {what} in JSON: {reason}.") from None


def _decoded(path: str | os.PathLike[str], text: bytes, kind: type[Record]) -> Record:
    try:
        return msgspec.json.decode(text, type=kind)
    except TensortideError as error:  # of a record's own check
        raise TensortideError(f"{path}: {error}") from None


def refuse_repeated_keys(path: str | os.PathLike[str], text: bytes) -> object:
    """Return what the JSON ``text`` says. Raises TensortideError if one of its objects has a key twice: readers would
    drop one silently."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise TensortideError(f"{path}: {twice!r} stands twice in one object: names must differ.")
        return found

    content: object = json.loads(text, object_pairs_hook=once)
    return content


def _objects(
    content: object, kind: inspect.Type, place: str
) -> Iterator[tuple[str, dict[str, object], tuple[str, ...]]]:
    """The objects in ``content`` that are to become records, each with its place and the keys that it may have."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for each in kinds:
        if isinstance(content, dict) and isinstance(each, inspect.StructType):
            yield place, content, tuple(field.encode_name for field in each.fields)
            for field in each.fields:
                inner = f"{place}.{field.encode_name}" if place else field.encode_name
                yield from _objects(content.get(field.encode_name), field.type, inner)
        elif isinstance(content, list) and isinstance(each, (inspect.VarTupleType, inspect.ListType)):
            for number, item in enumerate(content):
                yield from _objects(item, each.item_type, f"{place}[{number}]")
