"""Cost rules of TensorFlow's ops, registered when this package is imported."""

from __future__ import annotations

from tensortide.importers.tf1.rules import elements, moves, products

__all__ = ["elements", "moves", "products"]
