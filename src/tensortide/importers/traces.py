"""Targets that are other tools' records of a step: kernel traces and the compiler's dumps."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tensortide.errors import TraceError
from tensortide.importers.g10 import is_trace, read_trace
from tensortide.importers.inductor import find_dumps, read_dumps
from tensortide.importers.inductor.files import is_dump
from tensortide.importers.trace import Trace

__all__ = ["is_recorded", "read_recorded"]


def is_recorded(target: str | os.PathLike[str]) -> bool:
    """Whether ``target`` is a folder, a ``kernels.config``, or a dump by its name (``fx_graph_transformed.py``)."""
    return is_trace(target) or is_dump(target) or Path(target).is_dir()


def read_recorded(
    target: str | os.PathLike[str],
    *,
    backward: str | os.PathLike[str] | None = None,
    weight: str | os.PathLike[str] | None = None,
    bind: Mapping[str, int] | None = None,
) -> Trace:
    """The Trace of a kernel trace (a folder, or its ``kernels.config``), of a folder of dumps, or of one dump, with the
    dumps of its backward and optimizer graph if they are given. ``bind``: values of a dump's symbols.

    Raises:
        TraceError: there is no such thing, it is damaged, or options do not go with it.
    """
    path = Path(target)
    if is_trace(path):
        if backward is not None or weight is not None or bind:
            raise TraceError(f"{path} is a kernel trace: backward and optimizer graphs and symbols go with a dump")
        return read_trace(path)
    if not path.is_dir():
        return read_dumps(path, backward, weight, bind=bind)
    if backward is not None or weight is not None:
        raise TraceError(f"{path} is a folder: name the dump of the forward graph too")
    return read_dumps(*find_dumps(path), bind=bind)
