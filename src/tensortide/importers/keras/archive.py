"""A ``.keras`` file: an archive whose ``config.json`` describes the layers. Weights are not read, nothing is run."""

from __future__ import annotations

import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tensortide.errors import TraceError

CONFIG, METADATA = "config.json", "metadata.json"
MOST_BYTES = 64 << 20
"""A description is at most so long once it is unpacked; that of a large model takes 10 MB."""


class KerasFileError(TraceError):
    """A Keras file is damaged, or describes something that cannot be; the message names the file and the layer."""


def is_archive(path: Path) -> bool:
    """Look for the two descriptions of a Keras file in an archive."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return {CONFIG, METADATA} <= set(archive.namelist())
    except (zipfile.BadZipFile, NotImplementedError):
        return False


def read_config(path: Path) -> tuple[dict[str, Any], str]:
    """Return the description of the model, and the version of Keras that wrote it. Raises KerasFileError."""
    config, metadata = _read(path, CONFIG), _read(path, METADATA)
    if not isinstance(config, dict) or not isinstance(config.get("config"), dict):
        raise KerasFileError(f"{path}: {CONFIG} describes no model")
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    return config, version if isinstance(version, str) else ""


def _read(path: Path, name: str) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(name).file_size > MOST_BYTES:
                raise KerasFileError(f"{path}: {name} unpacks to over {MOST_BYTES >> 20} MiB")
            with archive.open(name) as file:
                return json.loads(file.read(MOST_BYTES))
    except KeyError:
        raise KerasFileError(f"{path}: it has no {name}") from None
    except RecursionError:
        raise KerasFileError(f"{path}: {name} is nested too deeply") from None
    except (ValueError, NotImplementedError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
        raise KerasFileError(
            f"{path}: {name} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None
