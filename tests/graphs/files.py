"""Small captured graphs as files, written by ``python -m scripts.make_graphs``: loading one takes a hundredth of what
capturing it takes."""

from __future__ import annotations

import functools
from pathlib import Path

from tensortide.graph import Graph, load

FOLDER = Path(__file__).parent


def path_of(name: str) -> Path:
    """The file of the stored graph ``name``."""
    return FOLDER / f"{name}.tide"


@functools.cache
def stored(name: str) -> Graph:
    """The stored graph ``name``; read once in a process."""
    return load(path_of(name))
