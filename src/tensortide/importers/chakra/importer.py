"""Chakra traces as a row of the table of importers."""

from __future__ import annotations

from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.protobuf import WireError, fields, read_varint
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import head

_LONGEST = 1 << 12
"""Bytes of the metadata at the start of a file, at most, for it to be recognized."""


def _sniff(path: Path) -> bool:
    """The metadata, which has a version (a number with points) or attributes alone, and then a node with an id."""
    from tensortide.importers.chakra.messages import decode_metadata

    start = head(path)
    try:
        size, at = read_varint(start, 0)
        if not 2 <= size <= _LONGEST or at + size >= len(start):
            return False
        version, _ = decode_metadata(start[at : at + size])
        if not version.replace(".", "").isdecimal() or any(number > 2 for number, *_ in fields(start[at : at + size])):
            return False
        _, at = read_varint(start, at + size)
        tag, at = read_varint(start, at)
    except WireError:
        return False
    return tag in (1 << 3, 2 << 3 | 2)  # the id, or where it is 0 the name


def _read(path: Path, options: Options) -> Imported:
    from tensortide.importers.chakra.files import read_chakra
    from tensortide.importers.chakra.graph import imported

    return imported(read_chakra(path), str(path))


IMPORTER = Importer("chakra", "a Chakra execution trace of one rank (.et, also .gz)", _sniff, _read)
