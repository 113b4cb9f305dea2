"""Names of ops, and times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.reports.layout import tidy
from tensortide.units import format_seconds

if TYPE_CHECKING:
    from tensortide.reports.simulation.records import Place


def place_text(place: Place) -> str:
    """An op as it is spoken of: number, name, module and line."""
    module = f" in {tidy(place.module)}" if place.module not in ("", "(outside)") else ""
    source = f" ({tidy(place.source)})" if place.source else ""
    name = short(place.name)
    return f"op {place.op}, {name}{module}{source}"


def short(name: str) -> str:
    """The name of an op or storage without what is the same in most."""
    return tidy(name.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default"))


def time_text(ns: float) -> str:
    """A duration for a reader."""
    return format_seconds(ns / 1e9)
