"""Functions over arrays, compiled by Numba where it is installed, else run by Python as they stand."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from tensortide.user_cache import cache_folder, claim_folder

try:
    import numba
except ImportError:
    IS_COMPILED = False
else:
    IS_COMPILED = True


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which makes no array and keeps none, when it is first called.

    Without counts of references: every call would count those of every array.
    """
    return _compiled(function, {"nogil": True, "cache": True, "_nrt": False})


def making_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which may make arrays, when it is first called."""
    return _compiled(function, {"nogil": True, "cache": True})


def compiled_with(*packages: ModuleType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile as ``compiled`` a function that calls compiled ones of other ``packages``, too."""
    shared = "".join(_digest(Path(str(package.__file__)).parent, "") for package in packages)
    return lambda function: _compiled(function, {"nogil": True, "cache": True, "_nrt": False}, shared)


def _compiled(function: Callable[..., Any], options: dict[str, Any], shared: str = "") -> Callable[..., Any]:
    if not IS_COMPILED:
        return function
    with kept(Path(function.__code__.co_filename).parent, shared):
        made: Callable[..., Any] = numba.njit(**options)(function)
    return made


@contextmanager
def kept(folder: Path, shared: str = "") -> Iterator[None]:
    """Have the machine code of what is decorated meanwhile kept beside that of the same sources of ``folder``.

    Numba's own cache looks at one file only, and at its path; so the machine code lies in a folder named after all
    sources, after ``shared``, values from elsewhere that were compiled in, and after the version of Numba. Every clone
    and every installation of the same sources finds it there, until nobody has used it for long (``user_cache``).
    """
    config: Any = numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    kernels = cache_folder() / f"kernels-{_digest(folder, shared + numba.__version__)}"
    config.CACHE_DIR = str(kernels)
    if claim_folder(kernels):
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Locator.__name__}"
    try:
        yield
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


class Locator:
    """Location of the machine code of one function in the folder that is set, as Numba asks for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        config: Any = numba.config
        self._folder: str = config.CACHE_DIR
        self._line = function.__code__.co_firstlineno
        self._stamp = hashlib.sha256(repr(_constants(function)).encode()).hexdigest()

    @classmethod
    def from_function(cls, function: Callable[..., Any], path: str) -> Locator:
        """Locate ``function``, wherever its source lies."""
        del path
        return cls(function)

    def ensure_cache_path(self) -> None:
        """Make the folder."""
        Path(self._folder).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        """Return the folder."""
        return self._folder

    def get_source_stamp(self) -> str:
        """Return what differs where machine code in the folder is of other constants."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """Return what differs for functions of one name."""
        return str(self._line)


def _constants(function: Callable[..., Any]) -> list[object]:
    """List what is compiled into ``function`` and those that it calls, and may come from another folder: numbers, and
    fields of tuples."""
    found: list[object] = []
    for name, value in sorted(function.__globals__.items()):
        if isinstance(value, int | float):
            found.append((name, value))
        elif isinstance(value, type) and hasattr(value, "_fields"):
            found.append((name, value._fields))
        elif hasattr(value, "py_func") and value.py_func.__globals__ is not function.__globals__:
            found.append((name, _constants(value.py_func)))
    return found


@functools.cache
def _digest(folder: Path, shared: str) -> str:
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    sources.update(shared.encode())
    return sources.hexdigest()[:16]
