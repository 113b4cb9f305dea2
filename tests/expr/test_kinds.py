"""The table of opaque atoms: every row answers every question, and a new row is all that a new atom takes."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random

import pytest
import sympy

from tensortide.expr import Expr, as_expr, compiled, constant, latex, nonnegative, parse, text, to_sympy
from tensortide.expr.atoms import ALONE, KINDS, MAX, Kind, called, raised
from tensortide.expr.expr import Opaque, opaque
from tensortide.expr.parse import from_plain, to_plain
from tensortide.formulas.crossing import crossing

SAMPLES: dict[str, list[tuple[str, ...]]] = {
    "floor": [("h + 2", "3"), ("h*n", "n + 1")],
    "max": [("h", "n"), ("2*h + 1", "7*b", "n**2")],
    "min": [("h", "n"), ("2*h + 1", "7*b", "n**2")],
    "power": [("2", "n"), ("3", "h + n")],
    "isqrt": [("n",), ("h*n + 3",)],
    "bits": [("n",), ("h*n - 1",)],
}
"""Arguments of atoms that do not fold, by kind."""
ATOMS = [(kind, tuple(map(parse, arguments))) for kind, samples in SAMPLES.items() for arguments in samples]


def test_every_row_is_sampled() -> None:
    assert SAMPLES.keys() == KINDS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_every_row_is_complete(name: str) -> None:
    kind = KINDS[name]
    required = [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
    assert all(callable(getattr(kind, column)) for column in required)
    for spelling in kind.calls:
        assert called(spelling) == (kind, kind.calls[spelling])


@pytest.mark.parametrize(("name", "arguments"), ATOMS)
def test_the_columns_of_a_row_agree(name: str, arguments: tuple[Expr, ...]) -> None:
    kind, atom = KINDS[name], opaque(name, arguments)
    assert parse(text(atom)) == atom
    assert from_plain(to_plain(atom)) == atom
    assert latex(atom)
    fast, symbols = compiled([atom]), sorted(atom.symbols)
    shape = to_sympy(atom)
    for values in itertools.product(range(1, 5), repeat=len(symbols)):
        at = dict(zip(symbols, values, strict=True))
        value = kind.value(*(a.evaluate(at) for a in arguments))
        assert atom.evaluate(at) == fast(at)[0] == value
        assert shape.subs({sympy.Symbol(n, integer=True, positive=True): v for n, v in at.items()}) == value
        if kind.choose:
            assert kind.choose(arguments, key=lambda a: a.evaluate(at)).evaluate(at) == value
        if nonnegative(atom):
            assert value >= 0
    for symbol in symbols:
        ramp = [atom.evaluate({**dict.fromkeys(symbols, 2), symbol: n}) for n in range(1, 30)]
        if kind.rises(lambda a: crossing(a, symbol) == 1, symbol, *arguments):  # noqa: B023
            assert ramp == sorted(ramp)
        if kind.exponential and ramp[0] != ramp[-1]:
            assert ramp[-1] > 30**4


def gcd(*values: Expr) -> Expr:
    numbers = [value.value for value in values]
    if all(isinstance(number, int) for number in numbers):
        return constant(math.gcd(*numbers))  # type: ignore[arg-type]
    return values[0] if len({*values}) == 1 else opaque("gcd", tuple(sorted(values, key=str)))


TOY = Kind(
    fold=gcd,
    value=math.gcd,
    calls={"gcd": gcd},
    text=lambda show, *parts: f"gcd({', '.join(show(part, ALONE) for part in parts)})",
    latex=lambda show, exponent, *parts: raised(rf"\gcd({', '.join(show(part, ALONE) for part in parts)})", exponent),
    sympy=lambda module, *parts: module.gcd(*parts),
    nonnegative=lambda *parts: True,
    rises=lambda rises, symbol, *parts: all(symbol not in part.symbols for part in parts),
)


def test_a_new_row_is_a_new_atom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "gcd", TOY)
    found = parse("3*gcd(n, h)**2 + gcd(12, 18) + gcd(b, b)")
    assert text(found) == "3*gcd(h, n)**2 + b + 6"
    assert parse(text(found)) == from_plain(to_plain(found)) == as_expr(str(found)) == found
    assert latex(found) == r"3 \, \gcd(h, n)^{2} + b + 6"
    dice = random.Random(1)
    for _ in range(20):
        at = {name: dice.randint(1, 60) for name in "bhn"}
        value = 3 * math.gcd(at["h"], at["n"]) ** 2 + 6 + at["b"]
        assert found.evaluate(at) == compiled([found])(at)[0] == value
    assert found.subs({"n": parse("h")}) == parse("3*h**2 + 6 + b")
    assert nonnegative(found)
    assert crossing(found - 10, "b") == 1
    assert crossing(parse("gcd(h, n)"), "h") == 0
    assert to_sympy(parse("gcd(4*h, 6*h)")) == 2 * sympy.Symbol("h", integer=True, positive=True)
    assert parse("max(gcd(h, n), 0)") == parse("gcd(h, n)"), "its sign is known"


def test_an_atom_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no function of expressions"):
        from_plain([["1", [[["gcd", [["1", []]]], 1]]]])
    assert isinstance(next(iter(opaque(MAX, (parse("h"), parse("n"))).atoms)), Opaque)
