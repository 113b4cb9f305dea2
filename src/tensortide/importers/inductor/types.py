"""The types in a dump: ``f32[8, 3]``, with strides and device in newer ones, symbols in dynamic ones."""

from __future__ import annotations

import ast
import itertools
import operator
import re
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tensortide.dtypes import storage_bytes, tagged

TAGS = tagged("inductor")
"""dtype of each tag."""
_TAG_OF = {dtype: tag for tag, dtype in TAGS.items()}

_TENSOR = re.compile(r"([A-Za-z]\w*)\[([^\[\]]*)\](?:\[([^\[\]]*)\])?\s*([a-z]+(?::\d+)?)?", re.ASCII)
_SYMBOL = re.compile(r"Sym\((.+)\)", re.ASCII)
_LONGEST = 4096


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


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a dense tensor."""
    steps = itertools.accumulate((max(size, 1) for size in reversed(shape[1:])), operator.mul, initial=1)
    return tuple(reversed([*steps])) if shape else ()


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

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {
    "Max": max,
    "Min": min,
    "FloorDiv": operator.floordiv,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "ModularIndexing": lambda a, b, c: a // b % c,
}
_ARITIES = {"Max": (1, 99), "Min": (1, 99), "ModularIndexing": (3, 3)}


def evaluated(dim: int | str, values: Mapping[str, int]) -> int:
    """The number that ``dim`` is. Raises Bad if it is no size, or of a symbol without a value."""
    if isinstance(dim, int):
        return dim
    try:
        value = _value(_parsed(dim), values.__getitem__)
    except KeyError as error:
        raise Bad(f"{dim}: {error.args[0]} has no value") from None
    except (ZeroDivisionError, OverflowError) as error:
        raise Bad(f"{dim} has no value: {error}") from None
    if not 0 <= value < 1 << 63:
        raise Bad(f"{dim} is {value}, no size")
    return value


def symbols_of(dim: int | str) -> set[str]:
    """Names of the symbols in ``dim``."""
    if isinstance(dim, int):
        return set()
    return {node.id for node in ast.walk(_parsed(dim)) if isinstance(node, ast.Name) and node.id not in _FUNCTIONS}


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the parser, about the text
        return ast.parse(text, mode="eval").body


def _check_expression(text: str, at: int) -> None:
    """Raise Bad unless ``text`` is an expression of symbols."""
    if not text or len(text) > _LONGEST:
        raise Bad("a dimension was expected", at)
    try:
        _value(_parsed(text), lambda name: 1)
    except ArithmeticError:
        pass  # of these values
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Bad(f"no dimension: {text[:60]}", at) from None


def _value(node: ast.expr, value_of: Callable[[str], int], depth: int = 0) -> int:
    """The value of an expression of symbols. Raises ValueError for any other."""
    match node:
        case _ if depth > 100:
            raise ValueError
        case ast.Constant(int() as value) if not isinstance(value, bool) and 0 <= value < 1 << 63:
            return value
        case ast.Name():
            return value_of(node.id)
        case ast.UnaryOp(op=ast.USub()):
            return -_value(node.operand, value_of, depth + 1)
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(int() as power)) if 0 <= power < 64:
            return int(_value(node.left, value_of, depth + 1) ** power)
        case ast.BinOp() if type(node.op) in _BINARY:
            left, right = (_value(side, value_of, depth + 1) for side in (node.left, node.right))
            return _BINARY[type(node.op)](left, right)
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in _FUNCTIONS:
            low, high = _ARITIES.get(name, (2, 2))
            if low <= len(node.args) <= high:
                return _FUNCTIONS[name](*(_value(argument, value_of, depth + 1) for argument in node.args))
    raise ValueError
