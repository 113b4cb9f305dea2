"""Folders as a program sees them that has saved files on fake tensors: with those files, which were not written."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensortide.recorder.saved_in_memory import Unwritten
from tensortide.recorder.second_run import Entries


class _Entry:
    """An entry of a folder, like those of ``os.scandir``, for a file that was not written."""

    def __init__(self, folder: str, name: str) -> None:
        self.name, self.path = name, str(Path(folder, name)) if folder != "." else name

    def __fspath__(self) -> str:
        return self.path

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """True: it is one."""
        del follow_symlinks
        return True

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """False: it is a file."""
        return not self.is_file(follow_symlinks=follow_symlinks)

    is_symlink = is_junction = is_dir

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The status of the file."""
        return Path(self.path).stat(follow_symlinks=follow_symlinks)


def listing(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``os.listdir`` or ``os.scandir``, for folders with files that were not written."""

    @functools.wraps(function)
    def listed(path: Any = ".") -> Any:
        found = function(path)
        if not unwritten or not isinstance(path, (str, os.PathLike)):
            return found
        folder = Path(path).resolve()
        names = [each.name for each in map(Path, unwritten) if each.parent == folder]
        if function.__name__ == "listdir":
            return [*found, *(name for name in names if name not in found)]
        with found as entries:
            present = [*entries]
        known = {each.name for each in present}
        return Entries([*present, *(_Entry(os.fspath(path), name) for name in names if name not in known)])

    return listed
