"""Files of machine code that prove to be whole: a length and a digest follow the content.

A power cut or a full disk can leave a file that is cut off, empty or of zeros, under its final name. To load such code
ends the process without a message, so a file without a valid seal counts as missing. Loaders of shared libraries and
of pickles ignore what follows the content.

Only the standard library is imported: compilations run ``python sealed.py MADE PATH`` (see ``into_place``).
"""

from __future__ import annotations

import hashlib
import os
import sys
import uuid
from pathlib import Path

_MARK = b"tidewhol"
_SEAL_BYTES = len(_MARK) + 8 + 32
"""The mark, the length of the content and its SHA-256."""
SCRIPT = __file__
"""This file, to be run by compilations."""


def seal(content: bytes) -> bytes:
    """Return ``content`` with its seal."""
    return content + _MARK + len(content).to_bytes(8, "little") + hashlib.sha256(content).digest()


def is_whole(path: Path) -> bool:
    """Tell whether the file at ``path`` has a content with its seal; not so if it cannot be read."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return len(data) >= _SEAL_BYTES and data == seal(data[:-_SEAL_BYTES])


def write_sealed(path: Path, content: bytes) -> None:
    """Write ``content`` with its seal to ``path``, whole or not at all. Raises OSError."""
    made = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
    try:
        made.write_bytes(content)
        into_place(made, path)
    finally:
        made.unlink(missing_ok=True)


def into_place(made: Path, path: Path) -> None:
    """Seal the file at ``made``, and move it to ``path`` once it is on the disk. Raises OSError."""
    content = made.read_bytes()
    with made.open("ab") as file:
        file.write(seal(content)[len(content) :])
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


if __name__ == "__main__":
    into_place(*map(Path, sys.argv[1:]))
