"""Layers of Keras: one function per kind, which appends the ops that a call of the layer runs."""

from __future__ import annotations

from tensortide.importers.keras.layers import attention, convolution, core, merging, pooling, recurrent
from tensortide.importers.keras.layers.layer import LAYERS, Layer, Weights

__all__ = ["LAYERS", "Layer", "Weights", "attention", "convolution", "core", "merging", "pooling", "recurrent"]
