"""Functions from which a workload's code gets integers: those that drop what a Size remembers.

While ``remembering`` is open, the names ``int``, ``round``, ``math.floor``, ``math.ceil``, ``math.isqrt`` and
``math.sqrt`` mean the functions here in the user's modules. They give the numbers that they always do. A float that
remembers nothing (``1.5*hidden`` is one, as Python asks 1.5 first) is read like a size of a tensor before it is
rounded: which expression it is, captures at several settings say.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import math
import re
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

from tensortide.expr import Size
from tensortide.expr.size import isqrt_of, square_root

Read: TypeAlias = Callable[[float], float]
_read: ContextVar[Read | None] = ContextVar("read", default=None)


def _rounding(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A function that rounds, of a float that has been read."""

    def rounding(*arguments: Any, **options: Any) -> Any:
        read = _read.get()
        if read is not None and len(arguments) == 1 and type(arguments[0]) is float and math.isfinite(arguments[0]):
            return plain(read(arguments[0]), **options)
        return plain(*arguments, **options)

    return rounding


_truncated, _rounded = _rounding(math.trunc), _rounding(round)


class _IsInt(type):
    """The kind of a class that stands for ``int``: whatever is an integer is one of its objects."""

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if len(arguments) == 1 and isinstance(arguments[0], (Size, float)) and math.isfinite(arguments[0]):
            return _truncated(*arguments)
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


_INSTEAD: dict[object, object] = {
    math.isqrt: _isqrt,
    math.sqrt: _sqrt,
    math.floor: _rounding(math.floor),
    math.ceil: _rounding(math.ceil),
}
_MATH = types.SimpleNamespace(**{n: _INSTEAD.get(v, v) for n, v in vars(math).items() if not n.startswith("__")})
_INSTEAD[math] = _MATH
_BUILTIN = {"int": _Int, "round": _rounded}
_TAKE_ANY = {"isinstance", "issubclass", "map", "defaultdict"}
"""Functions to which a class that stands for ``int`` is as good."""
_MAY_BE_GIVEN = re.compile(r"[(,=\n\\]\s*int\s*[,)#\n\\]")
"""Text around an ``int`` that may be an argument; every argument has such a text."""
_INSTALLED = {*map(str, map(Path, sysconfig.get_paths().values())), sys.base_prefix, str(Path(__file__).parents[1])}


class _Namespaces:
    """Namespaces of the user's modules, with what their names mean while integers remember."""

    def __init__(self) -> None:
        self._searched: set[str] = set()
        self._known: dict[int, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {}

    def search(self, own: dict[str, Any]) -> None:
        """Note ``own`` and the namespaces of modules imported since the last search."""
        new = [(name, module) for name, module in list(sys.modules.items()) if name not in self._searched]
        self._searched.update(name for name, _ in new)
        for names in (own, *(vars(module) for _, module in new if _is_users(module))):
            if id(names) not in self._known:
                self._known[id(names)] = (names, *_replacements(names))

    def replace(self) -> None:
        """Put the functions that remember in the place of others."""
        for names, _, instead in self._known.values():
            names.update(instead)

    def restore(self) -> None:
        """Undo ``replace``."""
        for names, plain, _ in self._known.values():
            names.update(plain)
            for name, function in _BUILTIN.items():
                if names.get(name) is function:
                    del names[name]


_namespaces: ContextVar[_Namespaces | None] = ContextVar("namespaces", default=None)


@contextlib.contextmanager
def searched_once() -> Iterator[None]:
    """Search each module for functions to replace once while active, not in every ``remembering``: there may be
    hundreds, and what their names mean does not change from capture to capture."""
    token = _namespaces.set(_Namespaces())
    try:
        yield
    finally:
        _namespaces.reset(token)


@contextlib.contextmanager
def remembering(workload: Callable[..., Any], read: Read) -> Iterator[None]:
    """Let integers made from Sizes remember what they are, in the module of ``workload`` and in others of the user.

    ``read`` makes a float that remembers its expression of one that does not.
    """
    namespaces = _namespaces.get() or _Namespaces()
    namespaces.search(getattr(inspect.unwrap(workload), "__globals__", {}))
    namespaces.replace()
    token = _read.set(read)
    try:
        yield
    finally:
        _read.reset(token)
        namespaces.restore()


def _replacements(names: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Functions and modules among a module's names that are replaced, and what their names and those of built-in
    functions mean instead."""
    kinds = (types.ModuleType, types.BuiltinFunctionType)
    plain = {name: value for name, value in names.items() if isinstance(value, kinds) and value in _INSTEAD}
    type_is_used = _uses_the_type(str(names.get("__file__")))
    builtin = {name: function for name, function in _BUILTIN.items() if not (name == "int" and type_is_used)}
    instead = {name: _INSTEAD[value] for name, value in plain.items()}
    return plain, instead | {name: function for name, function in builtin.items() if name not in names}


@functools.cache
def _uses_the_type(file: str) -> bool:
    """Return whether a file of source hands ``int`` itself to a function (``dtype=int``), which may need the type."""
    text = "".join(linecache.getlines(file))
    if _MAY_BE_GIVEN.search(text) is None:  # most files are not parsed, which takes long
        return False
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return True
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    given = ((call.func, [*call.args, *(keyword.value for keyword in call.keywords)]) for call in calls)
    return any(
        isinstance(value, ast.Name) and value.id == "int"
        for function, values in given
        if not (isinstance(function, ast.Name) and function.id in _TAKE_ANY)
        for value in values
    )


def _is_users(module: types.ModuleType) -> bool:
    """Return whether a module is neither installed nor part of this package."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and _is_users_file(file)


@functools.cache
def _is_users_file(file: str) -> bool:
    return _INSTALLED.isdisjoint([file, *map(str, Path(file).parents)])
