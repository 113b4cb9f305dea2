"""A .pt2 file: a zip of a program as JSON, its weights as raw bytes, and pickles that are never read.

Two layouts. In the current one a folder of any name has ``archive_format`` (``pt2``), ``archive_version``,
``models/NAME.json`` and ``data/weights/NAME_weights_config.json``. In the older one ``version`` and
``serialized_exported_program.json`` stand at the top. Where weights are a pickle, that alone says which are tied.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tensortide.errors import TraceError, WorkloadError

ZIP = b"PK\x03\x04"
_OLD_PROGRAM = "serialized_exported_program.json"
_MODELS = "models/"
_SMALL = 1 << 20
_RATIO = 8
"""A part may unpack to so many times the size of the file, to ``_SMALL`` in any case, and to ``_LARGEST`` at most."""
_LARGEST = 128 << 20
_VERSIONS = ("0", "1")
"""Versions of the archive (not of the program in it) that are read."""
_BROKEN = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError, NotImplementedError, LookupError,
)  # fmt: skip


@dataclass(frozen=True)
class Archive:
    """The parts of an archive that are read, as bytes. ``weights`` and ``constants`` tell where values lie, and are
    empty in the old layout."""

    path: str
    program: bytes
    weights: bytes = b""
    constants: bytes = b""


def holds_program(path: Path) -> bool:
    """Tell whether the file at ``path`` is a zip with a program in it, by its table of contents."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        if file.read(4) != ZIP:
            return False
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(_programs(archive.namelist()))
    except _BROKEN:
        return _reads_like_one(path)


def _reads_like_one(path: Path) -> bool:
    """A damaged archive is known by the names of its first parts, which stand before their contents."""
    with path.open("rb") as file:
        start = file.read(1 << 16)
    return any(mark in start for mark in (b"_weights_config.json", b"/weights/weight_", _OLD_PROGRAM.encode()))


def _programs(names: list[str]) -> dict[str, str]:
    """The programs among the parts, by name."""
    found: dict[str, str] = {}
    for name in names:
        folder, _, rest = name.partition("/")
        if name == _OLD_PROGRAM:
            found["model"] = name
        elif rest.startswith(_MODELS) and rest.endswith(".json") and rest.count("/") == 1 and folder:
            found[rest[len(_MODELS) : -len(".json")]] = name
    return found


def read_archive(path: Path, program: str = "") -> Archive:
    """Read the archive at ``path``, and the one of its programs that is called ``program``.

    Raises TraceError for a file that is damaged, or of another version, or that would unpack to more than is
    plausible; WorkloadError for a program that it does not have, or where one has to be chosen.
    """
    with _faults(path), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        programs = _programs(names)
        if not programs:
            raise TraceError(f"{path}: no program in it (models/NAME.json)")
        if (len(programs) > 1 and not program) or (program and program not in programs):
            listed = ", ".join(sorted(programs))
            raise WorkloadError(f"{path} has the programs {listed}: --program NAME (program=) chooses one")
        name = program or next(iter(programs))
        part = programs[name]
        reader = _Reader(path, archive, frozenset(names))
        if part == _OLD_PROGRAM:
            return Archive(str(path), reader.read(part))
        folder = part.partition("/")[0]
        reader.require_version(folder)
        return Archive(
            str(path),
            reader.read(part),
            reader.read_if_any(f"{folder}/data/weights/{name}_weights_config.json"),
            reader.read_if_any(f"{folder}/data/constants/{name}_constants_config.json"),
        )


@contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise TraceError(f"{path}: the archive is damaged: {error}") from None


@dataclass(frozen=True)
class _Reader:
    path: Path
    archive: zipfile.ZipFile
    names: frozenset[str]

    def read(self, name: str) -> bytes:
        """Unpack one part. Raises TraceError where that would be more than is plausible."""
        size = self.archive.getinfo(name).file_size
        limit = max(_SMALL, min(_LARGEST, _RATIO * self.path.stat().st_size))
        if size > limit:
            raise TraceError(f"{self.path}: {name} claims to unpack to {size:,} bytes, more than {limit:,}")
        with self.archive.open(name) as part:
            data = part.read(size + 1)
        if len(data) != size:
            raise TraceError(f"{self.path}: {name} has {len(data):,} bytes and claims {size:,}")
        return data

    def read_if_any(self, name: str) -> bytes:
        return self.read(name) if name in self.names else b""

    def require_version(self, folder: str) -> None:
        """Raise TraceError for an archive of a version that is not known."""
        kind = self.read_if_any(f"{folder}/archive_format").decode(errors="replace").strip()
        version = self.read_if_any(f"{folder}/archive_version").decode(errors="replace").strip()
        if kind not in ("", "pt2"):
            raise TraceError(f"{self.path}: an archive of the format {kind[:40]!r}, not pt2")
        if version not in ("", *_VERSIONS):
            known = " and ".join(_VERSIONS)
            raise TraceError(f"{self.path}: an archive of version {version[:40]!r}; those of versions {known} are read")
