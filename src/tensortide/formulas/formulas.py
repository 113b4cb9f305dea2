"""Formulas: what a step costs as exact expressions in its hyperparameters, and where they hold.

Their file is JSON that people read and other programs write.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from tensortide.errors import ExpressionError, OutsideRegion
from tensortide.expr import (
    Compiled,
    Condition,
    Expr,
    as_expr,
    compiled,
    latex,
    parse,
    symbol,
    text,
    to_sympy,
)
from tensortide.expr.expr import denominator
from tensortide.shown import Show

if TYPE_CHECKING:
    import sympy


INSTEAD = {
    "flops": ("product_flops", "elementwise_flops"),
    "peak_bytes": ("minimal_footprint_upper_bytes", "footprint_bytes"),
    "bytes": ("io_bytes",),
}
"""Totals to ask for where one is known in part only."""


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """A condition beyond which the step is another one, and what changes there."""

    condition: Condition
    change: str

    def __str__(self) -> str:
        return f"{self.other_side}: {self.change}"

    @property
    def other_side(self) -> str:
        """The other side in words: ``above hidden = 1,024``, ``at batch = 1``, ``where hidden > 4*width``."""
        expr, relation = self.condition
        name, number = min(expr.symbols, default=""), expr.terms.get((), 0)
        if isinstance(number, int) and expr - number in (symbol(name), -symbol(name)):
            low, value = expr - number == symbol(name), abs(number)
            if relation == ">" and low and value == 1:
                return f"at {name} = 1"
            if relation in (">", ">="):
                last = value + (1 if low else -1) * (relation == ">")
                return f"{'below' if low else 'above'} {name} = {last:,}"
        if self.condition.divisor is not None:
            by, of = map(text, self.condition.divisor)
            return f"where {by} does not divide {of}"
        return f"where {self.condition.opposite}"


class Partial(msgspec.Struct, frozen=True, kw_only=True):
    """A total of which some parts have no expression: those that have one are ``known``, a lower bound of the total.

    ``missing`` are the others, ops in a module and phase, each with its value at the defaults (None: not captured).
    """

    known: Expr
    missing: Mapping[str, int | None]

    @property
    def unexplained(self) -> str:
        """The parts without an expression, the first ones by name."""
        names = list(self.missing)
        return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


class Tested(NamedTuple):
    """A symbol, or an expression in some, and the smallest and the largest value of it at which captures agreed."""

    symbol: Annotated[str, Show(unit="name")]
    expr: Expr
    low: Annotated[int, Show("from")]
    high: Annotated[int, Show("to")]
    default: Annotated[int | None, Show("default")]


class Totals(dict[str, int]):
    """Totals at one setting by name. ``extrapolated`` has the symbols whose values are outside of what was tested, with
    the range that was; what is printed says so."""

    def __init__(self, totals: Mapping[str, int], formulas: Formulas, setting: Mapping[str, int]) -> None:
        super().__init__(totals)
        self._formulas, self._setting = formulas, setting

    @property
    def extrapolated(self) -> dict[str, tuple[int, int]]:
        """The tested range of each symbol that is outside of it."""
        return self._formulas.extrapolated(self._setting)

    def __repr__(self) -> str:
        outside = told(self.extrapolated)
        return super().__repr__() + (f"  # extrapolated: {outside}" if outside else "")


class Formulas(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The totals of a step as expressions, by the names of ``QUANTITIES``.

    ``defaults`` are values of all symbols: those of the workload's own hyperparameters. ``region`` are the
    conditions under which the expressions were derived; outside of it they are not claimed. Single totals may have
    further conditions, in ``only``. ``tested`` has the smallest and the largest value of each symbol at which captures
    agreed: beyond, the formulas are extrapolated. ``others`` are formulas of the same totals elsewhere, as on the other
    side of a threshold; ``thresholds`` are the conditions of the region beyond which the step is another one.
    ``partial`` has what is known of further totals, which no evaluation gives.
    """

    totals: Mapping[str, Expr]
    defaults: Mapping[str, int]
    region: tuple[Condition, ...] = ()
    only: Mapping[str, tuple[Condition, ...]] = {}
    tested: Mapping[str, tuple[int, int]] = {}
    others: tuple[Formulas, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    partial: Mapping[str, Partial] = {}
    workload: str = ""
    assumptions: tuple[str, ...] = ()
    """Assumptions of the capture at the default setting."""
    settings: Mapping[str, str | int | float | bool | None] = {}
    """Hyperparameters that are no symbols, with their values."""
    held: Mapping[str, str] = {}
    """Those of them that were to be symbols, and why they are none."""
    notes: tuple[str, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The hyperparameters, in the order in which they were asked for."""
        return tuple(self.defaults)

    def evaluate(self, **bindings: int) -> Totals:
        """All totals that hold at a setting; hyperparameters that are not given have their defaults. Its attribute
        ``extrapolated`` has the symbols that are outside of the ranges in which the formulas were tested.

        Raises ExpressionError for a name that is no symbol, a value that is no positive integer (0 where that was
        tested), and outside the region.
        """
        setting = self.setting(bindings)
        return Totals(self.totals_at(setting), self, setting)

    def setting(self, bindings: Mapping[str, int]) -> dict[str, int]:
        """The full setting that ``bindings`` stands for, checked."""
        for name, value in bindings.items():
            self.check(name, self.symbols, "symbol")
            if type(value) is not int or value < self.least(name):
                kind = "an integer of at least 0" if self.least(name) == 0 else "a positive integer"
                raise ExpressionError(f"{name} must be {kind}, not {value!r}")
        return {**self.defaults, **bindings}

    def least(self, name: str) -> int:
        """The least value that a symbol may have: 1, or 0 where that was tested."""
        return min(1, *(piece.tested.get(name, (1, 1))[0] for piece in (self, *self.others)))

    def check(self, name: str, known: Iterable[str], what: str) -> None:
        """Raise ExpressionError if ``name`` is none of ``known``, with what was perhaps meant."""
        known = tuple(known)
        if name not in known and "total" in what and name in self.partial:
            others = [other for other in known if other in INSTEAD.get(name, ())]
            instead = f"; there is {' and '.join(others)}" if others else ""
            raise ExpressionError(f"{name} is known in part only: not {self.partial[name].unexplained}{instead}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
            hint = f": did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known) or 'none'}"
            raise ExpressionError(f"{name!r} is no {what} of these formulas{hint}")

    def at(self, **bindings: int) -> Formulas:
        """The same formulas with other defaults; those of another side of a threshold come first if they hold there."""
        setting = self.setting(bindings)
        moved = msgspec.structs.replace(self, defaults=setting)
        try:
            piece = moved.piece(setting)
        except ExpressionError:
            return moved
        if piece is moved:
            return moved
        others = (msgspec.structs.replace(self, others=()), *(other for other in self.others if other is not piece))
        return msgspec.structs.replace(piece, defaults=setting, others=others)

    def along(self, path: Mapping[str, Expr | int | str]) -> Formulas:
        """The formulas where some symbols follow others: ``along({"hidden": "64*heads", "batch": 8})``.

        Raises ExpressionError for a name that is no symbol, and where the region excludes the path.
        """
        steps = {name: as_expr(step) for name, step in path.items()}
        for name in (*steps, *sorted({used for step in steps.values() for used in step.symbols})):
            self.check(name, self.symbols, "symbol")
        region = []
        try:
            totals = {name: expr.subs(steps) for name, expr in self.totals.items()}
            for condition in self.region:
                moved = _led(condition, steps)
                if not isinstance(value := moved.expr.value, int):
                    region.append(moved)
                elif not moved.holds(value):
                    raise ExpressionError(f"the formulas do not hold along this path: they need {condition}")
            below = [(step, denominator(step)) for step in steps.values()]
            region += [Condition(step * number % number, "==") for step, number in below if number != 1]
        except ArithmeticError as error:
            raise ExpressionError(f"no formulas along this path: {error}") from None
        led = steps.keys() - {used for step in steps.values() for used in step.symbols}
        others = []
        for other in self.others:
            with contextlib.suppress(ExpressionError):
                others.append(other.along(path))
        return msgspec.structs.replace(
            self,
            totals=totals,
            region=tuple(dict.fromkeys(region)),
            only={name: tuple(_led(c, steps) for c in conditions) for name, conditions in self.only.items()},
            defaults={name: value for name, value in self.defaults.items() if name not in led},
            tested={
                text(steps[name]) if name in steps else name: ends
                for name, ends in self.tested.items()
                if name not in steps or steps[name].value is None
            },
            thresholds=tuple(Threshold(condition=_led(t.condition, steps), change=t.change) for t in self.thresholds),
            partial={n: Partial(known=p.known.subs(steps), missing=p.missing) for n, p in self.partial.items()},
            others=tuple(others),
        )

    def latex(self, names: Mapping[str, str] | None = None) -> str:
        r"""The totals as a LaTeX ``align`` environment. ``names`` says how symbols are written: ``{"hidden": "h"}``."""
        escaped = {name: name.replace("_", r"\_") for name in self.totals}
        lines = (rf"  \text{{{escaped[name]}}} &= {latex(expr, names)}" for name, expr in self.totals.items())
        return "\\begin{align}\n" + " \\\\\n".join(lines) + "\n\\end{align}\n"

    def sympy(self) -> dict[str, sympy.Expr]:
        """The totals as sympy objects in positive integer symbols. Needs sympy."""
        return {name: to_sympy(expr) for name, expr in self.totals.items()}

    def region_of(self, names: Iterable[str]) -> tuple[Condition, ...]:
        """The conditions under which all the totals ``names`` hold."""
        return (*self.region, *(condition for name in names for condition in self.only.get(name, ())))

    def totals_at(self, setting: Mapping[str, int]) -> dict[str, int]:
        """All totals that hold at a full setting. Raises ExpressionError where no formulas hold."""
        return self.piece(setting)._own(setting)

    def _own(self, setting: Mapping[str, int]) -> dict[str, int]:
        """The totals of these formulas that hold at a setting in their region."""
        try:
            asked = itertools.islice(self._asked(setting), len(self.region), None)
            results = dict(zip(self.totals, self._compiled(setting), strict=True))
        except ArithmeticError as error:
            raise _no_value(setting, error) from None
        for (name, condition), value in zip(self._further, asked, strict=True):
            if not condition.holds(value):
                results.pop(name, None)
        return results

    def piece(self, setting: Mapping[str, int]) -> Formulas:
        """The formulas that hold at a full setting, these or others: the first with the most totals. Raises
        ExpressionError if there are none."""
        violated = self.crossed(setting)
        pieces = [] if violated else [self]
        known = len(self._own(setting)) if pieces and self.others else 0
        more = (o for o in self.others if len(o.totals) > known and o.defaults.keys() <= setting.keys())
        pieces += [other for other in more if not other.crossed(setting)]
        if violated and not pieces:
            threshold = self.threshold(violated)
            needs = f"{violated} ({threshold})" if threshold else f"{violated}"
            raise OutsideRegion(f"the formulas do not hold at {shown(setting)}: they need {needs}", needs)
        return pieces[0] if len(pieces) == 1 else max(pieces, key=lambda piece: len(piece._own(setting)))

    def threshold(self, condition: Condition) -> Threshold | None:
        """The threshold whose condition it is, if there is one."""
        return next((threshold for threshold in self.thresholds if threshold.condition == condition), None)

    def crossed(self, setting: Mapping[str, int]) -> Condition | None:
        """The condition of these formulas that a full setting is beyond; None where they hold."""
        try:
            asked = self._asked(setting)
        except ArithmeticError as error:
            raise _no_value(setting, error) from None
        pairs = zip(self.region, asked, strict=False)
        return next((condition for condition, value in pairs if not condition.holds(value)), None)

    def extrapolated(self, setting: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The symbols whose values at a full setting are outside of what was tested, with the range that was.

        Along a path, symbols that follow others are the expressions of these. Raises ExpressionError where no formulas
        hold.
        """
        found = {}
        for name, expr, low, high, _ in self.piece(setting).ranges:
            if not low <= value_at(expr, setting) <= high:
                found[name] = (low, high)
        return found

    @functools.cached_property
    def ranges(self) -> list[Tested]:
        """All that was tested."""
        known = self.defaults
        return [
            Tested(n, symbol(n) if n in known else parse(n), *ends, known.get(n)) for n, ends in self.tested.items()
        ]

    @functools.cached_property
    def _further(self) -> list[tuple[str, Condition]]:
        """The conditions of single totals, with their names."""
        return [(name, condition) for name in self.totals for condition in self.only.get(name, ())]

    @functools.cached_property
    def _compiled(self) -> Compiled:
        return compiled(self.totals.values())

    @functools.cached_property
    def _asked(self) -> Compiled:
        asked = (*self.region, *(condition for _, condition in self._further))
        return compiled(condition.expr for condition in asked)


def _led(condition: Condition, steps: Mapping[str, Expr]) -> Condition:
    return Condition(condition.expr.subs(steps), condition.relation)


def _no_value(setting: Mapping[str, int], error: ArithmeticError) -> OutsideRegion:
    return OutsideRegion(f"no value at {shown(setting)}: {error}", "divisions that are exact")


def shown(setting: Mapping[str, int]) -> str:
    """A setting as text."""
    return ", ".join(f"{name}={value}" for name, value in setting.items())


def told(extrapolated: Mapping[str, tuple[int, int]]) -> str:
    """Ranges outside of which a setting is, as text: ``hidden (tested 1 to 1,024)``."""
    return ", ".join(f"{name} (tested {low:,} to {high:,})" for name, (low, high) in extrapolated.items())


def value_at(expr: Expr, setting: Mapping[str, int]) -> Fraction:
    """The value of an expression, which need not be whole."""
    return Fraction(expr.subs(setting).value or 0)
