"""The world of a script that runs again: its writes go to a folder that is removed, and no other host is reached.

A script runs a second time to find out something about its step. The first run has had its effects; those of the second
are kept from files and from the network, while the script reads back what it wrote.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tensortide.recorder.surroundings import replaced

_APART = ("/dev/", "/proc/", "/sys/")
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
"""Variables with which libraries take from their caches what the first run has fetched."""
_LOCAL = ("localhost", "127.", "::1", "0.0.0.0", "::", "")
"""Hosts, or how their addresses begin, that are this machine."""
_CREATES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class SecondRun:
    """Files as a script that runs again sees them, and what it was kept from.

    ``made`` are folders that the first run made, which this one makes anew; files that begin with a name of ``free``
    are written as ever, and so are those of folders for temporary files.
    """

    def __init__(self, folder: str, made: Sequence[str], free: Sequence[str]) -> None:
        self._root, self._made, self._removed = folder, set(made), set[str]()
        self._free, self._here = (*free, *_APART), f"{Path.cwd()}{os.sep}"
        self._temporary = f"{Path(tempfile.gettempdir()).absolute()}{os.sep}"
        self._lstat, self._stat, self._copy, self._make = os.lstat, os.stat, shutil.copy2, os.makedirs
        self.written: set[str] = set()
        self.hosts: set[str] = set()

    def read(self, path: str) -> str:
        """The file to read for ``path``."""
        aside = self._root + path
        gone = self._removed and not self._removed.isdisjoint((path, *map(str, Path(path).parents)))
        return aside if gone or self.exists(aside) else path

    def exists(self, there: str) -> bool:
        """True if the file ``there`` exists, apart or not."""
        return _found(self._lstat, there) is not None

    def is_folder(self, there: str) -> bool:
        """True if ``there``, apart or not, is a folder."""
        found = _found(self._stat, there)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def folders(self, path: str) -> list[str]:
        """Folders that together have the files of the folder ``path``: first those that were written."""
        return [there for there in dict.fromkeys((self.read(path), path)) if self.is_folder(there)]

    def write(self, path: str, *, keeps: bool = False) -> str:
        """The file to write for ``path``, with its content if that is kept."""
        before, aside = self.read(path), self._root + path
        folder = str(Path(path).parent)
        if self.is_folder(self.read(folder)):  # else the error is that of a folder that is not there
            self._make(self._root + folder, exist_ok=True)
        if keeps and before == path and self.exists(path):
            self._copy(path, aside)
        self.written.add(path)
        return aside

    def remove(self, path: str) -> None:
        """Have no file at ``path`` from now on."""
        self._removed.add(path)
        self.written.add(path)

    def made_anew(self, path: str) -> bool:
        """True, once, for a folder that is there since the first run."""
        again = path in self._made
        self._made.discard(path)
        return again

    def path(self, name: Any, options: dict[str, Any]) -> str | None:
        """The absolute path of a file that is kept apart; None for another one."""
        if not isinstance(name, (str, bytes, os.PathLike)) or any(options.get(each) is not None for each in _FOLDERS):
            return None
        path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100 without a look at files, of which this is a part
        if path.startswith((*self._free, self._root)):
            return None
        return None if path.startswith(self._temporary) and not f"{path}{os.sep}".startswith(self._here) else path


_FOLDERS = ("dir_fd", "src_dir_fd", "dst_dir_fd")


def _found(status: Callable[[str], os.stat_result], there: str) -> os.stat_result | None:
    try:
        return status(there)
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def kept_apart(made: Sequence[str], free: Sequence[str]) -> Iterator[SecondRun]:
    """Keep the effects of this process on files and on other hosts apart while active."""
    with tempfile.TemporaryDirectory(prefix="tensortide-again-") as folder, contextlib.ExitStack() as stack:
        world = SecondRun(folder, made, free)
        for owner in (builtins, io):
            stack.enter_context(replaced(owner, "open", _opened(owner.open, world)))
        for name, around in _AROUND.items():
            module: Any = shutil if name == "rmtree" else os
            if hasattr(module, name):
                function = getattr(module, name)
                stack.enter_context(replaced(module, name, functools.wraps(function)(around(function, world))))
        for name in ("connect", "connect_ex"):
            stack.enter_context(replaced(socket.socket, name, _connected(getattr(socket.socket, name), world)))
        stack.enter_context(replaced(socket, "getaddrinfo", _looked_up(socket.getaddrinfo, world)))
        for variable in _OFFLINE:
            before = os.environ.get(variable)
            os.environ[variable] = "1"
            stack.callback(_put, variable, before)
        yield world


def _put(variable: str, value: str | None) -> None:
    os.environ.pop(variable, None)
    if value is not None:
        os.environ[variable] = value


@contextlib.contextmanager
def folders_made() -> Iterator[list[str]]:
    """Collect the folders that a first run makes while active."""
    made: list[str] = []
    mkdir = os.mkdir

    @functools.wraps(mkdir)
    def noted(path: Any, *args: Any, **options: Any) -> None:
        mkdir(path, *args, **options)
        if isinstance(path, (str, bytes, os.PathLike)):
            made.append(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 as above

    with replaced(os, "mkdir", noted):
        yield made


def _opened(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    @functools.wraps(function)
    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        path = world.path(file, options)
        if path is None or options.get("opener") is not None:  # which opens a file by another function
            return function(file, mode, *args, **options)
        if not set(mode) & set("wax+"):
            return function(world.read(path), mode, *args, **options)
        if "x" in mode and world.exists(world.read(path)):
            raise FileExistsError(17, "File exists", str(file))
        made = function(world.write(path, keeps="a" in mode or "r" in mode), mode, *args, **options)
        raw = getattr(made, "buffer", made)
        getattr(raw, "raw", raw).name = file  # as the script named it
        return made

    return opened


def _low_open(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def opened(name: Any, flags: int, *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        if path is None:
            return function(name, flags, *args, **options)
        if not flags & _CREATES:
            return function(world.read(path), flags, *args, **options)
        if not flags & os.O_CREAT and not world.exists(world.read(path)):
            raise FileNotFoundError(2, "No such file or directory", str(name))
        return function(world.write(path, keeps=not flags & os.O_TRUNC), flags, *args, **options)

    return opened


def _reading(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def read(name: Any = ".", *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        return function(name if path is None else world.read(path), *args, **options)

    return read


class Entries:
    """Entries of several folders as those of one, like ``os.scandir``."""

    def __init__(self, found: list[Any]) -> None:
        self._left = iter(found)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._left)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Have no more entries."""
        self._left = iter(())


