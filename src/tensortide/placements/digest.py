"""Digests of problems: a short text that differs wherever anything differs that a score depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np


def digest_of(parts: Iterable[object]) -> str:
    """Return a digest of ``parts``: arrays count by type, shape and contents, all else by its ``repr``."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            found.update(f"{part.dtype} {part.shape}\0".encode())
            found.update(np.ascontiguousarray(part).tobytes())
        else:
            found.update(f"{part!r}\0".encode())
    return found.hexdigest()[:16]
