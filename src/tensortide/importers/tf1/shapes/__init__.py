"""Shapes of TensorFlow ops: one function per kind of op, registered once per op type."""

from __future__ import annotations

from tensortide.importers.tf1.shapes import arrays, control, elementwise, indexing, products, values, windows
from tensortide.importers.tf1.shapes.table import TABLE, Op, Tensor, Unknown

__all__ = [
    "TABLE",
    "Op",
    "Tensor",
    "Unknown",
    "arrays",
    "control",
    "elementwise",
    "indexing",
    "products",
    "values",
    "windows",
]
