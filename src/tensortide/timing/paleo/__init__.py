"""Paleo's predictions, reproduced: a compatibility set with its own layers, devices, factors and collectives.

It answers for networks described in Paleo's JSON, in fp32, by the published formulas with their faults. None of it
enters our own predictions (``tensortide.timing.predict``), and results of the two are not to be compared unsaid.
"""

from __future__ import annotations

from tensortide.timing.paleo.hybrid import HybridTime, hybrid
from tensortide.timing.paleo.layers import LAYER_TYPES, Layer
from tensortide.timing.paleo.nets import Net, read
from tensortide.timing.paleo.presets import DEVICES, NETWORKS, PLATFORMS, PaleoPlatform
from tensortide.timing.paleo.scaling import EXCHANGES, Scaling, ScalingRow, scaling
from tensortide.timing.paleo.step import LayerTime, PartTime, StepTime, step

__all__ = [
    "DEVICES",
    "EXCHANGES",
    "LAYER_TYPES",
    "NETWORKS",
    "PLATFORMS",
    "HybridTime",
    "Layer",
    "LayerTime",
    "Net",
    "PaleoPlatform",
    "PartTime",
    "Scaling",
    "ScalingRow",
    "StepTime",
    "hybrid",
    "read",
    "scaling",
    "step",
]
