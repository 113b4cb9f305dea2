"""Totals of a step that formulas have: one table of their names, headings, units and definitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple


class Quantity(NamedTuple):
    """A total of a step: its heading, its unit, what it means."""

    title: str
    unit: Literal["amount", "bytes"]
    meaning: str


QUANTITIES: dict[str, Quantity] = {
    "parameters": Quantity("Parameters", "amount", "trainable elements, tied weights once"),
    "flops": Quantity("FLOPs", "amount", "algorithmic FLOPs: products and the rest"),
    "bytes": Quantity("Bytes", "bytes", "bytes that ops must read and write"),
    "peak_bytes": Quantity("Peak", "bytes", "most bytes of storages alive at once, as the step runs eagerly"),
    "footprint_bytes": Quantity("Footprint", "bytes", "bytes of all storages of the step"),
    "minimal_footprint_lower_bytes": Quantity("Least memory >=", "bytes", "no order of the ops needs fewer bytes"),
    "minimal_footprint_upper_bytes": Quantity("Least memory <=", "bytes", "an order of the ops needs no more bytes"),
    "peak_with_workspace_bytes": Quantity(
        "Peak with workspace", "bytes", "the peak with what kernels are known to take beside storages"
    ),
    "io_bytes": Quantity("IO", "bytes", "bytes fed to the step and read from it"),
    "product_flops": Quantity(
        "Product FLOPs", "amount", "FLOPs of matrix products and convolutions, two per multiply-accumulate"
    ),
    "elementwise_flops": Quantity("Elementwise FLOPs", "amount", "FLOPs that are no products"),
}
"""The totals of a step by name, the most telling first. A Formulas has those that it could express."""


def quantity(name: str) -> Quantity:
    """The row of a total; of one that only a file of formulas has, its name says the unit."""
    return QUANTITIES.get(name) or Quantity(name, "bytes" if name.endswith("bytes") else "amount", "")


def ranked(names: Iterable[str]) -> list[str]:
    """Totals in the order of the table, those of a file alone last."""
    order = {name: place for place, name in enumerate(QUANTITIES)}
    return sorted(names, key=lambda name: order.get(name, len(order)))
