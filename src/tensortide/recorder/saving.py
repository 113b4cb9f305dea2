"""Suppression of files that a program saves while it runs on fake tensors: existing ones are kept, and what would have
been written is read back from memory."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import io
import os
import pickle
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from tensortide.recorder.reading import reader
from tensortide.recorder.readings import shortened
from tensortide.recorder.saved_in_memory import Unwritten, content, loading
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor
from tensortide.recorder.unwritten_listed import listing

_WRITERS = (
    *(("torch", "save"), ("torch.serialization", "save"), ("torch.distributed.checkpoint", "save")),
    *(("safetensors.torch", "save_file"), ("safetensors.torch", "save_model"), ("numpy", "save"), ("numpy", "savez")),
    ("numpy", "savez_compressed"),
)
"""Functions that write tensors or arrays to files, by module and name."""
_MOVERS = (
    *((os, "replace"), (os, "rename"), (os, "link"), (shutil, "move")),
    *((shutil, "copy"), (shutil, "copy2"), (shutil, "copyfile")),
)
_LAZY = ("safetensors.torch",)
"""Modules to import first, as other modules import these functions by name."""


@contextlib.contextmanager
def nothing_saved(note: Callable[[str], None]) -> Iterator[None]:
    """Make functions that save tensors write nothing while active. ``note`` receives the place of each call."""
    for module in _LAZY:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    unwritten: Unwritten = {}
    opened = _opening_aside(unwritten, builtins.open)
    with contextlib.ExitStack() as stack:
        for module, name in _WRITERS:
            owner = sys.modules.get(module)
            if hasattr(owner, name):
                writer = _writing_nothing(getattr(owner, name), module, note, unwritten)
                stack.enter_context(replaced(owner, name, writer))
        for owner, name in _MOVERS:
            stack.enter_context(replaced(owner, name, _moving_what_is_written(getattr(owner, name), unwritten)))
        for owner, name, around in (
            *((os, name, _found_in_memory) for name in ("stat", "lstat")),
            *((os, name, _removed) for name in ("remove", "unlink")),
            *((os, name, _allowed) for name in ("access", "chmod", "utime")),
            *((os, name, listing) for name in ("listdir", "scandir")),
            (torch, "load", loading),
            (torch.serialization, "load", loading),
            (sys.modules.get("safetensors.torch"), "load_file", loading),
            (sys.modules.get("numpy"), "load", loading),
        ):
            if hasattr(owner, name):
                stack.enter_context(replaced(owner, name, around(getattr(owner, name), unwritten)))
        for owner in (builtins, io):
            stack.enter_context(replaced(owner, "open", opened))
        stack.enter_context(replaced(pickle, "dump", _pickling_no_tensor(note, unwritten)))
        yield


def _moving_what_is_written(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``function``, which gives a file another name or copies it, without effect on one that was not written: programs
    write a checkpoint beside the one that it then replaces."""
    keeps = function.__name__.startswith(("copy", "link"))

    @functools.wraps(function)
    def moved(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        before = _path(source)
        if before is None or before not in unwritten:
            return function(source, target, *args, **kwargs)
        after = Path(target, Path(before).name) if Path(target).is_dir() else target
        unwritten[os.path.realpath(after)] = unwritten[before] if keeps else unwritten.pop(before)
        return target

    return moved


def _found_in_memory(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``os.stat``, which finds a file that was not written and that nothing of its name stands for."""
    inside = False

    @functools.wraps(function)
    def found(path: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal inside
        try:
            return function(path, *args, **kwargs)
        except FileNotFoundError:
            if inside or not unwritten:  # the real path of a file is found through its status
                raise
            inside = True
            try:
                name = _path(path) or ""
                held = unwritten.get(name) if Path(name).parent.is_dir() else None  # else its folder was removed
            finally:
                inside = False
            if held is None:
                raise
            when = held.written_s
            fields = (stat.S_IFREG | 0o644, 0, 0, 1, 0, 0, len(held), *(int(when),) * 3)
            return os.stat_result(fields, {f"st_{each}time": when for each in "amc"})

    return found


def _removed(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``os.remove``, for which a file that was not written is enough."""

    @functools.wraps(function)
    def removed(path: Any, *args: Any, **kwargs: Any) -> None:
        if unwritten.pop(_path(path) or "", None) is None:
            function(path, *args, **kwargs)

    return removed


def _allowed(function: Callable[..., Any], unwritten: Unwritten) -> Callable[..., Any]:
    """``os.access``, or a function that changes how a file is marked: each is allowed for one that was not written."""

    @functools.wraps(function)
    def allowed(path: Any, *args: Any, **kwargs: Any) -> Any:
        if not unwritten or _path(path) not in unwritten:
            return function(path, *args, **kwargs)
        return True

    return allowed


class _Aside(io.FileIO):
    """A file that is written under another name, and takes its own when it is closed: never, if ``unwritten`` has it by
    then, so that one that is there stays as it is."""

    def __init__(self, path: str, mode: str, unwritten: Unwritten) -> None:
        self._aside = f"{path}.{os.getpid()}.unfinished"
        self._unwritten = unwritten
        super().__init__(self._aside, mode)
        self.name = path
        with contextlib.suppress(OSError):
            shutil.copymode(path, self._aside)

    def close(self) -> None:
        """As the base class."""
        if self.closed:
            return
        super().close()
        if _path(self.name) in self._unwritten:
            Path(self._aside).unlink(missing_ok=True)
        else:
            _replace(self._aside, self.name)


_open, _replace, _dump = open, os.replace, pickle.dump


def _opening_aside(unwritten: Unwritten, function: Callable[..., Any]) -> Callable[..., Any]:
    """``open``, which empties no file: what is opened to be written anew, in bytes, is written beside it first."""
    apart = function is not _open  # files are written elsewhere anyway

    @functools.wraps(function)
    def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        path = _path(file)
        if path in unwritten and "r" in mode and "b" in mode:
            return io.BytesIO(unwritten[path])
        anew = not apart and sorted(mode.replace("+", "")) == ["b", "w"]
        if path is None or not anew or not (Path(path).is_file() or _is_free(path)):
            return function(file, mode, buffering, *args, **kwargs)
        raw = _Aside(os.path.realpath(path), mode, unwritten)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        return io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)

    return opened


def _is_free(path: str) -> bool:
    return not os.path.lexists(path) and Path(path).parent.is_dir()


def _path(file: Any) -> str | None:
    """The real path of a file, given by its name or open; None if it has none."""
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", None)
    return os.path.realpath(os.fsdecode(name)) if isinstance(name, (str, bytes, os.PathLike)) else None


def _pickling_no_tensor(note: Callable[[str], None], unwritten: Unwritten) -> Callable[..., None]:
    """``pickle.dump``, which writes nothing if there is a fake tensor in what it is given."""

    @functools.wraps(_dump)
    def dumped(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        try:
            with replaced(FakeTensor, "__reduce_ex__", _refused):
                content = pickle.dumps(value, *args, **kwargs)
        except _FakeError:
            _writing_nothing(_dump, "pickle", note, unwritten)(value, file)
        else:
            file.write(content)

    return dumped


class _FakeError(Exception):
    """A fake tensor would have been written."""


def _refused(*_: Any) -> Any:
    raise _FakeError


def _writing_nothing(
    function: Callable[..., Any], module: str, note: Callable[[str], None], unwritten: Unwritten
) -> Callable[..., None]:
    @functools.wraps(function)
    def saves(*args: Any, **kwargs: Any) -> None:
        given = (*args, *kwargs.values())
        saved = [each for each in given if _path(each) is None and not hasattr(each, "write")]
        arrays = {**{f"arr_{at}": each for at, each in enumerate(args[1:])}, **kwargs}
        held = content(arrays if function.__name__.startswith("savez") else next(iter(saved), None))
        unwritten.update((path, held) for each in given if (path := _path(each)) is not None)
        for each in given:
            if isinstance(each, io.BytesIO):
                each.write(held)
        frame, _ = reader(sys._getframe(1))
        place = "" if frame is None else f" at {shortened(frame.f_code.co_filename)}:{frame.f_lineno}"
        note(f"{module}.{function.__name__} wrote no file{place}: fake tensors have no values")

    return saves
