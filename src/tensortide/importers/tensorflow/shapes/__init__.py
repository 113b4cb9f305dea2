"""Shapes of TensorFlow ops: one function per kind of op, registered once per op type."""

from __future__ import annotations

from tensortide.importers.tensorflow.shapes import arrays, elementwise, functions, indexing, products, state
from tensortide.importers.tensorflow.shapes.op import TABLE

__all__ = ["TABLE", "arrays", "elementwise", "functions", "indexing", "products", "state"]
