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
_PROGRAMS = (".py", ".ipynb", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu")
_MODELS = (
    *(".pt", ".pt2", ".pth", ".ckpt", ".safetensors", ".onnx", ".keras", ".h5", ".hdf5", ".tflite", ".pb", ".bin"),
    *(".npz", ".npy"),
)
_SOURCES = frozenset((*_PROGRAMS, *_MODELS, ".tide"))
"""Suffixes of files that no other result replaces: programs, models, weights and captured steps."""
_SCRIPT = b"#!"
"""How a program begins that the shell starts, whatever its name; no result begins so."""
_MOST_LINKS = 40
"""Links in a row that Linux follows."""


def write_file(
    path: str | os.PathLike[str], content: str | bytes, *, folders: bool = False, replaces: str = ""
) -> Path:
    """Write ``content`` to ``path`` by way of a temporary file beside it, so that no half-written file is ever seen.

    A link stays a link: the file that it leads to is replaced.

    ``folders``: make the folders of ``path`` that are missing. ``replaces``: the suffix of the writer's own files,
    which are replaced although no other result replaces them.

    Raises:
        OutputError: the directory is missing, ``path`` is a directory, permission is missing, the disk is full, links
            form a loop, or a program, a model, weights or a captured step are there.
    """
    place = _place(path)
    _write({place: content}, folders=folders, replaces=replaces)
    return place


def write_files(files: Mapping[Path, str | bytes], *, replaces: str = "") -> tuple[Path, ...]:
    """Write all of ``files`` or none: each content to its path, in folders that are made where they are missing.

    Raises:
        OutputError: as ``write_file``; what was there before is as it was.
    """
    _write(files, folders=True, replaces=replaces)
    return tuple(files)


def _write(files: Mapping[Path, str | bytes], *, folders: bool, replaces: str) -> None:
    made: list[Path] = []
    staged: list[tuple[Path, Path]] = []
    path = Path()
    targets: list[Path] = []
    try:
        for path in files:
            targets.append(_check(path, folders=folders, replaces=replaces))  # noqa: PERF401 # the error names ``path``
        for path, target in zip(files, targets, strict=True):
            content = files[path]
            if folders:
                _make_folders(target.parent, made)
            data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
            if (target.exists() and not target.is_file()) or _is_open(target):
                with target.open("ab") as stream:  # /dev/stdout and pipes cannot be replaced
                    stream.write(data)
            else:
                staged.append((_stage(target, data), target))
        for temporary, path in staged:
            temporary.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {reason_of(error)}.") from error
    finally:
        for temporary, _ in staged:
            temporary.unlink(missing_ok=True)
        _remove_empty(made)


def reason_of(error: OSError) -> str:
    """The reason for which a file cannot be written, in words."""
    return _REASONS.get(error.errno or 0, error.strerror or str(error))


def check_writable(path: str | os.PathLike[str], *, folders: bool = False, replaces: str = "") -> Path:
    """``path``, if a file can be written there as far as can be told beforehand: before work that would be lost.

    ``folders``: those of ``path`` may be missing. ``replaces``: as for ``write_file``.

    Raises:
        OutputError: as ``write_file``.
    """
    place = _place(path)
    _check(place, folders=folders, replaces=replaces)
    return place


def _place(path: object) -> Path:
    if not isinstance(path, str | os.PathLike) or "\0" in str(path):
        raise OutputError(f"cannot write {path!r:.80}: it is no path of a file.")
    return Path(path)


def _check(path: Path, *, folders: bool, replaces: str) -> Path:
    """The file that is written for ``path``. Raises OutputError if none can be, or it must not be replaced."""
    names = _names(path)
    _check_place(path, names[-1], folders=folders)
    # A link may be called like a result and lead to a program, or like a program and lead to a store of any names.
    for name in names:
        kept = name.suffix.lower() in _SOURCES - {replaces} or (name is names[-1] and _is_script(name))
        if kept and name.is_file():
            what = (
                "a captured step is there" if name.suffix.lower() == ".tide" else "it exists and is not a result file"
            )
            where = "" if name is path else f"it is a link to {name}: "
            raise OutputError(f"cannot write {path}: {where}{what}. Give another name.")
    return names[-1]


def _is_script(file: Path) -> bool:
    """True for a program that names its interpreter in its first line. A file that cannot be read is none."""
    if not file.is_file() or not os.access(file, os.R_OK):
        return False
    with file.open("rb") as stream:
        return stream.read(len(_SCRIPT)) == _SCRIPT


def _names(path: Path) -> list[Path]:
    """``path``, and what each link leads to, up to the file itself. Raises OutputError for links without an end."""
    names = [path]
    while names[-1].is_symlink() and not _is_open(names[-1]):
        if len(names) > _MOST_LINKS:
            raise OutputError(f"cannot write {path}: its symbolic links form a loop. Give another name.")
        names.append(names[-1].parent / names[-1].readlink())
    return names


def _is_open(path: Path) -> bool:
    """True for the name of a file that a process has open, such as /proc/self/fd/1."""
    parts = Path(os.path.realpath(path.parent)).parts
    return parts[:2] == ("/", "proc") or parts[:3] == ("/", "dev", "fd")


def _check_place(path: Path, target: Path, *, folders: bool) -> None:
    """Raise OutputError if no file can be at ``target``, to which ``path`` leads."""
    if target.is_dir():
        raise OutputError(f"cannot write {path}: it is a directory.\nGive the name of a file in it.")
    parent = target.parent
    while folders and not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir():
        what = "is not a directory" if parent.exists() else "does not exist"
        if parent.is_symlink():
            what = "is a symbolic link that does not lead to a directory"
        raise OutputError(f"cannot write {path}: {parent} {what}.\nCreate it first.")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"cannot write {path}: permission denied.")
    if not target.exists() and not os.access(parent, os.W_OK):
        raise OutputError(f"cannot write {path}: no permission to create files in {parent}.")


def _stage(target: Path, content: bytes) -> Path:
    """A file beside ``target`` with ``content``, which can take its place; nothing is left if it cannot be written."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            _sync(stream.fileno())
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync(file: int) -> None:
    """Have the content on the disk before the file gets its name: else a power cut could leave an empty one."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):  # a file system that cannot
            raise


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
