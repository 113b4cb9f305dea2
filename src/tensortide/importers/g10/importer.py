"""Kernel traces, and configurations of the tensor liveness tool, as a row of the table of importers."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import find_file, head

KERNELS = "kernels.config"
"""The file that makes a folder a kernel trace."""


_CONFIG = re.compile(rb"^[ \t]*(?:output_folder|nn_model_input_forward)[ \t]", re.MULTILINE)


def is_config(path: Path) -> bool:
    """Tell a configuration file of the tensor liveness tool, by its content."""
    return _CONFIG.search(head(path)) is not None


def _sniff(path: Path) -> bool:
    return find_file(path, [KERNELS]) is not None or head(path).startswith(b"Kernel ID: ") or is_config(path)


def _read(path: Path, options: Options) -> Imported:
    if is_config(path):
        from tensortide.importers.g10.config import read_config
        from tensortide.importers.inductor.read import read_dumps

        config = read_config(path)
        step = read_dumps(config.forward, config.backward, config.weight)
        return dataclasses.replace(step, measure=config.profile, device_bytes=config.device_memory_bytes)
    from tensortide.importers.g10.read import read_trace

    found = read_trace(path)
    if found.times is None or not options.durations:
        return found
    durations = found.times.durations(found.graph, f"recorded in {found.graph.meta.workload}")
    return dataclasses.replace(found, durations=durations)


IMPORTER = Importer(
    "g10",
    "a kernel trace of G10 (kernels.config, or its folder), or a configuration of the tensor liveness tool",
    _sniff,
    _read,
)
