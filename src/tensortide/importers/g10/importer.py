"""Kernel traces as a row of the table of importers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import find_file, head

__all__ = ["IMPORTER", "KERNELS"]

KERNELS = "kernels.config"
"""The file that makes a folder a kernel trace."""


def _sniff(path: Path) -> bool:
    return find_file(path, [KERNELS]) is not None or head(path).startswith(b"Kernel ID: ")


def _read(path: Path, options: Options) -> Imported:
    from tensortide.importers.g10.read import read_trace

    found = read_trace(path)
    if found.times is None or not options.durations:
        return found
    durations = found.times.durations(found.graph, f"recorded in {found.graph.meta.workload}")
    return dataclasses.replace(found, durations=durations)


IMPORTER = Importer("g10", "a kernel trace of G10 (kernels.config, or its folder)", _sniff, _read)
