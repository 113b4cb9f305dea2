"""Short names for long atoms that many printed expressions share."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterable, Iterator

from tensortide.expr.atoms import is_exponential
from tensortide.expr.expr import Expr, Opaque, constant, opaque, symbol
from tensortide.expr.floors import is_turned
from tensortide.expr.show import text
from tensortide.expr.size import Condition

_OFTEN = 3
"""Times that an atom is printed before it gets a name."""
_POOL = "tuvwxyz" + string.ascii_lowercase[:-7] + string.ascii_uppercase


class Names:
    """Names of the atoms that ``exprs`` repeat (``t = floor(seq/4)``), none of which is one of their symbols.

    >>> names = Names([parse("3*floor(seq/4)*hidden + floor(seq/4)"), parse("batch*floor(seq/4)")])  # doctest: +SKIP
    >>> names.text(parse("3*floor(seq/4)*hidden")), names.meanings  # doctest: +SKIP
    ('3*hidden*t', {'t': 'floor(seq/4)'})
    """

    def __init__(self, exprs: Iterable[Expr] = ()) -> None:
        exprs = list(dict.fromkeys(exprs))
        counts = Counter(atom for expr in exprs for atom in _opaque(expr))
        taken = {name for expr in exprs for name in expr.symbols}
        often = [a for a, times in counts.most_common() if times >= _OFTEN and not is_exponential(a)]
        free = [name for name in _POOL if name not in taken]
        self._names: dict[Opaque, Expr] = {atom: symbol(name) for atom, name in zip(often, free, strict=False)}

    def text(self, expr: Expr) -> str:
        """The factored text of an expression, with the names in place of their atoms."""
        return text(self._named(expr)) if self._names else text(expr)

    def condition(self, condition: Condition) -> str:
        """A condition, with the names in place of their atoms."""
        return str(Condition(self._named(condition.expr), condition.relation)) if self._names else str(condition)

    @property
    def meanings(self) -> dict[str, str]:
        """Return what each name stands for, in terms of the others."""
        return {str(name): text(self._inside(atom) * _sign(atom)) for atom, name in self._names.items()}

    def _named(self, expr: Expr) -> Expr:
        """The expression with names, which are not folded: unlike symbols they may stand for 0."""
        result = constant(0)
        for monomial, coefficient in expr.terms.items():
            term = constant(coefficient)
            for atom, exponent in monomial:
                base = Expr({((atom, 1),): 1}) if isinstance(atom, str) else self._short(atom)
                term = term * base**exponent
            result = result + term
        return result

    def _short(self, atom: Opaque) -> Expr:
        name = self._names.get(atom)
        return self._inside(atom) if name is None else name * _sign(atom)

    def _inside(self, atom: Opaque) -> Expr:
        return opaque(atom.name, tuple(map(self._named, atom.arguments)))


def _sign(atom: Opaque) -> int:
    return -1 if is_turned(atom) else 1


def _opaque(expr: Expr) -> Iterator[Opaque]:
    """The opaque atoms of an expression, each as often as it is in a term, those inside others too."""
    for monomial in expr.terms:
        for atom, _ in monomial:
            if isinstance(atom, Opaque):
                yield atom
                for argument in atom.arguments:
                    yield from _opaque(argument)
