"""Numbers as people write them: ``12.34 GiB``, ``3.17 TFLOP``, ``124.4 M``, ``98.4 %``; and bytes read back."""

from __future__ import annotations

import math
import operator
import re
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

from tensortide.errors import TensortideError

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BYTES = re.compile(r"([0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?\s*(?:([kmgtpe])(i?))?(?:b|bytes?)?")
_HALF_UP = Context(prec=400, rounding=ROUND_HALF_UP)
"""Has room for every digit of a float before the point."""

LONGEST = 100
"""Characters of a number in a text, at most: Python converts no more than some thousand digits."""
_MOST = 1 << 62
"""Bytes that counters of 64 bits hold, sums of two as well."""
_BARE = re.compile(r"[0-9]+(?:_[0-9]+)*(?:e\+?[0-9]+)?", re.IGNORECASE)
_LEAST_BARE = 1 << 16
"""Sizes of memory below that, without a unit, have lost it."""


def format_bytes(count: float) -> str:
    """Bytes in binary units: ``512 B``, ``1.50 KiB``, ``12.34 GiB``. Below 1 KiB exact, else 3 or 4 digits."""
    number, power = _scale(count, 1024, len(_BINARY))
    return f"{number} {_BINARY[power]}"


def printed_bytes(least: int) -> int:
    """The bytes that ``format_bytes`` prints of ``least``, or of a little more, so that they are no fewer.

    >>> printed_bytes(164_481_404), format_bytes(164_481_404)
    (164521574, '156.9 MiB')
    """
    more = least
    while (printed := parse_bytes(format_bytes(more))) < least:
        more += (more >> 12) + 1
    return printed


def format_count(count: float, unit: str = "") -> str:
    """A count with a decimal prefix: ``124.4 M``, or ``3.17 TFLOP`` with ``unit="FLOP"``. Below 1000 exact."""
    number, power = _scale(count, 1000, len(_DECIMAL))
    return f"{number} {_DECIMAL[power]}{unit}".rstrip()


def format_percent(part: float, whole: float = 1.0) -> str:
    """Share of ``part`` in ``whole``: ``98.4 %``. Says 0 and 100 only for none and all, and ``-`` of nothing or
    of no number.

    >>> format_percent(9999, 10000), format_percent(1, 10000), format_percent(3, 0)
    ('>99.9 %', '<0.1 %', '-')
    """
    if not whole:
        return "-"
    percent = 100 * part / whole
    if math.isnan(percent):
        return "-"
    if part == whole or not part:
        return f"{fixed(percent, 0)} %"
    if 0 < percent < 0.05:
        return "<0.1 %"
    if 99.95 <= percent < 100:
        return ">99.9 %"
    return f"{fixed(percent, 1)} %"


def format_seconds(seconds: float) -> str:
    """A duration in the unit that suits it: ``13.7 ms``, ``60.0 ms``, ``115 s``, ``2.4 h``, ``9,988 days``."""
    return format_ns(seconds * 1e9)


def format_ns(ns: float) -> str:
    """A duration of so many nanoseconds, as ``format_seconds`` writes it: in all units from a microsecond to a second
    with three digits, so that those of a column are as exact as each other."""
    if ns < 1e3:
        return f"{significant(ns, 3)} ns"
    for unit, size, most in (("us", 1e3, 1e6), ("ms", 1e6, 1e9), ("s", 1e9, 600e9)):
        if ns < most:
            value = ns / size
            return f"{fixed(value, 2 if value < 9.995 else 1 if value < 99.95 else 0)} {unit}"
    for unit, size, most in (("min", 60.0, 7200.0), ("h", 3600.0, 172800.0)):
        if ns / 1e9 < most:
            return f"{fixed(ns / 1e9 / size, 1)} {unit}"
    # the divisions are those of the page (format.js), so that both round alike
    return f"{fixed(ns / 864e11, 0, grouped=True)} days" if ns >= 864e12 else f"{fixed(ns / 1e9 / 86400, 1)} days"


