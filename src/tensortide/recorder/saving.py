"""Suppression of files that a program saves while it runs on fake tensors; existing ones are kept."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import io
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensortide.recorder.reading import reader
from tensortide.recorder.readings import shortened
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import FakeTensor

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
    unwritten: set[str] = set()
    opened = _opening_aside(unwritten)
    with contextlib.ExitStack() as stack:
        for module, name in _WRITERS:
            owner = sys.modules.get(module)
            if hasattr(owner, name):
                writer = _writing_nothing(getattr(owner, name), module, note, unwritten)
                stack.enter_context(replaced(owner, name, writer))
        for owner, name in _MOVERS:
            stack.enter_context(replaced(owner, name, _moving_what_is_written(getattr(owner, name), unwritten)))
        for owner in (builtins, io):
            stack.enter_context(replaced(owner, "open", opened))
        stack.enter_context(replaced(pickle, "dump", _pickling_no_tensor(note, unwritten)))
        yield


def _moving_what_is_written(function: Callable[..., Any], unwritten: set[str]) -> Callable[..., Any]:
    """``function``, which gives a file another name or copies it, without effect on one that was not written: programs
    write a checkpoint beside the one that it then replaces."""

    @functools.wraps(function)
    def moved(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        return target if _path(source) in unwritten else function(source, target, *args, **kwargs)

    return moved


class _Aside(io.FileIO):
    """A file that is written under another name, and takes its own when it is closed: never, if ``unwritten`` has it by
    then, so that one that is there stays as it is."""

    def __init__(self, path: str, mode: str, unwritten: set[str]) -> None:
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


def _opening_aside(unwritten: set[str]) -> Callable[..., Any]:
    """``open``, which empties no file: what is opened to be written anew, in bytes, is written beside it first."""

    @functools.wraps(_open)
    def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **kwargs: Any) -> Any:
        path = _path(file)
        if path is None or sorted(mode.replace("+", "")) != ["b", "w"] or not (Path(path).is_file() or _is_free(path)):
            return _open(file, mode, buffering, *args, **kwargs)
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


def _pickling_no_tensor(note: Callable[[str], None], unwritten: set[str]) -> Callable[..., None]:
    """``pickle.dump``, which writes nothing if there is a fake tensor in what it is given."""

    @functools.wraps(_dump)
    def dumped(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        try:
            with replaced(FakeTensor, "__reduce_ex__", _refused):
                content = pickle.dumps(value, *args, **kwargs)
        except _FakeError:
            _writing_nothing(_dump, "pickle", note, unwritten)(file)
        else:
            file.write(content)

    return dumped


class _FakeError(Exception):
    """A fake tensor would have been written."""


def _refused(*_: Any) -> Any:
    raise _FakeError


def _writing_nothing(
    function: Callable[..., Any], module: str, note: Callable[[str], None], unwritten: set[str]
) -> Callable[..., None]:
    @functools.wraps(function)
    def saved(*args: Any, **kwargs: Any) -> None:
        unwritten.update(path for arg in (*args, *kwargs.values()) if (path := _path(arg)) is not None)
        frame, _ = reader(sys._getframe(1))
        place = "" if frame is None else f" at {shortened(frame.f_code.co_filename)}:{frame.f_lineno}"
        note(f"{module}.{function.__name__} wrote no file{place}: fake tensors have no values")

    return saved
