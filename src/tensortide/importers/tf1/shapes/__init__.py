"""Shapes of TensorFlow ops: one function per kind of op, registered once per op type."""

from __future__ import annotations

from tensortide.importers.tf1.shapes import arrays, control, elementwise, indexing, products, values, windows
from tensortide.importers.tf1.shapes.table import TABLE

__all__ = ["TABLE", "arrays", "control", "elementwise", "indexing", "products", "values", "windows"]
