"""Formulas: what a step costs as exact expressions in its hyperparameters, and where they hold.

Their file is JSON that people read and other programs write.
"""

from __future__ import annotations

import difflib
import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tensortide.errors import ExpressionError
from tensortide.expr import (
    Compiled,
    Condition,
    Expr,
    as_expr,
    compiled,
    constant,
    latex,
    parse,
    parse_condition,
    text,
    to_sympy,
)
from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Opaque, denominator
from tensortide.importers.textfile import head
from tensortide.versioned import Format
from tensortide.write import write_file

if TYPE_CHECKING:
    import sympy

QUANTITIES: dict[str, str] = {
    "parameters": "trainable elements, tied weights once",
    "flops": "algorithmic FLOPs: products and the rest",
    "product_flops": "FLOPs of matrix products and convolutions, two per multiply-accumulate",
    "elementwise_flops": "FLOPs that are no products",
    "bytes": "bytes that ops must read and write",
    "footprint_bytes": "bytes of all storages of the step",
    "io_bytes": "bytes fed to the step and read from it",
    "peak_bytes": "most bytes of storages alive at once, as the step runs eagerly",
    "peak_with_workspace_bytes": "the same with what kernels are known to take beside them",
    "minimal_footprint_lower_bytes": "no order of the ops needs fewer bytes",
    "minimal_footprint_upper_bytes": "an order of the ops needs no more bytes",
}
"""The totals of a step by name, with what they mean. A Formulas has those that it could express."""


class Formulas(msgspec.Struct, frozen=True, dict=True, kw_only=True):
    """The totals of a step as expressions, by the names of ``QUANTITIES``.

    ``defaults`` are values of all symbols: those of the workload's own hyperparameters. ``region`` are the
    conditions under which the expressions were derived; outside of it they are not claimed. Single totals may have
    further conditions, in ``only``.
    """

    totals: Mapping[str, Expr]
    defaults: Mapping[str, int]
    region: tuple[Condition, ...] = ()
    only: Mapping[str, tuple[Condition, ...]] = {}
    workload: str = ""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The hyperparameters, in the order in which they were asked for."""
        return tuple(self.defaults)

    def evaluate(self, **bindings: int) -> dict[str, int]:
        """All totals that hold at a setting; hyperparameters that are not given have their defaults.

        Raises ExpressionError for a name that is no symbol, a value that is no positive integer, and outside the
        region.
        """
        values = zip(self.totals, self.values(self.setting(bindings)), strict=True)
        return {name: value for name, value in values if value is not None}

    def setting(self, bindings: Mapping[str, int]) -> dict[str, int]:
        """The full setting that ``bindings`` stands for, checked."""
        for name, value in bindings.items():
            self.check(name, self.symbols, "symbol")
            if type(value) is not int or value < 1:
                raise ExpressionError(f"{name} must be a positive integer, not {value!r}")
        return {**self.defaults, **bindings}

    def check(self, name: str, known: Iterable[str], what: str) -> None:
        """Raise ExpressionError if ``name`` is none of ``known``, with what was perhaps meant."""
        known = tuple(known)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=2)
            hint = f": did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(known) or 'none'}"
            raise ExpressionError(f"{name!r} is no {what} of these formulas{hint}")

    def at(self, **bindings: int) -> Formulas:
        """The same formulas with other defaults."""
        return msgspec.structs.replace(self, defaults=self.setting(bindings))

    def along(self, path: Mapping[str, Expr | int | str]) -> Formulas:
        """The formulas where some symbols follow others: ``along({"hidden": "64*heads", "batch": 8})``.

        Raises ExpressionError for a name that is no symbol, and where the region excludes the path.
        """
        steps = {name: as_expr(step) for name, step in path.items()}
        for name in (*steps, *sorted({symbol for step in steps.values() for symbol in step.symbols})):
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
        led = steps.keys() - {symbol for step in steps.values() for symbol in step.symbols}
        defaults = {name: value for name, value in self.defaults.items() if name not in led}
        only = {name: tuple(_led(c, steps) for c in conditions) for name, conditions in self.only.items()}
        region = list(dict.fromkeys(region))
        return msgspec.structs.replace(self, totals=totals, region=tuple(region), only=only, defaults=defaults)

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

    def values(self, setting: Mapping[str, int]) -> list[int | None]:
        """The totals at a full setting, in order; None for one that does not hold there.

        Raises ExpressionError outside the region.
        """
        try:
            asked = iter(self._asked(setting))
            for condition, value in zip(self.region, asked, strict=False):
                if not condition.holds(value):
                    raise ExpressionError(f"the formulas do not hold at {_shown(setting)}: they need {condition}")
            results: list[int | None] = [*self._compiled(setting)]
        except ArithmeticError as error:
            raise ExpressionError(f"no value at {_shown(setting)}: {error}") from None
        for (index, condition), value in zip(self._further, asked, strict=True):
            if not condition.holds(value):
                results[index] = None
        return results

    @functools.cached_property
    def _further(self) -> list[tuple[int, Condition]]:
        """The conditions of single totals, with the totals' positions."""
        return [(i, condition) for i, name in enumerate(self.totals) for condition in self.only.get(name, ())]

    @functools.cached_property
    def _compiled(self) -> Compiled:
        return compiled(self.totals.values())

    @functools.cached_property
    def _asked(self) -> Compiled:
        asked = (*self.region, *(condition for _, condition in self._further))
        return compiled(condition.expr for condition in asked)


