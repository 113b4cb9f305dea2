"""Shape functions of ONNX ops: one per op, in a table that importing this package fills."""

from __future__ import annotations

from tensortide.importers.onnx.shapes import arrays, elements, lookups, products, reductions, windows  # isort: skip
from tensortide.importers.onnx.shapes import contrib, learned  # isort: skip  it gives ops of the standard further names

__all__ = ["arrays", "contrib", "elements", "learned", "lookups", "products", "reductions", "windows"]