def _listed(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def listed(name: Any = ".") -> Any:
        path = world.path(name, {})
        folders = [] if path is None or isinstance(name, bytes) else world.folders(path)
        if path is None or not folders:
            return function(name if path is None else world.read(path))
        found: dict[str, Any] = {}
        for there in folders:
            for each in function(name if there == path else there):  # as paths of entries begin
                found.setdefault(each if isinstance(each, str) else each.name, each)
        kept = [each for key, each in found.items() if world.exists(world.read(str(Path(path, key))))]
        return kept if function.__name__ == "listdir" else Entries(kept)

    return listed


def _removing(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def removed(name: Any, *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        if path is None:
            return function(name, *args, **options)
        there = world.read(path)
        if there != path or not world.exists(there):
            function(there, *args, **options)
        return world.remove(path)

    return removed


def _making(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def made(name: Any, *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        if path is None:
            return function(name, *args, **options)
        if world.made_anew(path):
            return None
        if world.exists(world.read(path)):
            raise FileExistsError(17, "File exists", str(name))
        return function(world.write(path), *args, **options)

    return made


def _moving(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def moved(source: Any, target: Any, *args: Any, **options: Any) -> Any:
        before, after = world.path(source, options), world.path(target, options)
        there = source if before is None else world.read(before)
        put = target if after is None else world.write(after)
        if before is None or there != before:
            function(there, put, *args, **options)
        elif not world.exists(there):
            raise FileNotFoundError(2, "No such file or directory", str(source))
        else:
            shutil.copytree(there, put) if world.is_folder(there) else world._copy(there, put)
        if before is not None and function.__name__ != "link":
            world.remove(before)

    return moved


def _changing(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def changed(name: Any, *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        if path is not None and world.is_folder(world.read(path)):
            return None
        return function(name if path is None else world.write(path, keeps=True), *args, **options)

    return changed


def _linking(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    def linked(source: Any, name: Any, *args: Any, **options: Any) -> Any:
        path = world.path(name, options)
        return function(source, name if path is None else world.write(path), *args, **options)

    return linked


_AROUND: dict[str, Callable[[Callable[..., Any], SecondRun], Callable[..., Any]]] = {
    "open": _low_open,
    **dict.fromkeys(("stat", "lstat", "access", "readlink"), _reading),
    **dict.fromkeys(("listdir", "scandir"), _listed),
    **dict.fromkeys(("remove", "unlink", "rmdir", "rmtree"), _removing),
    "mkdir": _making,
    **dict.fromkeys(("rename", "replace", "link"), _moving),
    **dict.fromkeys(("truncate", "chmod", "utime", "chown"), _changing),
    "symlink": _linking,
}
"""Functions of ``os`` and ``shutil`` that look at files or change them, and what is put around each."""


def _is_other(host: object) -> bool:
    said = host.decode() if isinstance(host, bytes) else host
    return (
        isinstance(said, str)
        and said != socket.gethostname()
        and not any(said == each or (each.endswith(".") and said.startswith(each)) for each in _LOCAL)
    )


def _connected(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    @functools.wraps(function)
    def connected(own: socket.socket, address: Any) -> Any:
        if own.family in (socket.AF_INET, socket.AF_INET6) and _is_other(address[0]):
            world.hosts.add(str(address[0]))
            raise ConnectionRefusedError(111, f"a script that runs again connects to no other host: {address[0]}")
        return function(own, address)

    return connected


def _looked_up(function: Callable[..., Any], world: SecondRun) -> Callable[..., Any]:
    @functools.wraps(function)
    def looked_up(host: Any, *args: Any, **options: Any) -> Any:
        if _is_other(host):
            world.hosts.add(str(host))
            raise socket.gaierror(socket.EAI_NONAME, f"a script that runs again connects to no other host: {host}")
        return function(host, *args, **options)

    return looked_up
