"""Rates that devices sustain, as shares of the data sheet's: the best that single products were measured to reach, and
what products of whole steps do, at the clocks that a device holds in them."""

from __future__ import annotations

import csv
import functools
import importlib.resources

import msgspec

from tensortide.dtypes import DTYPES, is_half
from tensortide.timing.catalogue import Device
from tensortide.timing.figures import low_power

HALVES = "16bit"
"""Products of both types of 16 bits."""
LOW_POWER = ", low power"
"""After the architecture of cards that may not hold their clocks."""


class Sustained(msgspec.Struct, frozen=True):
    """A row of the table: shares of a peak rate that products reach on devices ``of`` an architecture, cards that may
    not hold their clocks apart: ``best`` of any measured, and in ``steps``."""

    of: str
    rate: str
    best: float
    steps: float
    source: str


@functools.cache
def _rows() -> dict[tuple[str, str], Sustained]:
    text = importlib.resources.files("tensortide.timing").joinpath("sustained.csv").read_text()
    rows = msgspec.convert(list(csv.DictReader(text.splitlines())), list[Sustained], strict=False)
    return {(row.of, row.rate): row for row in rows}


def sustained_products(device: Device, dtype: str) -> Sustained | None:
    """What products of ``dtype`` reach on ``device``; None where nothing of its architecture was measured."""
    rate = HALVES if is_half(dtype) else DTYPES[dtype].rate if dtype in DTYPES else ""
    return _rows().get((f"{device.arch}{LOW_POWER * low_power(device)}", rate))
