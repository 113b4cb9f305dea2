"""Totals of which one part has no expression: the rest has a formula, and the part is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide import capture, symbolic, timeline
from tensortide.cost import count
from tensortide.formulas import Symbolic, load_formulas, save_formulas
from tests.formulas.workloads import coded

SIN = "aten.sin in (outside), forward"


@pytest.fixture(scope="module")
def found() -> Symbolic:
    return symbolic(coded, over=["hidden", "code"])


def test_the_explained_part_and_the_rest_make_the_total(found: Symbolic) -> None:
    part = found.formulas.partial["flops"]
    missing = [value for value in part.missing.values() if value is not None]
    assert SIN in part.missing
    assert len(missing) == len(part.missing)
    whole = count(capture(coded, real=False)).total.flops
    assert part.known.evaluate(found.formulas.defaults) + sum(missing) == whole
    larger = count(capture(coded, hyperparameters={"hidden": 70}, real=False)).total.flops
    assert part.known.evaluate({"hidden": 70, "code": 5}) + sum(missing) == larger


def test_bytes_of_storages_that_are_explained_are_a_lower_bound(found: Symbolic) -> None:
    line = timeline(capture(coded, real=False), workspace=False)
    for total, whole in (("footprint_bytes", line.footprint_bytes), ("peak_bytes", line.peak_bytes)):
        part = found.formulas.partial[total]
        assert part.missing
        assert 0 < part.known.evaluate(found.formulas.defaults) < whole


def test_it_is_no_total(found: Symbolic) -> None:
    assert not found.formulas.partial.keys() & found.formulas.totals.keys()
    assert "flops" not in found.evaluate()
    assert found.evaluate()["product_flops"]


def test_a_file_has_it(found: Symbolic, tmp_path: Path) -> None:
    save_formulas(found.formulas, tmp_path / "f.json")
    assert load_formulas(tmp_path / "f.json").partial == found.formulas.partial
