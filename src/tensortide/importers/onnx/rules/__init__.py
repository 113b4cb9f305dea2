"""Cost rules of ONNX ops (``onnx::Conv``), of those of onnxruntime, and of the ops of derived training steps."""

from __future__ import annotations

from tensortide.importers.onnx.rules import derived, elements, learned, moves, products, reductions

# Imported for the rules that they register.
__all__ = ["derived", "elements", "learned", "moves", "products", "reductions"]
