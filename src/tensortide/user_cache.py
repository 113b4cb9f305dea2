"""The user's cache: machine code, which is compiled again where it is missing. What no process has used for 30 days is
removed.

A process marks what it uses by the time of change, and holds it locked while it runs; the first one to end on a day
removes what was not marked for long and what nobody holds. Where files cannot be locked nothing is removed.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

try:
    import fcntl
except ImportError:  # not on Windows
    _CAN_LOCK = False
else:
    _CAN_LOCK = True

KEPT_DAYS = 30
"""Days without use after which an entry is removed."""
_DAY_S = 86_400.0
_ENTRIES = ("kernels-*", "core-*")
"""Entries that are removed: folders of kernels, files of the compiled core."""
_held: dict[Path, int] = {}
"""Descriptors of what this process uses, each with a shared lock until it ends."""


def cache_folder() -> Path:
    """The folder of all that is cached."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensortide"


def claim_folder(path: Path) -> bool:
    """Make the folder ``path`` of the cache where it is missing, and mark it as used. False if no file can be written
    into it."""
    try:
        while not mark_used(path):
            path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def mark_used(path: Path) -> bool:
    """Mark the entry ``path`` as used, and keep it until this process ends. False if there is none; True without a lock
    where the entry cannot be opened or locked."""
    # Between opening and locking another process may have renamed the entry: look again until the locked file is the
    # one at ``path``.
    while (held := _held.pop(path, None)) is None or not _is_at(path, held):
        if held is not None:
            os.close(held)
        try:
            _held[path] = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError:  # it cannot be locked, and so not be removed from here
            return path.exists()
        if _CAN_LOCK:
            with contextlib.suppress(OSError):
                fcntl.flock(_held[path], fcntl.LOCK_SH)  # once nobody is removing it
    _held[path] = held
    with contextlib.suppress(OSError):  # of another user, or on a file system that is only read
        os.utime(path)
    return True


def remove_unused(cache: Path) -> list[Path]:
    """Remove what no process has used for ``KEPT_DAYS`` from the folder ``cache``, and return it; nothing where that
    was done less than a day ago."""
    now_s, done = time.time(), cache / "pruned"
    if not _CAN_LOCK or now_s - _changed_s(done, 0.0) < _DAY_S:
        return []
    try:
        done.touch()
    except OSError:
        return []
    before_s = now_s - KEPT_DAYS * _DAY_S
    found = [path for pattern in _ENTRIES for path in cache.glob(pattern) if path.suffix != ".lock"]
    return [path for path in found if _changed_s(path, now_s) < before_s and _removed(path, before_s)]


@atexit.register
def _at_exit() -> None:
    for cache in {path.parent for path in _held}:
        remove_unused(cache)


def _removed(path: Path, before_s: float) -> bool:
    """Remove ``path`` unless a process uses it, or has used it after ``before_s``; the first step is another name."""
    gone = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError), _locked(path):
        if _changed_s(path, before_s) < before_s:
            path.rename(gone)
            if gone.is_dir():
                shutil.rmtree(gone, ignore_errors=True)
            else:
                gone.unlink()
            return True
    return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold ``path`` alone. Raises OSError if it is missing, or another process holds it."""
    number = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, number):  # removed and made again since it was opened: what is there now is not locked
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(number)


def _is_at(path: Path, number: int) -> bool:
    """True if the open file ``number`` is the one at ``path``."""
    try:
        return os.path.samestat(path.stat(), os.fstat(number))
    except OSError:
        return False


def _changed_s(path: Path, missing_s: float) -> float:
    """Time of the last change of ``path``; ``missing_s`` if it is missing."""
    try:
        return path.stat().st_mtime
    except OSError:
        return missing_s
