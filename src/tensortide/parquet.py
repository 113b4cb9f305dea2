"""Parquet files, which PyArrow writes."""

from __future__ import annotations

import importlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from tensortide.errors import MissingExtra


def parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Write a Parquet file of ``columns``; numbers of a column are floats throughout if one is. Raises MissingExtra
    without PyArrow."""
    try:
        arrow: Any = importlib.import_module("pyarrow")
        writer: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise MissingExtra("writing Parquet needs PyArrow: pip install 'tensortide[parquet]'") from error
    out = io.BytesIO()
    writer.write_table(arrow.table({name: _of_one_kind(cells) for name, cells in columns.items()}), out)
    return out.getvalue()


def _of_one_kind(cells: Sequence[Any]) -> list[Any]:
    plain = [list(cell) if isinstance(cell, tuple) else cell for cell in cells]
    if not any(isinstance(cell, float) for cell in plain):
        return plain
    return [float(cell) if isinstance(cell, int) and not isinstance(cell, bool) else cell for cell in plain]
