"""Shapes of what operations of ``keras.ops`` return, by their descriptions."""

from __future__ import annotations

from tensortide.importers.keras.op_shapes import arithmetic, layouts
from tensortide.importers.keras.op_shapes.operation import MOST_RESULTS, SHAPES, Operation, dtype_of, shapes_of

__all__ = ["MOST_RESULTS", "SHAPES", "Operation", "arithmetic", "dtype_of", "layouts", "shapes_of"]
