"""Units of values: how each is printed, aligned and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tensortide.reports.blocks import Column, Fact, UnitName, Value
from tensortide.reports.layout import tidy
from tensortide.units import format_bytes, format_count, format_percent, format_seconds

__all__ = ["UNITS", "Unit", "cell", "data_key", "fact_text", "value_text"]


class Unit(NamedTuple):
    """Unit of values and its notation. ``cell`` is for columns, whose headings name the unit; ``suffix`` ends names in
    JSON and CSV."""

    text: Callable[[float], str]
    right: bool = True
    suffix: str = ""
    cell: Callable[[float], str] | None = None
    words: Callable[[str], str] = str


def _signed(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: f"-{text(-value)}" if value < 0 else text(value)


def _ns(value: float) -> str:
    return format_seconds(value / 1e9)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) < 1e15 and float(value).is_integer() else f"{value:.4g}"


def _per_second(value: float) -> str:
    return f"{format_bytes(value)}/s"


def _name(text: str) -> str:
    return text.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default")


UNITS: dict[UnitName, Unit] = {
    "text": Unit(str, right=False),
    "name": Unit(
        str, right=False, words=lambda text: text.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default")
    ),
    "path": Unit(str, right=False),
    "code": Unit(str, right=False),
    "role": Unit(str, right=False, words=lambda text: text.replace("_", " ")),
    "flag": Unit(lambda value: "yes" if value else "no", right=False),
    "bytes": Unit(format_bytes, suffix="bytes"),
    "ns": Unit(_signed(_ns), suffix="ns"),
    "s": Unit(_signed(format_seconds), suffix="s"),
    "byte_ns": Unit(lambda value: f"{format_bytes(value / 1e9)} s", suffix="byte_ns"),
    "flops": Unit(lambda value: format_count(value, "FLOP"), suffix="flops", cell=format_count),
    "macs": Unit(lambda value: format_count(value, "MAC"), suffix="macs", cell=format_count),
    "count": Unit(lambda value: f"{value:,}"),
    "amount": Unit(format_count),
    "number": Unit(_number),
    "ratio": Unit(lambda value: f"{value:.4f}"),
    "op": Unit(str, suffix="op"),
    "share": Unit(format_percent, suffix="share"),
    "change": Unit(lambda value: f"{100 * value:+.1f} %", suffix="change"),
    "factor": Unit(lambda value: f"{value:.2f}x", suffix="factor"),
    "flops_per_s": Unit(lambda value: format_count(value, "FLOP/s"), suffix="flops_per_s", cell=format_count),
    "bytes_per_s": Unit(_per_second, suffix="bytes_per_s", cell=format_bytes),
    "flops_per_byte": Unit(lambda value: f"{value:.1f} FLOP/B", suffix="flops_per_byte", cell=lambda v: f"{v:.1f}"),
}
"""A row per unit. Bytes print in binary units, counts with decimal prefixes; ``amount`` is a count of which three
digits are enough."""


def value_text(value: Value, unit: UnitName, *, column: bool = False) -> str:
    """Print ``value`` on one line: text as it is, whatever its unit, and ``-`` for a number that is not known."""
    kind = UNITS[unit]
    if value is None:
        return "-" if kind.right else ""
    if isinstance(value, str):
        return tidy(kind.words(value))
    return (kind.cell or kind.text)(value) if column else kind.text(value)


def cell(column: Column, row: int) -> str:
    """Print the value of ``column`` at ``row`` with the signs around it."""
    value = column.values[row]
    if column.zero is not None and value == 0:
        return column.zero
    before = column.before[row] if column.before else ""
    after = column.after[row] if column.after else ""
    return before + value_text(value, column.unit, column=True) + after


def fact_text(fact: Fact) -> str:
    """Print the value of ``fact``."""
    return fact.before + value_text(fact.value, fact.unit)


def data_key(key: str, unit: UnitName) -> str:
    """Name a value in JSON and CSV: ``peak`` in bytes is ``peak_bytes``."""
    suffix = UNITS[unit].suffix
    return key if not suffix or key == suffix or key.endswith(f"_{suffix}") else f"{key}_{suffix}"
