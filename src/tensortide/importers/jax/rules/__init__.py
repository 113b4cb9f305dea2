"""Cost rules of JAX's primitives, registered when this package is imported."""

from __future__ import annotations

from tensortide.importers.jax.rules import elements, moves, products, reductions

__all__ = ["elements", "moves", "products", "reductions"]