def fixed(value: float, digits: int, *, grouped: bool = False) -> str:
    """``value`` with ``digits`` after the point, halves rounded away from zero, as the page rounds them; ``grouped``:
    with commas between groups of three digits before it. Zero has no sign.

    >>> fixed(577.25, 1), fixed(-0.5, 0), fixed(0.35, 1), fixed(-0.04, 1)  # 0.35 is a little less as a float
    ('577.3', '-1', '0.3', '0.0')
    """
    if not math.isfinite(value):
        return str(value)
    rounded = Decimal(float(value)).quantize(Decimal(1).scaleb(-digits), context=_HALF_UP)
    return format(rounded or abs(rounded), ",f" if grouped else "f")


def significant(value: float, digits: int) -> str:
    """``value`` with so many ``digits`` at most, halves rounded away from zero; zero has no sign."""
    return f"{float(Context(digits, ROUND_HALF_UP).plus(Decimal(float(value)))):z.{digits}g}"


def parse_bytes(text: str | int) -> int:
    """Bytes of ``8GiB`` (binary), ``24 GB`` (decimal), ``1.5e9`` or a plain number. A lone ``8G`` is decimal.

    Raises:
        TensortideError: ``text`` is no number of bytes, or not a whole number of them.
    """
    match = _BYTES.fullmatch(str(text).strip().lower()) if len(str(text)) <= LONGEST else None
    if match is None:
        raise TensortideError(f"not a number of bytes: {str(text)!r}.\nWrite it as 8GiB, 24 GB, 512MiB or 8589934592.")
    number, exponent, prefix, binary = match.groups()
    base = 1024 if binary else 1000
    exact = Fraction(number.replace("_", "") + (exponent or "")) * base ** (" kmgtpe".index(prefix) if prefix else 0)
    if exact.denominator != 1 and not prefix:
        raise TensortideError(f"not a whole number of bytes: {str(text)!r}.")
    return int(exact)


def parse_size(text: str | int) -> int:
    """Bytes of a size of memory, as ``parse_bytes``: a small number without a unit is a mistake.

    Raises:
        TensortideError: as ``parse_bytes``, for what no machine has, and for ``60``, which may be 60 MiB, or 60 % of
            something.
    """
    if str(text).rstrip().endswith("%"):
        raise TensortideError(f"takes bytes, such as 24GiB or 512MiB, and {text} is a part of what nobody has named")
    nbytes = parse_bytes(text)
    if nbytes > _MOST:
        raise TensortideError(f"{text} is more than any machine has")
    if problem := lost_unit(str(text), nbytes):
        raise TensortideError(problem)
    return nbytes


def lost_unit(text: str, nbytes: int, *, share: bool = False) -> str:
    """Say that ``text``, of so many bytes, has lost its unit, which may be ``%`` of what has a ``share``; empty if it
    has not."""
    bare, lost = text.strip(), 0 < nbytes < _LEAST_BARE
    units = f"{bare}MiB, {bare}GiB or {bare}%" if share and nbytes <= 100 else f"{bare}MiB, or {bare}GiB"
    asked = f"{bare} would be {bare} bytes: {units}? Bytes are written {bare}B"
    return asked if _BARE.fullmatch(bare) and lost else ""


def whole(number: object, what: str, least: int) -> int:
    """``number`` as an integer of ``least`` at least. Raises TensortideError, which tells ``what`` it is of, for any
    other: ``all_reduce of {} bytes``."""
    try:
        found = operator.index(number)  # type: ignore[arg-type]  # it refuses what is none
    except TypeError:
        found = least - 1
    if found < least or isinstance(number, bool):
        raise TensortideError(f"{what.format(repr(number))}: it needs a whole number, at least {least}")
    return found


def _scale(count: float, base: int, powers: int) -> tuple[str, int]:
    """``count`` as text in the largest power of ``base`` that keeps it at 1 or more once it is rounded; what is
    not finite has none."""
    if not math.isfinite(count):
        return str(count), 0
    if abs(count) < base:
        return str(count) if isinstance(count, int) else significant(count, 4), 0
    power, unit = 1, base
    while power + 1 < powers and abs(count) / unit >= base - 0.05:
        power, unit = power + 1, unit * base
    value = abs(count / unit)
    digits = 2 if value < 99.995 else 1 if value < 999.95 else 0
    return fixed(count / unit, digits), power
