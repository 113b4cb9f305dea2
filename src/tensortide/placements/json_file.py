"""JSON files of placements: read into records, with every fault one error that names file and key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TypeVar

import msgspec

from tensortide.errors import TensortideError

Record = TypeVar("Record")


def read_json(path: str | os.PathLike[str], kind: type[Record], what: str) -> Record:
    """Read the file as ``kind``.

    Args:
        path: the file.
        kind: what its JSON is decoded into.
        what: words for the file's content in messages, such as "a device graph".

    Raises:
        TensortideError: the file cannot be read, is no JSON of that form, or has a key twice.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise TensortideError(f"{path}: cannot be read: {error.strerror}.") from None
    try:
        refuse_repeated_keys(path, text)
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TensortideError(f"{path}: not {what} in JSON: {error}.") from None


def refuse_repeated_keys(path: str | os.PathLike[str], text: bytes) -> None:
    """Raise TensortideError if an object of the JSON ``text`` has a key twice: readers would drop one silently."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise TensortideError(f"{path}: {twice!r} stands twice in one object: names must differ.")
        return found

    json.loads(text, object_pairs_hook=once)
