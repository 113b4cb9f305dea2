"""Limits of assertions: an amount in the unit of the metric, or a part of the baseline."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from tensortide.errors import CheckError, TensortideError
from tensortide.measures.metric import Number, Unit
from tensortide.units import LONGEST, lost_unit, parse_bytes

_NUMBER = re.compile(r"(-?(?:\d+(?:_\d+)*(?:\.\d*)?|\.\d+))(e[+-]?\d{1,3})?\s*(.*)", re.IGNORECASE)
_PERCENT = re.compile(r"([+-]?)\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*of\s+baseline")
_OF_BASELINE = re.compile(r"(.*?)\s*of\s+baseline")

_PREFIXES = {"": 1, "k": 1000, "K": 1000, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_AMOUNTS = {**_PREFIXES, "B": 10**9}
_TIMES = {"ns": 1, "us": 1000, "µs": 1000, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


_BASE: dict[Unit, str] = {"ns": "ns", "bytes": "B"}
"""Base units that must be written."""
LARGEST = 2**100
"""Amounts of an assertion go so far: what is computed with them stays within floating-point numbers."""
_TOO_LARGE = "amounts go up to 2**100 in base units"


def _named(words: tuple[str, ...]) -> dict[str, Fraction]:
    return {prefix + word: Fraction(size) for prefix, size in _PREFIXES.items() for word in ("", *words)}


_PLAIN: dict[str, Fraction] = {"": Fraction(1)}
UNITS: dict[Unit, tuple[str, dict[str, Fraction]]] = {
    "flops": ("FLOPs, as 2 TFLOP or 2e12", _named(("FLOP", "FLOPs"))),
    "macs": ("MACs, as 1 TMAC or 1e12", _named(("MAC", "MACs"))),
    "amount": ("a number, as 25M or 1.3B", {name: Fraction(size) for name, size in _AMOUNTS.items()}),
    "count": ("a number, as 12 or 25k", {name: Fraction(size) for name, size in _AMOUNTS.items()}),
    "ns": ("a time, as 210 ms or 1.5 s", {name: Fraction(size) for name, size in _TIMES.items()}),
    "share": ("a share, as 98 % or 0.98", {"%": Fraction(1, 100), **_PLAIN}),
    "flops_per_byte": ("a number, as 12.5", {"FLOP/B": Fraction(1), **_PLAIN}),
    "number": ("a number, as 12.5", _PLAIN),
}
"""What is expected of the limit of a metric by its unit, and the value of each word after a number. Bytes are read by
``parse_bytes``."""


@dataclass(frozen=True)
class Limit:
    """An ``amount`` in base units; or a ``factor`` of the baseline's value."""

    text: str
    amount: Fraction | None = None
    factor: Fraction | None = None

    def of(self, baseline: Number | None) -> Fraction:
        """The limit in base units, where ``baseline`` is the value of the same quantity there."""
        if self.amount is not None:
            return self.amount
        assert self.factor is not None
        assert baseline is not None
        return Fraction(baseline) * self.factor


def limit_of(text: str, unit: Unit) -> Limit:
    """Read a limit. Raises CheckError, which says what was expected, for a text that is none."""
    if len(text) > LONGEST:
        raise CheckError(f"expected a limit of up to {LONGEST} characters, not one of {len(text)}")
    if text == "baseline":
        return Limit(text, factor=Fraction(1))
    if (found := _PERCENT.fullmatch(text)) is not None:
        part = Fraction(found[2]) / 100
        if part > LARGEST:
            raise CheckError(f"{text} is out of range: {_TOO_LARGE}")
        return Limit(text, factor=part if not found[1] else 1 + part if found[1] == "+" else 1 - part)
    if (other := _OF_BASELINE.fullmatch(text)) is not None:
        raise CheckError(f"expected a part of the baseline, as +1% of baseline, not {other[1]!r}")
    return Limit(text, amount=amount(text, unit))


def number_text(value: object, unit: Unit) -> str | None:
    """Write a number of base units of ``unit`` as a limit; None for what is no finite number. Raises CheckError for one
    beyond ``LARGEST``."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    if math.inf > abs(value) > LARGEST:
        raise CheckError(_TOO_LARGE)
    if isinstance(value, float) and math.isinf(value):
        return None
    exact = int(value) if float(value).is_integer() else value
    return f"{exact} {_BASE[unit]}" if unit in _BASE else str(exact)


def amount(text: str, unit: Unit) -> Fraction:
    """Read an amount in base units of ``unit``. Raises CheckError, also for one beyond ``LARGEST``."""
    found = _amount(text, unit)
    if abs(found) > LARGEST:
        raise CheckError(f"{text} is out of range: {_TOO_LARGE}")
    return found


def _amount(text: str, unit: Unit) -> Fraction:
    if unit == "bytes":
        try:
            nbytes = parse_bytes(text)
        except TensortideError:
            raise CheckError(f"expected bytes, as 24GiB or 24 GB, not {text!r}") from None
        if problem := lost_unit(text, nbytes):
            raise CheckError(problem)
        return Fraction(nbytes)
    expected, words = UNITS[unit]
    found = _NUMBER.fullmatch(text)
    if found is None or (found[3] not in words and not (unit == "ns" and not found[3] and Fraction(found[1]) == 0)):
        raise CheckError(f"expected {expected}, not {text!r}")
    return Fraction(found[1] + (found[2] or "")) * words.get(found[3], Fraction(1))
