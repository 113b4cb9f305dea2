"""Kernel traces, and configurations of the tensor liveness tool, as a row of the table of importers."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.imported import Imported
from tensortide.importers.table import Importer, Options
from tensortide.importers.textfile import find_file, head, read_text

GIB = 1 << 30


class LivenessConfig(msgspec.Struct, frozen=True):
    """The content of a configuration file; paths are resolved.

    ``profile``: kernels are to be measured first. ``device_memory_bytes`` is the capacity that the peak is compared
    with.
    """

    path: Path
    output_folder: Path
    forward: Path
    backward: Path | None = None
    weight: Path | None = None
    profile: bool = True
    device_memory_bytes: int = 40 * GIB


def read_config(path: str | os.PathLike[str]) -> LivenessConfig:
    """Read the configuration in ``path``: ``key value`` per line, ``#`` starts a comment.

    A relative path is taken from the folder of the file; if there is nothing there, and there is from the working
    directory, from that. ``GPU_memory_size_GB`` is in GiB.

    Raises:
        TraceError: it cannot be read, a line is no ``key value``, a key is unknown or given twice, a value is none of
            its key, ``output_folder`` or ``nn_model_input_forward`` is missing, an input is not there.
    """
    file, folder = read_text(path), Path(path).resolve().parent
    found: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for index, line in enumerate(file.lines):
        key, _, value = line.split("#", 1)[0].strip().replace("\t", " ").partition(" ")
        if not key:
            continue
        if key not in _KEYS:
            raise file.wrong(index, f"unknown key {key[:60]} (known: {', '.join(_KEYS)})")
        if key in lines:
            raise file.wrong(index, f"{key} is given twice, first in line {lines[key] + 1}")
        if not value.strip():
            raise file.error(index, f"a value after {key}")
        field, read = _KEYS[key]
        try:
            found[field] = read(value.strip(), folder)
        except ValueError as error:
            raise file.wrong(index, str(error)) from None
        lines[key] = index
    for key in ("output_folder", "nn_model_input_forward"):
        if key not in lines:
            raise TraceError(f"{file.path}: {key} is missing")
    found.pop("pytorch", None)
    return LivenessConfig(path=Path(path), **found)


def _path(text: str, folder: Path) -> Path:
    try:
        path = Path(text).expanduser()
        beside = folder / path
        if "\0" in text:
            raise ValueError("a zero byte")
        return beside if beside.exists() or not path.exists() else path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"no file can have this name ({getattr(error, 'strerror', None) or error})") from None


def _file(text: str, folder: Path) -> Path:
    path = _path(text, folder)
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return path


def _pytorch(text: str, folder: Path) -> bool:
    if text != "1":
        raise ValueError("expected is_pytorch 1")
    return True


def _profiling(text: str, folder: Path) -> bool:
    if text not in ("0", "1"):
        raise ValueError("expected is_profiling 0 or 1")
    return text == "1"


def _capacity(text: str, folder: Path) -> int:
    try:
        capacity = float(text)
    except ValueError:
        capacity = 0.0
    if not 0 < capacity < 1e9:
        raise ValueError("expected GPU_memory_size_GB and a number above 0")
    return round(capacity * GIB)


_KEYS: dict[str, tuple[str, Callable[[str, Path], Any]]] = {
    "output_folder": ("output_folder", _path),
    "nn_model_input_forward": ("forward", _file),
    "nn_model_input_backward": ("backward", _file),
    "nn_model_input_weight": ("weight", _file),
    "is_pytorch": ("pytorch", _pytorch),
    "is_profiling": ("profile", _profiling),
    "GPU_memory_size_GB": ("device_memory_bytes", _capacity),
}
"""For each key the field of LivenessConfig, and how its value is read."""


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
