"""Expressions as plain lists, for files: whatever the names of their symbols are."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tensortide.expr.atoms import KINDS
from tensortide.expr.expr import Atom, Expr, Monomial, Opaque

__all__ = ["from_plain", "to_plain"]


def to_plain(expr: Expr) -> list[Any]:
    """Terms ``[coefficient, [[atom, exponent], ...]]``; an atom is a symbol's name or ``[function, argument, ...]``."""
    return [[str(c), [[_plain_atom(atom), exponent] for atom, exponent in m]] for m, c in expr.terms.items()]


def _plain_atom(atom: Atom) -> Any:
    return atom if isinstance(atom, str) else [atom.name, *map(to_plain, atom.arguments)]


def from_plain(plain: Any) -> Expr:
    """The expression of ``to_plain``'s lists. Raises ValueError or TypeError for anything else."""
    terms: dict[Monomial, Fraction] = {}
    for coefficient, powers in plain:
        terms[tuple((_atom(atom), int(exponent)) for atom, exponent in powers)] = Fraction(coefficient)
    return Expr(terms)


def _atom(plain: Any) -> Atom:
    if isinstance(plain, str):
        return plain
    name, *arguments = plain
    if name not in KINDS:
        raise ValueError(f"{name!r} is no function of expressions")
    return Opaque(name, tuple(map(from_plain, arguments)))
