"""Cost rules of TensorFlow's ops, registered when this package is imported."""

from __future__ import annotations

from tensortide.importers.tensorflow.rules import elements, functions, moves, products

__all__ = ["elements", "functions", "moves", "products"]
