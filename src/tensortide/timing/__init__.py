"""Durations of ops: estimated from the cost rules and a device's datasheet, measured, or recorded."""

from __future__ import annotations

from tensortide.timing.catalogue import DEFAULT_DEVICE, Device, catalogue, device
from tensortide.timing.durations import (
    Durations,
    Measurement,
    Platform,
    Sample,
    beside,
    identity,
    load_durations,
    save_durations,
)
from tensortide.timing.estimate import estimate
from tensortide.timing.links import LINKS, Link, link

__all__ = [
    "DEFAULT_DEVICE",
    "LINKS",
    "Device",
    "Durations",
    "Link",
    "Measurement",
    "Platform",
    "Sample",
    "beside",
    "catalogue",
    "device",
    "estimate",
    "identity",
    "link",
    "load_durations",
    "save_durations",
]
