"""Options of requests as keywords of Python: those of the command line, with ``_`` for ``-``."""

from __future__ import annotations

import dataclasses
import keyword
from collections.abc import Mapping
from typing import Any, TypeVar

from tensortide.errors import RequestError
from tensortide.importers.door import as_text
from tensortide.python_object import near
from tensortide.request import Arg, Option, Request, made, options

_R = TypeVar("_R", bound=Request)
_OTHER_WORDS = {"gpu": "machine", "hyperparameters": "set"}
"""Names that ``fits`` and ``capture`` have for what an option says."""


def keyword_of(option: Option) -> str:
    """The name of an option in Python: that on the command line."""
    name = option.names[0].lstrip("-").replace("-", "_") if option.names else option.field.name
    return f"{name}_" if keyword.iskeyword(name) else name


def request_of(name: str, kind: type[_R], given: Mapping[str, Any]) -> _R:
    """The request of the function ``name`` with the options ``given``. Raises RequestError for one that there is
    not."""
    known = {keyword_of(one): one for one in options(kind)}
    for key in given:
        if key not in known:
            other = _OTHER_WORDS.get(key, "")
            hint = f"; did you mean {other}?" if other in known else near(key, known)
            raise RequestError(f"{name} has no option {key!r}{hint}")
    missing = [key for key, one in known.items() if one.default is dataclasses.MISSING and key not in given]
    if missing:
        raise RequestError(f"{name} needs {' and '.join(missing)}: see help(tensortide.{name})")
    return made(kind, {known[key].field.name: _value(known[key], value) for key, value in given.items()})


def _value(option: Option, value: Any) -> Any:
    """A value, of a target its text."""
    if not isinstance(option.opt, Arg):
        return value
    return tuple(map(as_text, value)) if option.is_tuple else as_text(value)
