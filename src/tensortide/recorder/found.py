"""Modules, optimizers and tensors of a step, by the names that user code has for them."""

from __future__ import annotations

import gc
import inspect
import sys
from collections import UserDict
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import FrameType, FunctionType, GetSetDescriptorType, ModuleType
from typing import Any, TypeVar

import torch

from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.torch_compat import is_compiled

T = TypeVar("T")

_DEPTH = 5
"""Most levels of containers and objects that are searched from a variable."""
_MOST = 100
"""Most items of a container that are searched."""
_OWN = "tensortide.recorder."
_HISTORY = ("In", "Out")
"""Variables of a notebook that repeat the values of others."""
_LIMIT = 10_000
"""Most objects of one level that are searched."""
_PLAIN = (int, float, str, bool, bytes, type(None))
_CLOSED = (type, ModuleType, FunctionType, torch.utils.data.Dataset, torch.utils.data.DataLoader)
"""Types of objects that are not searched."""


@dataclass
class Found:
    """Modules, optimizers and tensors by path."""

    modules: dict[str, torch.nn.Module] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    tensors: MutableMapping[str, torch.Tensor] = field(default_factory=dict)

    def is_compiled(self) -> bool:
        """True if ``torch.compile`` made a module, or compiles its calls."""
        every = (module for root in self.modules.values() for module in root.modules())
        return any(is_compiled(module) for module in every)

    def roots(self) -> dict[str, torch.nn.Module]:
        """The outermost modules by path prefix; the only one that holds parameters has the prefix ``""``."""
        inner = {id(child) for root in self.modules.values() for child in root.modules() if child is not root}
        outer = {name: module for name, module in self.modules.items() if id(module) not in inner}
        models = [name for name, module in outer.items() if next(module.parameters(), None) is not None]
        return {("" if models == [name] else name): module for name, module in outer.items()}


def join(path: str, key: object) -> str:
    """The path of the item ``key`` of the object at ``path``."""
    if not isinstance(key, str):
        return f"{path}[{key!r}]" if isinstance(key, int) else path
    return f"{path}.{key}" if path else key


def variables(frame: FrameType | None) -> Found:
    """Everything reachable from the variables of user code: of the user's own functions first, from the outermost in,
    then of libraries.

    A frame caches the variables that it was asked for. The cache is cleared, or it would keep tensors resident.
    """
    values: list[tuple[str, Any]] = []
    for each in _user_frames(frame):
        given = each.f_locals
        values += [(name, given[name]) for name in given if not name.startswith("_") and name not in _HISTORY]
        if each.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(given, dict):
            given.clear()
    return _reached(values)


def reached(value: Any, path: str) -> Found:
    """Everything reachable from ``value``, whose name is ``path``."""
    return _reached([(path, value)])


def _reached(level: list[tuple[str, Any]]) -> Found:
    """Everything reachable from the values of ``level``, by the shortest path."""
    found, seen = Found(), set[int]()
    for _ in range(_DEPTH):
        inside: list[tuple[str, Any]] = []
        for path, value in level:
            kind = type(value)
            if kind in _PLAIN or id(value) in seen or str(kind.__module__).startswith(_OWN):
                continue
            seen.add(id(value))
            if issubclass(kind, torch.Tensor):
                found.tensors.setdefault(path, value)
            elif issubclass(kind, torch.nn.Module):
                found.modules.setdefault(path, value)
            elif issubclass(kind, torch.optim.Optimizer):
                found.optimizers.setdefault(path, value)
            elif not issubclass(kind, _CLOSED) and len(inside) < _LIMIT:
                inside += [(join(path, key), item) for key, item in _inside(value)]
        level = inside
    return found


def _user_frames(frame: FrameType | None) -> list[FrameType]:
    """Frames of user code, the user's own before those of libraries that it calls, each from the outermost in."""
    frames: list[FrameType] = []
    while frame is not None:
        if not is_internal(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    own = [each for each in frames if "site-packages" not in each.f_code.co_filename]
    called = frames[frames.index(own[0]) :] if own else frames
    return own + [each for each in called if each not in own]


def _inside(value: Any) -> Iterable[tuple[object, Any]]:
    """Items of a container or attributes of an object, by key, index or name.

    Nothing that the program has written runs: neither a property, nor ``__getattr__``, nor the methods of a container
    of its own, which may raise or load.
    """
    kind = type(value)
    if issubclass(kind, dict):
        return [*islice(dict.items(value), _MOST)]
    if issubclass(kind, (list, tuple)):
        items = list if issubclass(kind, list) else tuple
        return enumerate(items.__getitem__(value, slice(_MOST)))
    attributes = _attributes(value)
    held = attributes.get("data") if issubclass(kind, UserDict) else None
    return [*islice((held if type(held) is dict else attributes).items(), _MOST)]


def _attributes(value: Any) -> dict[str, Any]:
    """The attributes that an object stores; empty for one whose class computes them."""
    for kind in type(value).__mro__:
        stored = vars(kind).get("__dict__")
        if stored is not None:
            found = stored.__get__(value) if isinstance(stored, GetSetDescriptorType) else None
            return found if type(found) is dict else {}
    return {}


def caller() -> str:
    """The name of the file whose code calls, or a fixed name for a cell of a notebook."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    file = Path(frame.f_code.co_filename) if frame is not None else None
    return file.name if file is not None and file.is_file() else "recorded step"


def existing(kind: type[T]) -> list[T]:
    """Every instance of a class that the garbage collector knows, subclasses included."""
    return [value for value in gc.get_objects() if issubclass(type(value), kind)]


def named(objects: Iterable[T], names: Mapping[str, T]) -> dict[str, T]:
    """Each object under its name in ``names``, else under that of its class; numbered if the name is taken."""
    known = {id(value): name for name, value in reversed([*names.items()])}
    places = {name: place for place, name in enumerate(names)}
    result: dict[str, T] = {}
    for value in sorted(objects, key=lambda value: places.get(known.get(id(value), ""), len(places))):
        plain = known.get(id(value), type(value).__name__)
        name, number = plain, 2
        while name in result:
            name, number = f"{plain}_{number}", number + 1
        result[name] = value
    return result