def _led(condition: Condition, steps: Mapping[str, Expr]) -> Condition:
    return Condition(condition.expr.subs(steps), condition.relation)


def _shown(setting: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in setting.items())


@dataclass(frozen=True, slots=True)
class Share:
    """A term of a total, its value at a setting and its part of the total."""

    term: str
    value: float
    share: float


def shares(formulas: Formulas, total: str, /, **at: int) -> tuple[Share, ...]:
    """Every term of a total at a setting, with its share of the total: largest first.

    A maximum stands for the argument that it is at the setting.
    """
    formulas.check(total, formulas.totals, "total")
    setting = formulas.setting(at)
    whole = formulas.evaluate(**at).get(total)
    if whole is None:
        raise ExpressionError(f"{total} does not hold at this setting: it needs {formulas.only[total][0]}")
    parts = [Expr({monomial: c}) for monomial, c in _opened(formulas.totals[total], setting).terms.items()]
    valued = [(text(part), value_at(part, setting)) for part in parts]
    ranked = sorted(valued, key=lambda term: (-abs(term[1]), term[0]))
    return tuple(Share(shown, float(value), float(value / whole) if whole else 0.0) for shown, value in ranked)


def _opened(expr: Expr, setting: Mapping[str, int]) -> Expr:
    """The expression with the arguments that win in place of maxima and minima."""

    def opened(atom: Opaque) -> Expr | None:
        choose = KINDS[atom.name].choose
        won = choose and choose(atom.arguments, key=lambda argument: value_at(argument, setting))
        return won and _opened(won, setting)

    return with_atoms(expr, opened)


def with_atoms(expr: Expr, instead: Callable[[Opaque], Expr | None]) -> Expr:
    """The expression with other ones in place of its opaque atoms; None: the atom stays."""
    result = constant(0)
    for monomial, coefficient in expr.terms.items():
        term = constant(coefficient)
        for atom, exponent in monomial:
            base = instead(atom) if isinstance(atom, Opaque) else None
            term = term * (Expr({((atom, 1),): 1}) if base is None else base) ** exponent
        result = result + term
    return result


def value_at(expr: Expr, setting: Mapping[str, int]) -> Fraction:
    """The value of an expression, which need not be whole."""
    return Fraction(expr.subs(setting).value or 0)


FORMAT = Format("formulas", "tensortide.formulas", (1,), ExpressionError, "derive them again")

T = TypeVar("T")


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    format: str
    workload: str = ""
    defaults: dict[str, int]
    totals: dict[str, str]
    region: list[str] = []
    only: dict[str, list[str]] = {}


def save_formulas(formulas: Formulas, path: str | os.PathLike[str]) -> Path:
    """Write ``formulas`` to ``path``, the totals as text, factored; the whole file or nothing. Raises OutputError."""
    file = _File(
        format=f"{FORMAT.tag}/{FORMAT.version}",
        workload=formulas.workload,
        defaults=dict(formulas.defaults),
        totals={name: text(expr) for name, expr in formulas.totals.items()},
        region=[str(condition) for condition in formulas.region],
        only={name: [str(condition) for condition in asked] for name, asked in formulas.only.items()},
    )
    return write_file(path, msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n")


def is_formulas_file(path: str | os.PathLike[str]) -> bool:
    """Tell a file of formulas, of whatever version, by its content."""
    return f'"{FORMAT.tag}/'.encode() in head(Path(path))


def load_formulas(path: str | os.PathLike[str]) -> Formulas:
    """Read a file of formulas. Raises ExpressionError that says what is wrong with it, and where."""
    file = FORMAT.load(path, _File)
    formulas = Formulas(
        totals={name: _read(path, f"totals.{name}", parse, shown) for name, shown in file.totals.items()},
        defaults=file.defaults,
        region=tuple(_read(path, "region", parse_condition, shown) for shown in file.region),
        only={
            name: tuple(_read(path, f"only.{name}", parse_condition, shown) for shown in asked)
            for name, asked in file.only.items()
        },
        workload=file.workload,
    )
    used = {name for expr in formulas.totals.values() for name in expr.symbols}
    used |= {name for condition in formulas.region_of(formulas.only) for name in condition.expr.symbols}
    if unbound := sorted(used - file.defaults.keys()):
        raise ExpressionError(f"{path} has no default for {', '.join(unbound)}")
    if bad := [name for name, value in file.defaults.items() if value < 1]:
        raise ExpressionError(f"{path}: the default of {bad[0]} must be a positive integer")
    return formulas


def _read(path: str | os.PathLike[str], where: str, read: Callable[[str], T], shown: str) -> T:
    try:
        return read(shown)
    except ExpressionError as error:
        raise ExpressionError(f"{path}, {where}: {error}") from None
