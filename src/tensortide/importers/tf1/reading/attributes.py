"""Attributes and stored tensors of a NodeDef as plain values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tensortide.importers.tf1.program import Attribute, Constant

__all__ = ["DTYPES", "FEW", "attribute", "constant_of", "dtype_name"]

FEW = 512
"""Stored tensors of up to so many elements keep their values."""

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""TensorFlow's DataType numbers; a reference to a dtype has its number plus 100."""

_FIELDS = {
    "float32": "float_val", "float64": "double_val", "int32": "int_val", "uint8": "int_val", "int16": "int_val",
    "int8": "int_val", "uint16": "int_val", "int64": "int64_val", "bool": "bool_val", "uint32": "uint32_val",
    "uint64": "uint64_val", "string": "string_val",
}  # fmt: skip
"""Fields of a TensorProto for values that are not in ``tensor_content``."""


def dtype_name(number: int) -> str:
    """Return the name of a DataType number; references are their base types."""
    return DTYPES.get(number % 100, f"dtype{number}")


def attribute(value: Any) -> Attribute:
    """Decode an AttrValue."""
    field = value.WhichOneof("value")
    if field in _READERS:
        return _READERS[field](getattr(value, field))
    if field != "list":
        return None
    for field, read in _READERS.items():
        items = getattr(value.list, field)
        if len(items):
            return tuple(read(item) for item in items)
    return ()


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _shape(shape: Any) -> tuple[int, ...] | None:
    return None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)


def constant_of(tensor: Any) -> Constant:
    """Decode a TensorProto; its values only where they are few and numbers or bytes."""
    dtype, shape = dtype_name(tensor.dtype), tuple(dim.size for dim in tensor.tensor_shape.dim)
    count = math.prod(shape)
    return Constant(dtype, shape, _values(tensor, dtype, count) if 0 <= count <= FEW else None)


def _values(tensor: Any, dtype: str, count: int) -> tuple[Any, ...] | None:
    if tensor.tensor_content:
        if dtype not in _FIELDS or dtype == "string":
            return None
        import numpy as np

        width = np.dtype(dtype).itemsize
        if len(tensor.tensor_content) != count * width:
            return None
        return tuple(np.frombuffer(tensor.tensor_content, np.dtype(dtype).newbyteorder("<")).tolist())
    stored = tuple(getattr(tensor, _FIELDS[dtype])) if dtype in _FIELDS else ()
    if dtype not in _FIELDS or len(stored) > count:
        return None
    if not stored:
        stored = (b"",) if dtype == "string" else (0,)
    return stored + stored[-1:] * (count - len(stored)) if count else ()


_READERS: dict[str, Callable[[Any], Attribute]] = {
    "type": dtype_name,
    "i": int,
    "b": bool,
    "s": _text,
    "shape": _shape,
    "tensor": constant_of,
    "f": float,
    "func": lambda func: str(func.name),
}
