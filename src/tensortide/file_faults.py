"""Faults of files that show as failures of Python itself: nesting, numbers and sizes beyond what it can hold."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, TypeVar

from tensortide.errors import TensortideError

PathName = str | os.PathLike[str]
Options = ParamSpec("Options")
Read = TypeVar("Read")
Named = TypeVar("Named", bound=PathName)


@contextmanager
def reading(path: PathName, kind: type[TensortideError] = TensortideError) -> Iterator[None]:
    """Turn what the content of a file makes Python fail with into one error of ``kind`` that names the file.

    >>> with reading("deep.json"):
    ...     json.loads("[" * 100_000)  # doctest: +SKIP
    TensortideError: deep.json cannot be read: it is nested too deeply

    Every door through which files come in stands around its reader with this.
    """
    try:
        yield
    except RecursionError as error:
        raise kind(f"{path} cannot be read: it is nested too deeply") from error
    except MemoryError as error:
        raise kind(f"{path} cannot be read: it does not fit in memory") from error
    except (OverflowError, ZeroDivisionError) as error:
        raise kind(f"{path} cannot be read: a number in it is out of range ({error})") from error
    except ValueError as error:
        if "integer string conversion" not in str(error):  # the limit of Python on digits has no class of its own
            raise
        raise kind(f"{path} cannot be read: a number in it has too many digits") from error


def reader(function: Callable[Concatenate[Named, Options], Read]) -> Callable[Concatenate[Named, Options], Read]:
    """Decorate a reader, whose first argument is the path, so that all of it stands under ``reading``."""

    @functools.wraps(function)
    def read(path: Named, /, *args: Options.args, **options: Options.kwargs) -> Read:
        with reading(path):
            return function(path, *args, **options)

    return read
