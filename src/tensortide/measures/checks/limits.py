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
_AMOUNT, _BASELINE = r"(?P<number>\d+(?:\.\d*)?|\.\d+)", r"(?:the\s+)?baseline"
_SIGN, _TIMES_SIGN = r"(?P<sign>[+-])\s*", r"\s*(?P<times>x|\*|times)\s*"
_PARTS = tuple(
    re.compile(form)
    for form in (
        rf"(?:{_SIGN})?{_AMOUNT}\s*%\s*(?:of\s+)?{_BASELINE}",
        rf"{_BASELINE}\s*{_SIGN}{_AMOUNT}\s*%",
        rf"{_AMOUNT}{_TIMES_SIGN}(?:of\s+)?{_BASELINE}",
        rf"{_BASELINE}{_TIMES_SIGN}{_AMOUNT}",
    )
)
"""Forms of a part of the baseline: ``+2% of baseline``, ``baseline +2%``, ``1.2x baseline``, ``baseline * 1.2``."""
_PERCENT = re.compile(rf"[+-]?\s*{_AMOUNT}\s*%")
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
    "flops_per_byte": ("a number, as 12.5", {"FLOP/B": Fraction(1), "FLOP/byte": Fraction(1), **_PLAIN}),
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
    if re.fullmatch(_BASELINE, text):
        return Limit(text, factor=Fraction(1))
    if (found := next(filter(None, (form.fullmatch(text) for form in _PARTS)), None)) is not None:
        named = found.groupdict()
        part = Fraction(named["number"]) / (1 if named.get("times") else 100)
        if part > LARGEST:
            raise CheckError(f"{text} is out of range: {_TOO_LARGE}")
        sign = named.get("sign")
        return Limit(text, factor=part if not sign else 1 + part if sign == "+" else 1 - part)
    if (other := _OF_BASELINE.fullmatch(text)) is not None:
        raise CheckError(f"expected a part of the baseline, as +1% of baseline, not {other[1]!r}")
    return Limit(text, amount=amount(text, unit))


def as_part(text: str) -> str:
    """Write what somebody may have meant as a part of the baseline, in the form that is read; empty for anything else.

    >>> as_part("80%"), as_part("base+2 %"), as_part("24GiB")
    ('80% of baseline', '+2% of baseline', '')
    """
    percent = _PERCENT.fullmatch(text.strip())
    return f"{text.strip()} of baseline" if percent else "+2% of baseline" * ("%" in text or "base" in text)


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
