"""Targets for a step: ``peak_bytes <= 24GiB``, ``parameters = 1.3B``, ``flops/bytes >= 19.9``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from tensortide.errors import ExpressionError, TensortideError
from tensortide.expr import Expr, constant, parse
from tensortide.expr.expr import denominator
from tensortide.formulas.asymptotics import Ratio
from tensortide.formulas.formulas import Formulas
from tensortide.formulas.quantities import QUANTITIES
from tensortide.units import parse_bytes

Relation: TypeAlias = Literal["==", ">=", ">", "<=", "<"]

_RELATION = re.compile(r"(<=|>=|==|=|<|>)")
_NUMBER = re.compile(r"\.?\d[\d_.]*(e[+-]?\d+)?\s*[a-z]*", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+(?:_\d+)*(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)\s*([kMGBTPE]?)(?:FLOPs?)?")
_POWERS = {"": 0, "k": 1, "M": 2, "G": 3, "B": 3, "T": 4, "P": 5, "E": 6}


@dataclass(frozen=True, slots=True)
class Target:
    """``left relation right``."""

    text: str
    left: Ratio
    relation: Relation
    right: Ratio
    in_bytes: bool

    @property
    def gap(self) -> Expr:
        """Expression that is at least 0 (above 0 for ``<`` and ``>``, 0 for ``==``) where the target is met."""
        gap = self.left.top * self.right.bottom - self.right.top * self.left.bottom
        return -gap if self.relation in ("<", "<=") else gap


def target_of(text: str, formulas: Formulas) -> Target:
    """The target that ``text`` states, in totals and symbols of ``formulas``.

    Numbers take the units of what they are compared with: bytes (24GiB, 80 GB) or counts (1.3B, 19.9, 1e21, 5 TFLOP).
    Raises ExpressionError.
    """
    parts = [part.strip() for part in _RELATION.split(text)]
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise ExpressionError(f"cannot read {text!r}: write it like peak_bytes <= 24GiB or parameters = 1.3B")
    shown, relation, limit = parts
    left, in_bytes = ratio_of(shown, formulas), shown in formulas.totals and shown.endswith("bytes")
    if _NUMBER.fullmatch(limit):
        number = amount(limit, in_bytes=in_bytes)
        right = Ratio(constant(number.numerator), constant(number.denominator))
    else:
        right = ratio_of(limit, formulas)
    known: dict[str, Relation] = {"=": "==", "==": "==", "<=": "<=", ">=": ">=", "<": "<", ">": ">"}
    return Target(text.strip(), left, known[relation], right, in_bytes)


def check_target(text: str, symbols: Iterable[str]) -> None:
    """Raise ExpressionError for a goal that cannot be read, or that names neither a total nor one of the ``symbols``,
    before formulas are derived."""
    parts = [part.strip() for part in _RELATION.split(text)]
    if len(parts) != 3 or not parts[0] or not parts[2]:
        raise ExpressionError(f"cannot read {text!r}: write it like peak_bytes <= 24GiB or parameters = 1.3B")
    known = (*QUANTITIES, *symbols)
    for side in (parts[0], *([] if _NUMBER.fullmatch(parts[2]) else [parts[2]])):
        for name in sorted(parse(side).symbols - set(known)):
            near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
            hint = f": did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(QUANTITIES)}"
            raise ExpressionError(f"{name!r} is no total and no symbol{hint}")


def ratio_of(text: str, formulas: Formulas) -> Ratio:
    """An expression in totals and symbols: ``flops/bytes``."""
    named = parse(text)
    for name in sorted(named.symbols):
        if name in QUANTITIES and name not in (*formulas.totals, *formulas.partial):
            raise ExpressionError(
                f"{name} has no formula here (formulas show says why); there are {', '.join(formulas.totals) or 'none'}"
            )
        formulas.check(name, (*formulas.totals, *formulas.symbols), "total or symbol")
    below = denominator(named)
    return Ratio((named * below).subs(formulas.totals), below.subs(formulas.totals))


def amount(text: str, *, in_bytes: bool) -> Fraction:
    """The number that ``text`` says: of bytes, or a count with a decimal prefix (``B`` is a billion)."""
    if in_bytes:
        try:
            return Fraction(parse_bytes(text))
        except TensortideError as error:
            raise ExpressionError(str(error)) from None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ExpressionError(f"{text!r} is no number: write 19.9, 1.3B, 350M, 1e21 or 5 TFLOP")
    return Fraction(match[1]) * int(1000 ** _POWERS[match[2]])
