"""Shapes of TensorFlow ops: one function per kind of op, registered once per op type."""

from __future__ import annotations

from tensortide.importers.tf1.shapes import arrays, elementwise, indexing, products, state
from tensortide.importers.tf1.shapes.op import TABLE

__all__ = ["TABLE", "arrays", "elementwise", "indexing", "products", "state"]
