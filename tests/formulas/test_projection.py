"""Projections: the source's own columns as far as they follow from each other, and the word language model in full."""

from __future__ import annotations

import pytest

from tensortide.errors import ExpressionError
from tensortide.formulas import DOMAINS, PPOPP19, project
from tensortide.formulas.projection import Interval, Projection, domain_of, rounded
from tests.formulas.samples import made, word_lm

CONSISTENT = ("word_lm", "nmt", "speech", "image")
"""Domains whose published parameters follow from their published samples; sigma of char_lm is unreliable."""


def at_published() -> Projection:
    return project(
        word_lm(),
        DOMAINS["word_lm"],
        "h",
        batch="b",
        samples_per_step="b*s",
        samples=77e9,
        at={"s": 80, "b": 128},
    )


def test_rounding_is_half_a_unit_of_the_last_digit() -> None:
    assert rounded("13.0") == pytest.approx((13.0, 12.95, 13.05))
    assert rounded("-0.066") == pytest.approx((-0.066, -0.0665, -0.0655))
    assert rounded("768E+6") == pytest.approx((768e6, 767.5e6, 768.5e6))


@pytest.mark.parametrize("name", CONSISTENT)
def test_published_parameters_follow_from_published_samples(name: str) -> None:
    domain = DOMAINS[name]
    samples = domain.published_samples
    found = domain.parameters_for(Interval(samples, samples, samples))
    assert found.low < domain.published_parameters < found.high
    assert found.value == pytest.approx(domain.published_parameters, rel=0.01)


def test_what_does_not_follow() -> None:
    """The published 146 G parameters of the character model are a tenth of what its own constants give."""
    samples = DOMAINS["char_lm"].published_samples
    found = DOMAINS["char_lm"].parameters_for(Interval(samples, samples, samples))
    assert found.low > 9 * DOMAINS["char_lm"].published_parameters


@pytest.mark.parametrize("name", ["word_lm", "nmt", "image"])
def test_published_samples_are_within_the_rounding_of_the_curve(name: str) -> None:
    domain = DOMAINS[name]
    found = domain.samples_for(domain.target)
    assert found.low < domain.published_samples < found.high
    assert domain.error_at(float(domain.samples)) == pytest.approx(float(domain.error), rel=0.02)


def test_the_machine() -> None:
    assert PPOPP19.ridge_flops_per_byte == pytest.approx(19.94, abs=0.01)
    assert PPOPP19.seconds(1444 * 10**12, 0)[0] == pytest.approx(115, abs=0.5)


def test_word_language_model_at_its_target() -> None:
    found = at_published()
    target = next(row for row in found.requirements if row.label == "target")
    assert target.parameters == pytest.approx(23.8e9, rel=0.002)
    assert target.flops == pytest.approx(1444e12, rel=0.005)
    assert target.accessed_bytes == pytest.approx(45.4e12, rel=0.005)
    assert target.compute_s > target.memory_s
    assert target.step_s == pytest.approx(115, abs=0.5)
    assert target.samples_per_step == 128 * 80
    assert target.epoch_s == pytest.approx(77e9 / (128 * 80) * target.step_s)
    assert target.held_bytes == target.totals["footprint_bytes"]
    assert found.parameters.low < 23.8e9 < found.parameters.high
    low, high = (next(r for r in found.requirements if r.label == label) for label in ("low", "high"))
    assert low.parameters < target.parameters < high.parameters


def test_figures_at_the_published_width() -> None:
    totals = word_lm().evaluate(h=38_100, b=128, s=80)
    assert round(totals["flops"] / 1e12) == 1452
    assert round(totals["bytes"] / 1e12, 1) == 45.8


def test_batch_is_chosen_by_balance() -> None:
    """128 was published; half as much again as balances compute and memory is 122."""
    found = project(word_lm(), DOMAINS["word_lm"], "h", batch="b", samples_per_step="b*s", at={"s": 80})
    assert found.ridge_batch == 81
    assert {row.setting["b"] for row in found.requirements} == {122}
    target = found.requirements[1]
    totals = word_lm().evaluate(**target.setting | {"b": 81})
    assert totals["flops"] / totals["bytes"] >= PPOPP19.ridge_flops_per_byte
    assert found.target == "2.48"
    assert at_published().target == "2.49"


def test_wrong_use() -> None:
    with pytest.raises(ExpressionError, match="there is no domain"):
        domain_of("words")
    with pytest.raises(ExpressionError, match="no total"):
        project(made({"flops": "h"}, {"h": 1}), DOMAINS["nmt"], "h")
    with pytest.raises(ExpressionError, match="'batch' is no symbol"):
        project(word_lm(), DOMAINS["nmt"], "h")
    with pytest.raises(ExpressionError, match="no s reaches parameters"):
        project(word_lm(), DOMAINS["nmt"], "s", batch="b")
