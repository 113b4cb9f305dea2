"""Sizes of a file as expressions, and what is learnt about them: equations, solved one by one.

Every size that a file states on its own (a dim of a fed tensor, of a variable, an element of a constant) starts as a
symbol of its own. Where two sizes must be equal, one symbol is eliminated: ``W0 = e + h``, ``W1 = 4*h``. What is left
in the end are the independent sizes of the model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from enum import IntEnum
from fractions import Fraction

from tensortide.expr import Expr, constant, symbol
from tensortide.expr.expr import Opaque
from tensortide.importers.shapes import ShapeError

PRIMES = 10_007
"""Values that stand for unknown sizes while hints decide (which of two dims is broadcast): large, distinct primes."""


class Conflict(ShapeError):
    """Two sizes that must be equal are not, as the caller has bound them."""

    def __init__(self, a: Expr, b: Expr, both: bool) -> None:
        why = "both as bound by the caller" if both else "equal in the file, bound by the caller in one place only"
        super().__init__(f"{a} and {b}, {why}")


class Origin(IntEnum):
    """The origin of a symbol; of two that are equal, the higher one stays."""

    DERIVED = 0
    CONSTANT = 1
    STORED_FEED = 2
    VARIABLE = 3
    FEED = 4
    USER = 5


class Sizes:
    """Symbols with their values in the file, and the solved equations between them.

    ``hints`` are the values; of the symbols in ``unstored`` the file has none, and the value only stands for one.
    ``pending`` are equations that cannot be solved yet, each with its ``place``, the node that asked for it.
    """

    def __init__(self) -> None:
        self.hints: dict[str, int] = {}
        self.unstored: set[str] = set()
        self.origins: dict[str, Origin] = {}
        self.solved: dict[str, Expr] = {}
        self.facts: list[tuple[Expr, int]] = []
        self.pending: dict[tuple[Expr, Expr], str] = {}
        self.place = ""
        self.bounds: dict[str, Expr] = {}
        odd = itertools.count(PRIMES, 2)
        self._primes = (n for n in odd if all(n % divisor for divisor in range(3, int(n**0.5) + 1, 2)))
        self._numbers: dict[Expr, int | Fraction] = {}

    def new(self, name: str, hint: int | None, origin: Origin) -> Expr:
        """Return the symbol ``name``, made on first use; ``hint`` None: the file has no value."""
        if name not in self.hints:
            self.origins[name] = origin
            if hint is None:
                self.unstored.add(name)
                hint = next(self._primes)
            self.hints[name] = hint
        return symbol(name)

    def bounded(self, name: str, most: Expr) -> Expr:
        """Return the symbol ``name`` for a size that data decide, at most ``most``."""
        self.bounds[name] = most
        return self.new(name, None, Origin.DERIVED)

    def now(self, expr: Expr) -> Expr:
        """``expr`` with everything that is known by now put in."""
        name = _lone(expr)
        if name is not None:
            found = self.solved.get(name)
            if found is None:
                return expr
            final = self.now(found)
            if final is not found:
                self.solved[name] = final
            return final
        if expr.value is not None:
            return expr
        known = {name: self.now(self.solved[name]) for name in expr.symbols if name in self.solved}
        return expr.subs(known) if known else expr

    def number(self, expr: Expr) -> int | Fraction:
        """Return the value of ``expr`` in the file."""
        name = _lone(expr)
        if name is not None and name not in self.solved:
            return self.hints[name]
        value = self._numbers.get(expr)
        if value is None:
            value = self._numbers[expr] = self._evaluate(self.now(expr))
        return value

    def _evaluate(self, expr: Expr) -> int | Fraction:
        total: int | Fraction = 0
        for monomial, coefficient in expr.terms.items():
            term: int | Fraction = coefficient
            for atom, exponent in monomial:
                if isinstance(atom, Opaque):
                    known = {name: self.hints[name] for argument in atom.arguments for name in argument.symbols}
                    base = Expr({((atom, 1),): 1}).subs(known).value
                    assert base is not None
                else:
                    base = self.hints[atom]
                term = term * base**exponent if exponent > 0 else Fraction(term) / base**-exponent
            total += term
        return total.numerator if isinstance(total, Fraction) and total.denominator == 1 else total

    def stored(self, expr: Expr) -> bool:
        """Tell whether the file determines the value of ``expr``."""
        return not (self.now(expr).symbols & self.unstored)

    def equal(self, a: Expr, b: Expr) -> Expr:
        """Learn that ``a`` and ``b`` are one size, and returns it. Raises ShapeError if they cannot be."""
        a, b = self.now(a), self.now(b)
        if a == b:
            return a
        if not self._learn(a, b):
            self.pending[a, b] = self.place
        return self.now(a)

    def equal_if_alike(self, a: Expr, b: Expr) -> None:
        """Learn that two sizes to which the file gives the same value are one. Raises ShapeError as ``equal``."""
        if self.stored(a) and self.stored(b) and self.number(a) == self.number(b):
            self.equal(a, b)

    def state(self, expr: Expr, value: int) -> None:
        """Learn what the file has for an expression that the caller put in place of a number."""
        if self.stored(expr) and self.number(expr) != value:
            raise ShapeError(f"{expr} = {self.number(expr)}, as bound by the caller, and {value}")
        self.facts.append((expr, value))
        self._adopt(expr, value)

    def _learn(self, a: Expr, b: Expr, last: bool = False) -> bool:
        """Solve ``a = b`` for one symbol; False if none can be expressed in whole sizes (``last``: in any)."""
        names, choices = _solutions(a, b)
        if not names & self.unstored and self.number(a) != self.number(b):
            raise ShapeError(f"{self._shown(a)} and {self._shown(b)}")
        free = [(n, solution) for n, solution in choices if self.origins[n] is not Origin.USER and _is_whole(solution)]
        if not free and last:
            free = [(n, s) for n, s in choices if self.origins[n] is Origin.DERIVED and n in self.unstored]
        if not free:
            if names and all(self.origins[name] is Origin.USER for name in names):
                raise Conflict(a, b, a.value is None and b.value is None)
            return False
        name, solution = min(free, key=lambda choice: self._preference(*choice))
        given = self.origins[name] >= Origin.STORED_FEED  # what is fed or trained is not empty
        if self.number(solution) < 0 or (given and solution.value == 0):
            raise ShapeError(f"{self._shown(a)} and {self._shown(b)}")
        self._eliminate(name, solution)
        return True

    def _preference(self, name: str, solution: Expr) -> tuple[bool, bool, Origin, int, Origin, str]:
        """Symbols without a value go first, then sums (``W = e + h``, not ``e = W - h``), then derived ones and
        constants; products (``H = a*d``) last."""
        origin = self.origins[name]
        kept = name not in self.unstored or origin is Origin.FEED
        difference = any(coefficient < 0 for coefficient in solution.terms.values())
        return kept, difference, min(origin, Origin.STORED_FEED), len(solution.terms), origin, name

    def _eliminate(self, name: str, solution: Expr) -> None:
        self.solved[name] = solution
        if name not in self.unstored:
            self.facts.append((solution, self.hints[name]))
            self._adopt(solution, self.hints[name])
        for other in solution.symbols:
            if self.origins[other] < Origin.STORED_FEED:
                self.origins[other] = max(self.origins[other], self.origins[name])
        self._numbers.clear()

    def _adopt(self, expr: Expr, value: int) -> bool:
        """Gives the only symbol of ``expr`` without a value the one that makes it ``value``."""
        expr = self.now(expr)
        missing = expr.symbols & self.unstored
        if len(missing) != 1:
            return False
        (name,) = missing
        solution = _solved_for(expr - value, name)
        number = None if solution is None else self._evaluate(solution)
        if not isinstance(number, int) or number < 1:
            return False
        self.hints[name] = number
        self.unstored.discard(name)
        self._numbers.clear()
        return True

    def settle(self, last: bool = True) -> None:
        """Solve what was put off, as far as it can be by now; values of products give values of factors.

        ``last``: also for sizes that are then fractions of others.
        """
        for fractions in (False, True)[: 1 + last]:
            before = len(self.pending) + 1
            while len(self.pending) < before:
                before = len(self.pending)
                waiting, self.pending = self.pending, {}
                for (a, b), place in waiting.items():
                    left, right = self.now(a), self.now(b)
                    self.place = place
                    if left != right and not self._learn(left, right, fractions):
                        self.pending[left, right] = place
        while any(self._adopt(expr, value) for expr, value in self.facts):
            pass

    def left(self) -> Iterator[tuple[str, Expr, Expr]]:
        """Return the equations that do not follow, with their places. Raises Conflict where the caller has bound a part
        of one, and no size of one side alone is open."""
        for (left, right), place in self.pending.items():
            a, b = self.now(left), self.now(right)
            if self._differ(a, b):
                self.place = place
                bound = {name for name in a.symbols | b.symbols if self.origins[name] is Origin.USER}
                if bound and not ((a.symbols ^ b.symbols) - bound) & self.unstored:
                    raise Conflict(a, b, both=False)
                yield place, a, b

    def _differ(self, a: Expr, b: Expr) -> bool:
        """Tell whether two sizes that are equal in the file differ for other values of their symbols."""
        for factor in (1, 2, 3):
            values = {name: factor * self.hints[name] + factor - 1 for name in a.symbols | b.symbols}
            if a.subs(values) != b.subs(values):
                return True
        return False

    def _shown(self, expr: Expr) -> str:
        return str(self.number(expr)) if self.stored(expr) else str(expr)


def _lone(expr: Expr) -> str | None:
    """Return the symbol that ``expr`` is, if it is one."""
    if len(expr.terms) != 1:
        return None
    ((monomial, coefficient),) = expr.terms.items()
    if coefficient == 1 and len(monomial) == 1:
        atom, exponent = monomial[0]
        if exponent == 1 and isinstance(atom, str):
            return atom
    return None


def _solutions(a: Expr, b: Expr) -> tuple[frozenset[str], list[tuple[str, Expr]]]:
    """Return the symbols on which ``a = b`` depends, and what each is, as far as it can be expressed."""
    one, other = _lone(a), _lone(b)
    if (one or a.value is not None) and (other or b.value is not None):  # most equations
        return a.symbols | b.symbols, [(name, to) for name, to in ((one, b), (other, a)) if name is not None]
    difference = a - b
    solved = ((name, _solved_for(difference, name)) for name in difference.symbols)
    return difference.symbols, [(name, solution) for name, solution in solved if solution is not None]


def _solved_for(difference: Expr, name: str) -> Expr | None:
    """``name`` from ``difference = 0``, where it occurs linearly and with a monomial for a factor."""
    factors = difference.coefficients(name)
    factor = factors.pop(1, None)
    if factor is None or len(factor.terms) != 1 or factors.keys() - {0}:
        return None
    rest = factors.get(0, constant(0))
    if name in rest.symbols or name in factor.symbols:
        return None
    return rest / -factor


def _is_whole(expr: Expr) -> bool:
    return all(isinstance(c, int) and all(exponent > 0 for _, exponent in m) for m, c in expr.terms.items())
