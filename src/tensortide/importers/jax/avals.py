"""Abstract values and parameters of JAX in the words of a Graph: shapes, dtypes, plain arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensortide.dtypes import DTYPES, unpacked
from tensortide.errors import CaptureError
from tensortide.graph.model import Const, Value
from tensortide.importers.jax import compat
from tensortide.importers.jax.program import Cell

_KEY_WORDS = {"fry": 2, "rbg": 4, "urbg": 4}
"""Words of 32 bits of a random key, by its kind."""
_DROPPED = frozenset(
    [
        *("sharding", "out_sharding", "accuracy", "weak_type", "out_dtype", "mode", "fill_value", "unique_indices"),
        *("indices_are_sorted", "precision", "in_shardings", "out_shardings", "in_layouts", "out_layouts", "device"),
        *("devices", "srcs", "copy_semantics", "is_stable"),
    ]
)
"""Parameters of primitives that no cost depends on."""


def cell_of(aval: Any) -> Cell:
    """Return a fresh cell of the shape and dtype of an abstract value; a token has no elements."""
    aval = getattr(aval, "inner_aval", aval)
    if not hasattr(aval, "dtype"):
        return Cell((0,), "bool")
    return Cell(shape_of(aval), dtype_of(aval.dtype))


def shape_of(array: Any) -> tuple[int, ...]:
    """Return the shape of an array; a random key is one dimension of words more. Raises CaptureError for keys of an
    unknown kind."""
    shape = tuple(map(int, array.shape))
    text = str(array.dtype)
    if not text.startswith("key<"):
        return shape
    if (kind := text[4:-1]) not in _KEY_WORDS:
        raise CaptureError(f"random keys of the kind {kind!r} have an unknown size; known are {', '.join(_KEY_WORDS)}")
    return (*shape, _KEY_WORDS[kind])


def dtype_of(dtype: Any) -> str:
    """Return the Graph's name of a dtype; the arrays of XLA on a CPU are not packed. Raises CaptureError for one that
    is unknown."""
    name = str(getattr(dtype, "name", dtype))
    if name.startswith("key<"):
        return "uint32"
    if name == "float0":
        return "bool"
    if name not in DTYPES:
        raise CaptureError(f"an array has the unknown dtype {name}")
    return unpacked(name)


def arguments_of(parameters: Mapping[str, Any]) -> dict[str, Value]:
    """Return the parameters of a primitive that are plain values."""
    found: dict[str, Value] = {}
    for name, value in parameters.items():
        if name in _DROPPED or value is None:
            continue
        try:
            found[name] = _value(value)
        except TypeError:
            if hasattr(value, "eqns") or compat.is_closed(value):
                found[name] = tuple(compat.primitive_of(inner) for inner in compat.opened(value)[0].eqns)
    return found


def _value(value: Any) -> Value:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | complex):
        return _plain(value)
    if isinstance(value, frozenset | set):
        return tuple(sorted(map(str, value)))
    if isinstance(value, tuple | list):
        return tuple(map(_value, value))
    if hasattr(value, "lhs_spec"):
        return (tuple(value.lhs_spec), tuple(value.rhs_spec), tuple(value.out_spec))
    if fields := getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None):
        return tuple(_value(getattr(value, name)) for name in fields)
    if hasattr(value, "name") and hasattr(value, "itemsize"):
        return Const("dtype", str(value.name))
    if hasattr(value, "item") and not getattr(value, "ndim", 1):
        return _value(value.item())
    if type(value).__name__ in ("FftType", "Algorithm", "RandomAlgorithm"):
        return str(getattr(value, "name", value))
    raise TypeError


def number(value: Any) -> Any:
    """Return a scalar as a number; None for what is none, such as a random key."""
    try:
        number = value.item() if hasattr(value, "item") else value
    except (TypeError, ValueError, NotImplementedError, AttributeError):
        return None
    return _plain(number) if isinstance(number, bool | int | float | complex) else 0


def _plain(value: Any) -> bool | int | float | complex:
    """Return a number of Python's own type: JAX has subclasses of them for numbers that Python code spells out."""
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    return complex(value)
