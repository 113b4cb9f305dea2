"""Functions over arrays, compiled by Numba where it is installed, else run by Python as they stand."""

from __future__ import annotations

import functools
import hashlib
import io
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import EnumType
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tensortide.collector import no_collection
from tensortide.sealed import is_whole, write_sealed
from tensortide.user_cache import cache_folder, claim_folder

try:
    import numba.core.caching
    import numba.core.event
    import numba.extending
except ImportError:
    IS_COMPILED = False
else:
    IS_COMPILED = True


def compiling_s() -> float:
    """Seconds that this process has spent compiling so far: a time limit of a search does not count them."""
    return 0.0 if _compilations is None else float(_compilations.so_far())


def _listener() -> Any:
    """The clock of all compilations. Garbage is collected after each: a compiler makes many objects that live, and the
    collector would look through them again and again, for a tenth of the time."""
    if not IS_COMPILED:
        return None
    event: Any = numba.core.event

    class Compilations(event.Listener):  # type: ignore[misc]
        def __init__(self) -> None:
            self.seconds, self._depth, self._meanwhile = 0.0, 0, ExitStack()

        def on_start(self, event: object) -> None:
            if self._depth == 0:
                self._started = time.perf_counter()
                self._meanwhile.enter_context(no_collection())
            self._depth += 1

        def so_far(self) -> float:
            return self.seconds + (time.perf_counter() - self._started if self._depth else 0.0)

        def on_end(self, event: object) -> None:
            self._depth -= 1
            if self._depth == 0:
                self.seconds += time.perf_counter() - self._started
                self._meanwhile.close()

    found = Compilations()
    event.register("numba:compile", found)
    return found


_compilations = _listener()

_inner: set[Callable[..., Any]] = set()
"""Functions that are compiled into others."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which makes no array and keeps none, into the compiled functions that call it.

    Called by Python it runs as it stands, slowly, so what Python calls is an ``entry``; a test finds other calls. It is
    half as much to compile without the code that takes the arguments of Python apart.

    Without counts of references: every call would count those of every array.
    """
    return _compiled_into_callers(function, counts_references=False)


def making_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which may make arrays, into the compiled functions that call it."""
    return _compiled_into_callers(function, counts_references=True)


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which makes no array and keeps none, when it is first called."""
    return _compiled(function, counts_references=False)


def entry_making_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile ``function``, which may make arrays, when it is first called."""
    return _compiled(function, counts_references=True)


def entry_with(*packages: ModuleType) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile as ``entry`` a function that calls compiled ones of other ``packages``, too."""
    shared = "".join(_digest(Path(str(package.__file__)).parent, "") for package in packages)
    return lambda function: _compiled(function, counts_references=False, shared=shared)


def _compiled_into_callers(function: Callable[..., Any], counts_references: bool) -> Callable[..., Any]:
    if IS_COMPILED:
        numba.extending.register_jitable(_nrt=counts_references)(function)
        _inner.add(function)
    return function


def _compiled(function: Callable[..., Any], counts_references: bool, shared: str = "") -> Callable[..., Any]:
    if not IS_COMPILED:
        return function
    options: dict[str, Any] = {"nogil": True, "cache": True, "_nrt": counts_references}
    with _kept(Path(function.__code__.co_filename).parent, shared):
        made: Callable[..., Any] = numba.njit(**options)(function)
    return made


@contextmanager
def _kept(folder: Path, shared: str = "") -> Iterator[None]:
    """Have the machine code of what is decorated meanwhile kept beside that of the same sources of ``folder``.

    Numba's own cache looks at one file only, and at its path; so the machine code lies in a folder named after all
    sources, after ``shared``, values from elsewhere that were compiled in, and after the version of Numba. Every clone
    and every installation of the same sources finds it there, until nobody has used it for long (``user_cache``).

    Numba takes what it finds for whole; so its files are sealed, and those that are not whole count as missing.
    """
    config: Any = numba.config
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    kernels = cache_folder() / f"kernels-{_digest(folder, shared + numba.__version__)}"
    config.CACHE_DIR = str(kernels)
    if claim_folder(kernels):
        config.CACHE_LOCATOR_CLASSES = f"{__name__}.{Locator.__name__}"
    caching: Any = numba.core.caching
    files = caching.IndexDataCacheFile
    caching.IndexDataCacheFile = _sealed(files)
    try:
        yield
    finally:
        caching.IndexDataCacheFile = files
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


@functools.cache
def _sealed(files: Any) -> type[Any]:
    """Derive from Numba's class for the files of one function, an index and machine code, one of sealed files."""

    class SealedFiles(files):  # type: ignore[misc]
        def save(self, key: Any, data: Any) -> None:
            with suppress(OSError):  # it is compiled again next time
                super().save(key, data)

        def _load_index(self) -> Any:
            return super()._load_index() if is_whole(Path(self._index_path)) else {}

        def _load_data(self, name: str) -> Any:
            if not is_whole(Path(self._data_path(name))):
                raise FileNotFoundError(name)
            return super()._load_data(name)

        @contextmanager
        def _open_for_write(self, path: str) -> Iterator[io.BytesIO]:
            content = io.BytesIO()
            yield content
            write_sealed(Path(path), content.getvalue())

    return SealedFiles


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
    """List what is compiled into ``function`` and those that it calls, and may come from another folder: numbers,
    members of enumerations, and fields of tuples."""
    found: list[object] = []
    for name, value in sorted(function.__globals__.items()):
        plain = getattr(value, "py_func", value)
        if isinstance(value, int | float):
            found.append((name, value))
        elif isinstance(value, EnumType):
            found.append((name, list(value)))
        elif isinstance(value, type) and hasattr(value, "_fields"):
            found.append((name, value._fields))
        elif (
            isinstance(plain, FunctionType)
            and (plain is not value or plain in _inner)
            and plain.__globals__ is not function.__globals__
        ):
            found.append((name, _constants(plain)))
    return found


@functools.cache
def _digest(folder: Path, shared: str) -> str:
    sources = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(folder.glob("*.py"))))
    sources.update(shared.encode())
    return sources.hexdigest()[:16]
