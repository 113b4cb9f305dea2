"""What totals grow into: exact where it is published, and checked in numbers at very large models."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import ExpressionError
from tensortide.expr import parse, symbol
from tensortide.formulas import Formulas, asymptotics, shares
from tensortide.formulas.asymptotics import Ratio, Term
from tests.formulas.samples import made, transformer, word_lm

b, s = symbol("b"), symbol("s")


def test_word_language_model_per_parameter() -> None:
    found = asymptotics(word_lm(), "h")
    limits = {growth.name: growth.per_parameter for growth in found.totals}
    assert limits["flops"] == Term(Ratio(6 * b * s + s + 3))
    assert limits["bytes"] == Term(Ratio(24 * s + 28))
    assert limits["footprint_bytes"] == Term(Ratio(8 * s + 12))
    at_80 = found.setting | {"s": 80}
    assert limits["bytes"].value(at_80) == 1948
    assert limits["footprint_bytes"].value(at_80) == 652
    assert limits["io_bytes"].power == Fraction(-1, 2)
    activations = found["bytes"].per_parameter_next
    assert activations is not None
    assert str(activations) == "(s*(357*b - 12*v - 8) + 14*b - 5*v)/sqrt(p)"


def test_word_language_model_intensity() -> None:
    """Table 2 of the source has the shape b sqrt(p) / (3.65 sqrt(p) + 64 b); the formulas give 4.06 and 59.5."""
    found = asymptotics(word_lm(), "h", at={"s": 80})
    intensity = found.intensity
    assert intensity is not None
    assert intensity.u is not None
    assert intensity.w is not None
    assert intensity.u == Ratio(24 * s + 28, 6 * s).reduced()
    assert str(intensity.w) == "7*(51*s + 2)/(6*s)"
    assert intensity.large_model == Ratio(6 * b * s + s + 3, 24 * s + 28).reduced()
    assert found.batch == "b"
    u, w = float(intensity.u.value(found.setting)), intensity.w.value(found.setting)
    assert (round(u, 2), round(w, 1)) == (4.06, 59.5)
    huge = word_lm().evaluate(h=10**9, b=10**4)
    root = huge["parameters"] ** 0.5
    assert huge["flops"] / huge["bytes"] == pytest.approx(10**4 * root / (u * root + w * 10**4), rel=0.02)
    batch = word_lm().evaluate(h=2004, b=10**12)
    assert intensity.large_batch is not None
    assert batch["flops"] / batch["bytes"] == pytest.approx(float(intensity.large_batch.value(found.setting)), rel=1e-6)


SAMPLES: list[tuple[Formulas, str, dict[str, str]]] = [
    (word_lm(), "h", {}),
    (word_lm(), "v", {}),
    (transformer(), "hidden", {}),
    (transformer(), "layers", {}),
    (transformer(), "heads", {"hidden": "64*heads"}),
    (transformer(), "heads", {"hidden": "64*heads", "layers": "heads"}),
]


@pytest.mark.parametrize(("formulas", "growth", "path"), SAMPLES)
def test_expansions_in_numbers(formulas: Formulas, growth: str, path: dict[str, str]) -> None:
    """At a model large beyond measure, what is left after the leading term is the next one."""
    found = asymptotics(formulas, growth, path=path)
    setting = found.setting | {growth: 12 * 10**30}
    totals = formulas.along(path).evaluate(**setting)
    p = totals["parameters"]
    for term in found.totals:
        exact = Fraction(totals[term.name], p)
        assert float(exact) == pytest.approx(term.per_parameter.value(setting, p), rel=1e-9)
        if term.per_parameter.power == 0 and not term.per_parameter.radical:
            rest = float(exact - term.per_parameter.coefficient.value(setting))
            following = 0.0 if term.per_parameter_next is None else term.per_parameter_next.value(setting, p)
            assert rest == pytest.approx(following, rel=1e-9, abs=1e-45)


@pytest.mark.parametrize(("formulas", "growth", "path"), SAMPLES)
def test_the_next_term_takes_most_of_what_the_leading_one_leaves(
    formulas: Formulas, growth: str, path: dict[str, str]
) -> None:
    found = asymptotics(formulas, growth, path=path)
    setting = found.setting | {growth: 12 * 10**6}
    totals = formulas.along(path).evaluate(**setting)
    p = totals["parameters"]
    for term in found.totals:
        rest = totals[term.name] / p - term.per_parameter.value(setting, p)
        if term.per_parameter_next is not None:
            assert term.per_parameter_next.value(setting, p) == pytest.approx(rest, rel=0.02)


def test_several_symbols_grow_together() -> None:
    found = asymptotics(transformer(), "heads", path={"hidden": "64*heads", "layers": "heads"})
    assert found.degree == 3
    assert str(found["flops"].per_parameter) == "2*(3*batch*seq + 10)"
    assert found["bytes"].per_parameter_next is not None
    assert found["bytes"].per_parameter_next.power == Fraction(-1, 3)


def test_a_maximum_is_the_argument_that_wins() -> None:
    found = asymptotics(transformer(), "hidden")
    assert str(found["peak_bytes"].per_parameter) == "16"
    assert any("max of 2 expressions is" in note for note in found.notes)
    rounded = made({"parameters": "h**2", "flops": "h*(h//2)*3"}, {"h": 4})
    assert str(asymptotics(rounded, "h")["flops"].per_parameter) == "3/2"
    assert asymptotics(rounded, "h").notes == ("floor(h/2) is taken as h/2 (in flops)",)


def test_what_has_no_expansion_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="does not grow with batch"):
        asymptotics(transformer(), "batch")
    with pytest.raises(ExpressionError, match="did you mean hidden"):
        asymptotics(transformer(), "hiden")
    with pytest.raises(ExpressionError, match="no total"):
        asymptotics(made({"flops": "h"}, {"h": 1}), "h")
    with pytest.raises(ExpressionError, match="no leading term"):
        asymptotics(made({"parameters": "2**h", "flops": "h"}, {"h": 1}), "h")


@given(st.integers(1, 5000), st.integers(1, 500))
def test_shares_add_up(hidden: int, batch: int) -> None:
    found = shares(word_lm(), "bytes", h=hidden, b=batch)
    assert sum(share.share for share in found) == pytest.approx(1)
    assert [share.value for share in found] == sorted((share.value for share in found), reverse=True)


def test_shares_of_a_maximum_are_those_of_the_argument_that_wins() -> None:
    for seq, wins in ((64, "68*batch*hidden*layers*seq"), (1024, "10*batch*heads*layers*seq**2")):
        found = shares(transformer(), "peak_bytes", seq=seq)
        assert wins in [share.term for share in found]
        assert sum(share.share for share in found) == pytest.approx(1)
        assert sum(share.value for share in found) == transformer().evaluate(seq=seq)["peak_bytes"]


def test_the_dominant_term() -> None:
    assert shares(word_lm(), "flops", h=38100, b=128)[0].term == "96*b*h**2*s"


@pytest.mark.parametrize(
    ("term", "shown"),
    [
        (Term.of(Ratio(parse("3*b")), parse("16"), Fraction(1, 2)), "12*b/sqrt(p)"),
        (Term.of(Ratio(parse("b + 1")), parse("12*L"), Fraction(1, 2)), "(b + 1)*sqrt(12*L)/sqrt(p)"),
        (
            Term.of(Ratio(parse("b"), parse("L + 1")), parse("L + 1"), Fraction(1, 3)),
            "b*(L + 1)**(1/3)/((L + 1)*p**(1/3))",
        ),
        (Term.of(Ratio(parse("b")), parse("2"), Fraction(3, 2)), "2*b*sqrt(2)/p**(3/2)"),
        (Term.of(Ratio(parse("b")), parse("4"), Fraction(-1, 2)), "b*sqrt(p)/2"),
        (Term(Ratio(parse("b + 1"))), "b + 1"),
        (Term(Ratio(parse("1"), parse("b"))), "1/b"),
    ],
)
def test_terms_are_shown(term: Term, shown: str) -> None:
    assert str(term) == shown


def test_only_the_growing_symbol_is_said_to_leave_its_range() -> None:
    """Not one whose name contains its letters."""
    totals = {"parameters": 2 * symbol("h"), "flops": 4 * symbol("h") * symbol("batch")}
    found = Formulas(totals=totals, defaults={"h": 8, "batch": 2}, tested={"h": (1, 64), "batch": (1, 8)})
    notes = asymptotics(found, "h").notes
    assert [note for note in notes if note.startswith("extrapolated")] == [
        "extrapolated: the formulas were tested for h 1 to 64"
    ]


def test_a_total_without_an_expansion_is_left_out_alone() -> None:
    """What is said of a total names it; the others are expanded."""
    totals = {"parameters": "h**2", "flops": "6*h**2*b", "bytes": "4*h**2 + b*floor(h/3)", "io_bytes": "2**h"}
    found = asymptotics(made(totals, {"h": 12, "b": 2}), "h")
    assert {growth.name for growth in found.totals} == {"parameters", "flops", "bytes"}
    assert any(note.startswith("io_bytes is left out: ") for note in found.notes)
    assert any("floor(h/3) is taken as" in note and "(in bytes)" in note for note in found.notes)
