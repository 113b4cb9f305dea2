"""The types in a dump: ``f32[8, 3]``, with strides and device in newer ones, symbols in dynamic ones."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from tensortide.dtypes import storage_bytes, tagged
from tensortide.importers.exported.sizes import Unreadable, read_expression

TAGS = tagged("inductor")
"""dtype of each tag."""
_TAG_OF = {dtype: tag for tag, dtype in TAGS.items()}

_TENSOR = re.compile(r"([A-Za-z]\w*)\[([^\[\]]*)\](?:\[([^\[\]]*)\])?\s*([a-z]+(?::\d+)?)?", re.ASCII)
_SYMBOL = re.compile(r"Sym\((.+)\)", re.ASCII)


class Bad(ValueError):
    """A text is no type, or no dimension; ``at`` is where in it."""

    def __init__(self, reason: str, at: int = 0) -> None:
        super().__init__(reason)
        self.at = at


class TensorType(NamedTuple):
    """A tensor's type. Dimensions and strides are numbers, or expressions of symbols as text."""

    dtype: str
    dims: tuple[int | str, ...]
    strides: tuple[int | str, ...] | None = None
    device: str = ""


class SymbolType(NamedTuple):
    """The type of a number that is an expression of symbols."""

    expression: str


def parse_type(text: str) -> TensorType | SymbolType:
    """The type that ``text`` is. Raises Bad."""
    if found := _SYMBOL.fullmatch(text):
        _check_expression(found[1], 4)
        return SymbolType(found[1])
    found = _TENSOR.fullmatch(text)
    if found is None:
        raise Bad("a type such as f32[8, 3] was expected")
    dtype = TAGS.get(found[1])
    if dtype is None:
        raise Bad(f"unknown dtype {found[1]} (known: {', '.join(TAGS)})")
    strides = None if found[3] is None else _numbers(found[3], found.start(3))
    dims = _numbers(found[2], found.start(2))
    if strides is not None and len(strides) != len(dims):
        raise Bad(f"{len(strides)} strides for {len(dims)} dimensions", found.start(3))
    return TensorType(dtype, dims, strides, found[4] or "")


def type_text(dtype: str, shape: tuple[int, ...]) -> str:
    """The type of a dense tensor: ``f32[8, 3]``. A dtype without a tag is shown as its bytes."""
    if dtype not in _TAG_OF:
        dtype, shape = "uint8", (storage_bytes(dtype, shape),)
    return f"{_TAG_OF[dtype]}[{', '.join(map(str, shape))}]"


def _numbers(text: str, at: int) -> tuple[int | str, ...]:
    """The dimensions in ``text``, between the commas that no parentheses enclose; it starts at ``at``."""
    if not text.strip():
        return ()
    numbers: list[int | str] = []
    depth = start = 0
    for index, char in enumerate(f"{text},"):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and (not depth or index == len(text)):
            numbers.append(_number(text[start:index], at + start))
            start = index + 1
    return tuple(numbers)


def _number(text: str, at: int) -> int | str:
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) < 19:
        return int(word)
    _check_expression(word, at + len(text) - len(text.lstrip()))
    return word


# -- expressions of symbols ------------------------------------------------------------------------

_read = functools.cache(read_expression)


def evaluated(dim: int | str, values: Mapping[str, int]) -> int:
    """The number that ``dim`` is. Raises Bad if it is no size, or of a symbol without a value."""
    if isinstance(dim, int):
        return dim
    try:
        value = _read(dim).evaluate(values)
    except KeyError as error:
        raise Bad(f"{dim}: {error.args[0]} has no value") from None
    except (ArithmeticError, ValueError) as error:
        raise Bad(f"{dim} has no value: {error}") from None
    if not 0 <= value < 1 << 63:
        raise Bad(f"{dim} is {value}, no size")
    return value


def symbols_of(dim: int | str) -> frozenset[str]:
    """Names of the symbols in ``dim``."""
    return frozenset() if isinstance(dim, int) else _read(dim).symbols


def _check_expression(text: str, at: int) -> None:
    """Raise Bad unless ``text`` is an expression of symbols."""
    if not text:
        raise Bad("a dimension was expected", at)
    try:
        _read(text)
    except Unreadable:
        raise Bad(f"no dimension: {text[:60]}", at) from None
