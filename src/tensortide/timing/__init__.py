"""How long ops take: estimated from the cost rules and a device's datasheet, measured, or recorded."""

from __future__ import annotations

from tensortide.timing.catalogue import Device, catalogue, device
from tensortide.timing.durations import Durations, beside, identity, load_durations, save_durations
from tensortide.timing.measurement import Machine, Measurement, Sample
from tensortide.timing.roofline import estimate

__all__ = [
    "Device",
    "Durations",
    "Machine",
    "Measurement",
    "Sample",
    "beside",
    "catalogue",
    "device",
    "estimate",
    "identity",
    "load_durations",
    "save_durations",
]
