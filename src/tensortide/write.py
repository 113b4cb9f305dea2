"""Writing a result: the whole file or none of it, and one clear message when it cannot be written."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tensortide.errors import OutputError

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENAMETOOLONG: "the name is too long",
}
_SOURCES = frozenset((".py", ".ipynb", ".pt", ".pth", ".ckpt", ".safetensors"))
"""Suffixes of files that no result replaces: programs and weights."""


def write_file(path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False) -> Path:
    """Write ``content`` to ``path`` by way of a temporary file beside it, so that no half-written file is ever seen.

    ``folders``: make the folders of ``path`` that are missing.

    Raises:
        OutputError: the directory is missing, ``path`` is a directory, permission is missing, the disk is full, or a
            program or weights are there.
    """
    _check_replaceable(Path(path))
    _write({Path(path): content}, folders=folders)
    return Path(path)


def write_files(files: Mapping[Path, str | bytes]) -> tuple[Path, ...]:
    """Write all of ``files`` or none: each content to its path, in folders that are made where they are missing.

    What is there is replaced, whatever it is: the names are the writer's own.

    Raises:
        OutputError: as ``write_file``; what was there before is as it was.
    """
    _write(files, folders=True)
    return tuple(files)


def _write(files: Mapping[Path, str | bytes], *, folders: bool) -> None:
    made: list[Path] = []
    staged: dict[Path, Path] = {}
    path = Path()
    try:
        for path, content in files.items():
            target = _check_place(path, folders=folders)
            if folders:
                _make_folders(path.parent, made)
            data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
            if (target.exists() and not target.is_file()) or target.parts[:2] in (("/", "dev"), ("/", "proc")):
                with target.open("ab") as stream:  # /dev/stdout and pipes cannot be replaced
                    stream.write(data)
            else:
                target = target.resolve()  # a link stays a link: what it points to is replaced
                staged[target] = _stage(target, data)
        for path, temporary in staged.items():
            temporary.replace(path)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise OutputError(f"cannot write {path}: {reason}.") from error
    finally:
        for temporary in staged.values():
            temporary.unlink(missing_ok=True)
        _remove_empty(made)


def check_writable(path: str | os.PathLike[str], *, folders: bool = False) -> Path:
    """``path``, if a file can be written there as far as can be told beforehand: before work that would be lost.

    ``folders``: those of ``path`` may be missing.

    Raises:
        OutputError: the directory is missing, ``path`` is a directory, permission is missing, or a file of a program
            or of weights is there.
    """
    target = _check_place(Path(path), folders=folders)
    _check_replaceable(target)
    return target


def check_apart(files: Mapping[str, str | os.PathLike[str] | None]) -> None:
    """Raise OutputError if two of ``files``, by the options that name them (None: not given), are one file."""
    known: dict[Path, str] = {}
    for option, path in files.items():
        if path is not None and (other := known.setdefault(Path(path).resolve(), option)) != option:
            raise OutputError(f"{other} and {option} are one file, {path}: give each a name of its own.")


def _check_replaceable(target: Path) -> None:
    """Raise OutputError if a program or weights are at ``target``."""
    if target.suffix.lower() in _SOURCES and target.is_file():
        raise OutputError(f"cannot write {target}: it is there, and no result. Give another name.")


def _check_place(target: Path, *, folders: bool) -> Path:
    if target.is_dir():
        raise OutputError(f"cannot write {target}: it is a directory.\nGive the name of a file in it.")
    parent = target.parent
    while folders and not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        what = "is not a directory" if parent.exists() else "does not exist"
        raise OutputError(f"cannot write {target}: {parent} {what}.\nCreate it first.")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"cannot write {target}: permission denied.")
    if not target.exists() and not os.access(parent, os.W_OK):
        raise OutputError(f"cannot write {target}: no permission to create files in {parent}.")
    return target


def _stage(target: Path, content: bytes) -> Path:
    """A file beside ``target`` with ``content``, which can take its place; nothing is left if it cannot be written."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make ``folder`` and what it is in; those that were missing go to ``made``, outermost first."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir()
        made.append(place)


def _remove_empty(made: list[Path]) -> None:
    for folder in reversed(made):
        with contextlib.suppress(OSError):  # it holds what was written
            folder.rmdir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
