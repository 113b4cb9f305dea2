"""Writing a result: the whole file or none of it, and one clear message when it cannot be written."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from tensortide.errors import OutputError

__all__ = ["check_writable", "write_file"]

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.ENAMETOOLONG: "the name is too long",
}


def write_file(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write ``content`` to ``path`` by way of a temporary file beside it, so that no half-written file is ever seen.

    Raises:
        OutputError: the directory is missing, ``path`` is a directory, permission is missing, the disk is full.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    target = check_writable(path)
    try:
        _replace(target, data)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise OutputError(f"cannot write {target}: {reason}.") from error
    return target


def check_writable(path: str | os.PathLike[str]) -> Path:
    """``path``, if a file can be written there as far as can be told beforehand: before work that would be lost.

    Raises:
        OutputError: the directory is missing, ``path`` is a directory, permission is missing.
    """
    target = Path(path)
    if target.is_dir():
        raise OutputError(f"cannot write {target}: it is a directory.\nGive the name of a file in it.")
    if not target.parent.is_dir():
        what = "is not a directory" if target.parent.exists() else "does not exist"
        raise OutputError(f"cannot write {target}: {target.parent} {what}.\nCreate it first.")
    if target.exists() and not os.access(target, os.W_OK):
        raise OutputError(f"cannot write {target}: permission denied.")
    if not target.exists() and not os.access(target.parent, os.W_OK):
        raise OutputError(f"cannot write {target}: no permission to create files in {target.parent}.")
    return target


def _replace(target: Path, data: bytes) -> None:
    if (target.exists() and not target.is_file()) or target.parts[:2] in (("/", "dev"), ("/", "proc")):
        with target.open("ab") as stream:  # /dev/stdout and pipes cannot be replaced
            stream.write(data)
        return
    target = target.resolve()  # a link stays a link: what it points to is replaced
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
