"""How long ops take: estimated from the cost rules and a device's datasheet, measured, or recorded."""

from __future__ import annotations

from tensortide.timing.catalogue import Device, catalogue, device
from tensortide.timing.durations import Durations, identity, load_durations, save_durations
from tensortide.timing.roofline import estimate

__all__ = [
    "Device",
    "Durations",
    "catalogue",
    "device",
    "estimate",
    "identity",
    "load_durations",
    "save_durations",
]
