"""Functions over arrays, compiled by Numba where it is installed, else run by Python as they stand."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

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

    Numba's own cache looks at one file only; so the machine code lies in a folder named after all of them, and after
    ``shared``, values from elsewhere that were compiled in.
    """
    config: Any = numba.config
    before = config.CACHE_DIR
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tensortide"
    config.CACHE_DIR = str(home / f"kernels-{_digest(folder, shared)}")
    try:
        yield
    finally:
        config.CACHE_DIR = before


@functools.cache
def _digest(folder: Path, shared: str) -> str:
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    sources.update(shared.encode())
    return sources.hexdigest()[:16]
