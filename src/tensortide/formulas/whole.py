"""Functions from which a workload's code gets integers: those of ``int`` and ``math`` that drop what a Size remembers.

While ``remembering`` is open, the names ``int``, ``math.isqrt`` and ``math.sqrt`` mean the functions here in the
user's modules. They give the numbers that they always do.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tensortide.expr import Quotient, Size
from tensortide.expr.size import Root, isqrt_of, square_root


class _IsInt(type):
    """The kind of a class that stands for ``int``: whatever is an integer is one of its objects."""

    def __call__(cls, *arguments: Any, **options: Any) -> int:
        if len(arguments) == 1 and isinstance(arguments[0], (Size, Quotient, Root)):
            return math.trunc(arguments[0])
        return int(*arguments, **options)

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, int)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, int)

    def __eq__(cls, other: object) -> bool:
        return other is int or other is cls

    def __hash__(cls) -> int:
        return hash(int)


class _Int(int, metaclass=_IsInt):
    """``int`` by another name."""


def _isqrt(value: Any) -> int:
    return isqrt_of(value) if isinstance(value, Size) else math.isqrt(value)


def _sqrt(value: Any) -> float:
    return square_root(value) if isinstance(value, Size) and value >= 0 else math.sqrt(value)


_MATH = types.SimpleNamespace(**{**vars(math), "isqrt": _isqrt, "sqrt": _sqrt})
_INSTEAD: dict[object, object] = {math: _MATH, math.isqrt: _isqrt, math.sqrt: _sqrt}
_INSTALLED = {*sysconfig.get_paths().values(), sys.base_prefix, str(Path(__file__).parents[1])}


@contextlib.contextmanager
def remembering(workload: Callable[..., Any]) -> Iterator[None]:
    """Let integers made from Sizes remember what they are, in the module of ``workload`` and in others of the user."""
    own: dict[str, Any] = getattr(inspect.unwrap(workload), "__globals__", {})
    places = {id(names): names for names in (own, *(vars(m) for m in list(sys.modules.values()) if _is_users(m)))}
    before = [(names, _replaced(names)) for names in places.values()]
    try:
        yield
    finally:
        for names, plain in before:
            names.update(plain)
            if names.get("int") is _Int:
                del names["int"]


def _replaced(names: dict[str, Any]) -> dict[str, Any]:
    """Put functions that remember in the place of others among a module's names; return what was there."""
    kinds = (types.ModuleType, types.BuiltinFunctionType)
    plain = {name: value for name, value in names.items() if isinstance(value, kinds) and value in _INSTEAD}
    names.update({name: _INSTEAD[value] for name, value in plain.items()})
    names.setdefault("int", _Int)
    return plain


def _is_users(module: types.ModuleType) -> bool:
    """Return whether a module is neither installed nor part of this package."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_users_file(file)


@functools.cache
def _is_users_file(file: str) -> bool:
    return not any(Path(file).is_relative_to(folder) for folder in _INSTALLED)
