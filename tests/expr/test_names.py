"""Names for atoms that printed expressions repeat."""

from __future__ import annotations

from tensortide.expr import Expr, floor, parse, symbol, text
from tensortide.expr.names import Names


def read(named: str, names: Names) -> Expr:
    """The expression that a shortened text stands for."""
    return parse(named).subs({name: parse(meaning) for name, meaning in names.meanings.items()})


def test_what_is_repeated_gets_a_name_that_is_no_symbol() -> None:
    exprs = [parse("t*floor(seq/4) + 3*floor(seq/4)*hidden"), parse("floor(seq/4)**2 + floor(seq/8)")]
    names = Names(exprs)
    assert names.meanings == {"u": "floor(seq/4)"}
    assert names.text(exprs[0]) == "u*(3*hidden + t)"
    assert names.text(exprs[1]) == "u**2 + floor(seq/8)"
    assert [read(names.text(expr), names) for expr in exprs] == exprs


def test_what_is_printed_twice_keeps_its_text() -> None:
    exprs = [parse("floor(seq/4)"), parse("3*floor(seq/4)")]
    assert not Names(exprs).meanings
    assert [Names(exprs).text(expr) for expr in exprs] == [text(expr) for expr in exprs]


def test_a_name_may_stand_for_zero() -> None:
    """A symbol is at least 1, so that a maximum with 1 would be left out."""
    inner = floor(symbol("s") / 4)
    names = Names([inner * symbol(name) for name in "abc"])
    assert names.text(parse("max(1, floor(s/4))")) == "max(1, t)"


def test_a_name_may_occur_in_what_another_stands_for() -> None:
    names = Names(parse(f"{n}*min(floor(s/4), h)*x") for n in range(1, 4))
    assert names.meanings == {"t": "min(u, h)", "u": "floor(s/4)"}


def test_a_name_for_what_is_rounded_up_has_its_sign() -> None:
    exprs = [parse("n*ceil(b*s/k)"), parse("h - ceil(b*s/k)"), parse("3*ceil(b*s/k)**2")]
    names = Names(exprs)
    assert names.meanings == {"t": "ceil(b*s/k)"}
    assert [names.text(expr) for expr in exprs] == ["n*t", "h - t", "3*t**2"]
    assert [read(names.text(expr), names) for expr in exprs] == exprs
