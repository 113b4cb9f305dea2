"""Sweeps: the totals of a step at many settings, exact, as a table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

import msgspec

from tensortide.errors import ExpressionError, OutsideRegion
from tensortide.executors import SERIAL, Where, run_all
from tensortide.formulas.formulas import Formulas, told
from tensortide.shown import Show, Shown

_MOST = 1_000_000
_TASK = 2_000
"""Points per task: about 0.2 s of work."""
_AXIS = re.compile(r"(\d+):(\d+)(?::(\*?)(\d+(?:\.\d+)?))?")


class Point(msgspec.Struct, frozen=True):
    """One setting: the values of the swept symbols and of the totals.

    ``outside`` is what no formulas hold without; the totals are None then. ``threshold`` is the one on whose other side
    the point is, where formulas of that side are used. ``extrapolated`` says which symbols are outside of the ranges in
    which the formulas were tested.
    """

    at: tuple[int, ...]
    totals: tuple[int | None, ...]
    outside: str = ""
    threshold: str = ""
    extrapolated: str = ""

    @property
    def remark(self) -> Annotated[str, Show()]:
        """In a word, what formulas the totals are from; empty for those that hold there, as tested."""
        said = {"no formulas": self.outside, "past threshold": self.threshold, "extrapolated": self.extrapolated}
        return ", ".join(word for word, text in said.items() if text)


class Sweep(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """The ``totals`` over all combinations of the symbols ``over``, the others being ``fixed``."""

    SECTION = "formula_answers.of_sweep"

    workload: str
    over: tuple[str, ...]
    fixed: dict[str, int]
    totals: tuple[str, ...]
    points: tuple[Point, ...]

    def column(self, name: str) -> list[int | None]:
        """The values of one total or of one swept symbol."""
        if name in self.over:
            return [point.at[self.over.index(name)] for point in self.points]
        return [point.totals[self.totals.index(name)] for point in self.points]

    def rows(self) -> list[dict[str, Any]]:
        """One record per point: symbols, totals, and what the point says of itself (``outside``, ``threshold``,
        ``extrapolated``)."""
        names = (*self.over, *self.totals)
        remarks = ("outside", "threshold", "extrapolated")
        return [
            {
                **dict(zip(names, (*p.at, *p.totals), strict=True)),
                **{name: said for name in remarks if (said := getattr(p, name))},
            }
            for p in self.points
        ]


def sweep(
    formulas: Formulas,
    over: Mapping[str, Iterable[int]],
    where: Where = SERIAL,
    say: Callable[[str], None] = lambda text: None,
    /,
    **fixed: int,
) -> Sweep:
    """All totals at every combination of the values in ``over``; other symbols are ``fixed`` or have their defaults.

    >>> sweep(formulas, {"batch": [1, 2, 4], "hidden": geometric(256, 8192)}, seq=1024)  # doctest: +SKIP

    Points are evaluated on the workers of ``where``, which do not affect the result; ``say`` receives progress. Raises
    ExpressionError for a name that is no symbol or a value that is no positive integer, RunError as
    ``executors.run_all``.
    """
    axes = {name: tuple(values) for name, values in over.items()}
    base = formulas.setting(fixed)
    if both := axes.keys() & fixed.keys():
        raise ExpressionError(f"{', '.join(sorted(both))} cannot be swept and fixed at once")
    count = math.prod(map(len, axes.values()))
    if count > _MOST:
        raise ExpressionError(f"a sweep over {count:,} points is too large: at most {_MOST:,}")
    for name, values in axes.items():
        for value in values:
            formulas.setting({name: value})
    pieces = (formulas, *formulas.others)
    totals = tuple(dict.fromkeys(name for piece in pieces for name in piece.totals))
    tasks = [range(first, min(first + _TASK, count)) for first in range(0, count, _TASK)]
    found: dict[int, list[Point]] = {}
    for number, some in run_all(partial(_points, formulas, totals, axes, base), tasks, where):
        found[number] = some
        say(f"{min(len(found) * _TASK, count):,} of {count:,} points")
    kept = {name: value for name, value in base.items() if name not in axes}
    return Sweep(
        workload=formulas.workload,
        over=tuple(axes),
        fixed=kept,
        totals=totals,
        points=tuple(point for number in sorted(found) for point in found[number]),
    )


def _points(
    formulas: Formulas,
    totals: Sequence[str],
    axes: Mapping[str, Sequence[int]],
    base: Mapping[str, int],
    numbers: range,
) -> list[Point]:
    """Evaluate points by their numbers: the last axis varies fastest."""
    found = []
    for number in numbers:
        at: dict[str, int] = {}
        rest = number
        for name, values in reversed([*axes.items()]):
            rest, place = divmod(rest, len(values))
            at[name] = values[place]
        found.append(_point(formulas, totals, tuple(at[name] for name in axes), {**base, **at}))
    return found


def _point(formulas: Formulas, totals: Sequence[str], at: tuple[int, ...], setting: Mapping[str, int]) -> Point:
    try:
        found = formulas.totals_at(setting)
        crossed, untested = formulas.crossed(setting), formulas.extrapolated(setting)
    except OutsideRegion as error:
        return Point(at, (None,) * len(totals), error.needs)
    threshold = crossed and (formulas.threshold(crossed) or f"where {crossed.opposite}")
    return Point(at, tuple(map(found.get, totals)), threshold=str(threshold or ""), extrapolated=told(untested))


def geometric(start: int, stop: int, factor: float | Fraction = 2) -> tuple[int, ...]:
    """``start``, then ``factor`` times more each, up to and including ``stop``, as whole numbers.

    >>> geometric(256, 2048), geometric(1, 10, 1.5)
    ((256, 512, 1024, 2048), (1, 2, 3, 5, 8))
    """
    if factor <= 1:
        raise ExpressionError(f"a geometric range needs a factor above 1, not {factor}")
    values: dict[int, None] = {}
    value, factor = Fraction(start), Fraction(factor)
    while value <= stop:
        values[round(value)] = None
        value *= factor
    return tuple(values)


def axis(text: str) -> tuple[str, tuple[int, ...]]:
    """The symbol and the values of ``hidden=256:8192:*2``, ``seq=128:1024:128``, ``batch=1:8`` or ``batch=1,2,4``.

    Ranges include their end. Raises ExpressionError.
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if equals and re.fullmatch(r"-?\d+(\s*,\s*-?\d+)*", values):
        several = tuple(map(int, values.split(",")))
        if min(several) < 0:
            raise ExpressionError(f"{text!r}: values are positive or 0, and {min(several)} is not")
        return name, several
    match = _AXIS.fullmatch(values)
    if not equals or not match:
        raise ExpressionError(f"cannot read {text!r}: write hidden=256:8192:*2, seq=128:1024:128 or batch=1,2,4")
    start, stop, times, step = int(match[1]), int(match[2]), match[3], Fraction(match[4] or 1)
    if not (0 <= start <= stop) or (times and not start):
        raise ExpressionError(f"{text!r} has no values: a range goes up from a positive start, as in {name}=1:8")
    if times:
        return name, geometric(start, stop, step)
    if step < 1 or step.denominator != 1:
        raise ExpressionError(f"cannot read {text!r}: the step of a range must be a whole number")
    if (stop - start) // step > _MOST:
        raise ExpressionError(
            f"{text!r} are {(stop - start) // step + 1:,} values; a sweep has at most {_MOST:,} points"
        )
    return name, tuple(range(start, stop + 1, int(step)))
