"""Units of values: how each is printed, aligned and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tensortide.reports.blocks import Column, Fact, Table, UnitName, Value
from tensortide.units import fixed, format_bytes, format_count, format_ns, format_percent, format_seconds, significant


class Unit(NamedTuple):
    """Unit of values and its notation. ``cell`` is for columns, whose headings name the unit; ``suffix`` ends names in
    JSON and CSV."""

    text: Callable[[float], str]
    right: bool = True
    suffix: str = ""
    cell: Callable[[float], str] | None = None
    words: Callable[[str], str] = str


def tidy(text: str) -> str:
    """``text`` on one line and without control characters: a name cannot repaint a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def short(name: str) -> str:
    """Leave out of the name of an op or storage what is the same in most."""
    return tidy(name.removeprefix("aten.").removeprefix("dtr.").removesuffix(".default"))


def shortened(name: str, most: int) -> str:
    """The name of a lane in at most so many letters: its end, which tells it from others; of a link the end of each
    device's.

    >>> shortened("accelerator-node00 > accelerator-node01", 25)
    '…tor-node00 > …tor-node01'
    """
    parts = name.split(" > ")
    room = max(2, (most - 3 * (len(parts) - 1)) // len(parts))
    cut = [part if len(part) <= room else f"…{part[1 - room :]}" for part in parts]
    return name if len(name) <= most else " > ".join(cut)


def _signed(text: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: f"-{text(-value)}" if value < 0 else text(value)


def _number(value: float) -> str:
    return fixed(value, 0) if abs(value) < 1e15 and float(value).is_integer() else significant(value, 4)


def _change(share: float) -> str:
    percent = fixed(100 * share, 1)
    return f"{'' if percent.startswith('-') else '+'}{percent} %"


UNITS: dict[UnitName, Unit] = {
    "text": Unit(str, right=False),
    "name": Unit(str, right=False, words=short),
    "path": Unit(str, right=False),
    "code": Unit(str, right=False),
    "role": Unit(str, right=False, words=lambda text: text.replace("_", " ")),
    "flag": Unit(lambda value: "yes" if value else "no", right=False),
    "bytes": Unit(format_bytes, suffix="bytes"),
    "ns": Unit(_signed(format_ns), suffix="ns"),
    "s": Unit(_signed(format_seconds), suffix="s"),
    "byte_ns": Unit(lambda value: f"{format_bytes(value / 1e9)} s", suffix="byte_ns"),
    "flops": Unit(lambda value: format_count(value, "FLOP"), suffix="flops", cell=format_count),
    "macs": Unit(lambda value: format_count(value, "MAC"), suffix="macs", cell=format_count),
    "count": Unit(lambda value: f"{value:,}"),
    "amount": Unit(format_count),
    "number": Unit(_number),
    "ratio": Unit(lambda value: fixed(value, 4)),
    "op": Unit(str, suffix="op"),
    "share": Unit(format_percent, suffix="share"),
    "change": Unit(_change, suffix="change"),
    "factor": Unit(lambda value: f"{fixed(value, 2)}x", suffix="factor"),
    "flops_per_s": Unit(lambda value: format_count(value, "FLOP/s"), suffix="flops_per_s", cell=format_count),
    "bytes_per_s": Unit(lambda value: format_count(value, "B/s"), suffix="bytes_per_s", cell=format_count),
    "flops_per_byte": Unit(
        lambda value: f"{fixed(value, 1)} FLOP/B", suffix="flops_per_byte", cell=lambda v: fixed(v, 1)
    ),
}
"""A row per unit. Bytes print in binary units, counts and rates with decimal prefixes, as data sheets have them;
``amount`` is a count of which three digits are enough."""


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


def texts(table: Table, columns: Iterable[Column], rows: Iterable[int], indent: str) -> list[list[str]]:
    """Print the cells of ``columns`` at ``rows``, column by column; of a tree the first ones are indented."""
    found = [[cell(column, i) for i in rows] for column in columns]
    if table.depth is not None and found:
        found[0] = [indent * table.depth[i] + text for i, text in zip(rows, found[0], strict=True)]
    return found


def fact_text(fact: Fact) -> str:
    """Print the value of ``fact``."""
    return fact.before + value_text(fact.value, fact.unit)


def data_key(key: str, unit: UnitName) -> str:
    """Name a value in JSON and CSV: ``peak`` in bytes is ``peak_bytes``."""
    suffix = UNITS[unit].suffix
    return key if not suffix or key == suffix or key.endswith(f"_{suffix}") else f"{key}_{suffix}"
