"""The configuration file of the tensor liveness tool: its inputs, and the folder for its results."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from tensortide.errors import TraceError
from tensortide.importers.textfile import TextFile, read_text

__all__ = ["LivenessConfig", "read_config"]

GIB = 1 << 30
_PATHS = ("output_folder", "nn_model_input_forward", "nn_model_input_backward", "nn_model_input_weight")
_KEYS = (*_PATHS, "is_pytorch", "is_profiling", "GPU_memory_size_GB")


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
        TraceError: it cannot be read, a line is no ``key value``, a key is unknown or there twice, a value is none of
            its key, ``output_folder`` or ``nn_model_input_forward`` is missing, an input is not there.
    """
    file = read_text(path)
    entries = _entries(file)
    for key in ("output_folder", "nn_model_input_forward"):
        if key not in entries:
            raise TraceError(f"{file.path}: {key} is missing")
    folder = Path(path).resolve().parent
    paths = {key: _resolved(file, folder, *entries[key]) for key in _PATHS if key in entries}
    for key, found in paths.items():
        if key != "output_folder" and not found.is_file():
            raise file.wrong(entries[key][1], f"there is no file {found}")
    _flag(file, entries, "is_pytorch", allowed="1")
    return LivenessConfig(
        path=Path(path),
        output_folder=paths["output_folder"],
        forward=paths["nn_model_input_forward"],
        backward=paths.get("nn_model_input_backward"),
        weight=paths.get("nn_model_input_weight"),
        profile=_flag(file, entries, "is_profiling"),
        device_memory_bytes=_capacity(file, entries),
    )


def _entries(file: TextFile) -> dict[str, tuple[str, int]]:
    """Read value and line (from 0) of each key."""
    entries: dict[str, tuple[str, int]] = {}
    for index, line in enumerate(file.lines):
        content = line.split("#", 1)[0].strip()
        if not content:
            continue
        key, _, value = content.replace("\t", " ").partition(" ")
        if key not in _KEYS:
            raise file.wrong(index, f"unknown key {key[:60]} (known: {', '.join(_KEYS)})")
        if key in entries:
            raise file.wrong(index, f"{key} is there twice, first in line {entries[key][1] + 1}")
        if not value.strip():
            raise file.error(index, f"a value after {key}")
        entries[key] = value.strip(), index
    return entries


def _resolved(file: TextFile, folder: Path, text: str, index: int) -> Path:
    try:
        path = Path(text).expanduser()
        beside = folder / path
        if "\0" in text:
            raise ValueError("a zero byte")
        return beside if beside.exists() or not path.exists() else path.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise file.wrong(index, f"no file can have this name ({reason})") from None


def _flag(file: TextFile, entries: dict[str, tuple[str, int]], key: str, allowed: str = "01") -> bool:
    value, index = entries.get(key, ("1", 0))
    if value not in tuple(allowed):
        raise file.error(index, f"{key} {' or '.join(allowed)}")
    return value == "1"


def _capacity(file: TextFile, entries: dict[str, tuple[str, int]]) -> int:
    value, index = entries.get("GPU_memory_size_GB", ("40", 0))
    try:
        capacity = float(value)
    except ValueError:
        capacity = 0.0
    if not 0 < capacity < 1e9:
        raise file.error(index, "GPU_memory_size_GB and a number above 0")
    return round(capacity * GIB)
