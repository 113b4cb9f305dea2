"""The lock of a measurement, and of an experiment: two processes that measure at once would measure each other."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from tensortide.errors import CaptureError, OutputError


@contextlib.contextmanager
def only_one(path: Path, what: str) -> Iterator[None]:
    """Hold the file ``path`` locked while this process does ``what``; its folder is made if it is missing.

    The operating system unlocks it when the process ends, however that ends. On systems without such locks nothing is
    locked.

    Raises:
        CaptureError: another process holds it; the message names that process.
        OutputError: the file cannot be written.
    """
    try:
        import fcntl
    except ImportError:
        _opened(path).close()
        yield
        return
    with contextlib.ExitStack() as opened:
        while True:
            file = opened.enter_context(_opened(path))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CaptureError(_told(file, what)) from None
            except OSError:  # a file system without locks
                break
            if _is_there(path, file):
                break  # else its last owner deleted it meanwhile
        since = f"{datetime.datetime.now().astimezone():%H:%M:%S}"
        with contextlib.suppress(OSError):  # a full disk: it is held, if without a name
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}, since {since}")
            file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}.") from error


def _is_there(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _told(file: IO[str], what: str) -> str:
    file.seek(0)
    owner = file.read(200).strip()
    return f"another process is {what}{f' ({owner})' if owner else ''}: wait until it is done, or stop it."
