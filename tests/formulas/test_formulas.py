"""Formulas: evaluated where they hold, moved along a path, written and read back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sympy

from tensortide.errors import ExpressionError, OutputError
from tensortide.expr import parse
from tensortide.formulas import Formulas, load_formulas, save_formulas
from tests.formulas.samples import made, transformer, word_lm

PUBLISHED = {
    "parameters": 104_378_326,
    "flops": 2_597_058_084_257,
    "bytes": 143_652_774_404,
    "footprint_bytes": 49_660_373_192,
    "io_bytes": 4_145_152,
}


def test_the_reference_in_numbers() -> None:
    assert word_lm().evaluate() == PUBLISHED
    assert word_lm().at(h=2004).evaluate(b=64) == PUBLISHED
    large = word_lm().evaluate(h=38100, b=128)
    assert large["parameters"] == 23_988_379_606
    assert large["flops"] == 1_452_394_502_586_785
    assert large["bytes"] == 45_821_545_659_908


def test_outside_of_the_region_nothing_is_claimed() -> None:
    with pytest.raises(ExpressionError, match=r"do not hold at .*: they need hidden % heads == 0"):
        transformer().evaluate(hidden=770)
    with pytest.raises(ExpressionError, match=r"they need .*positions"):
        transformer().evaluate(seq=2048)
    with pytest.raises(ExpressionError, match="'hiden' is no symbol of these formulas: did you mean hidden"):
        transformer().evaluate(hiden=3)
    with pytest.raises(ExpressionError, match="positive integer"):
        transformer().evaluate(hidden=0)


def test_along_a_path() -> None:
    grown = transformer().along({"hidden": "64*heads", "positions": "seq"})
    assert "hidden" not in grown.symbols
    assert grown.region == ()  # heads divide 64*heads, and seq <= seq
    assert grown.evaluate(heads=16) == transformer().evaluate(heads=16, hidden=1024)
    doubled = transformer().along({"hidden": "2*hidden"})
    assert doubled.evaluate(hidden=384) == transformer().evaluate(hidden=768)
    with pytest.raises(ExpressionError, match=r"do not hold along this path: they need .*positions"):
        transformer().along({"positions": 512, "seq": 1024})
    with pytest.raises(ExpressionError, match="no symbol"):
        transformer().along({"hidden": "64*head"})


def test_a_file_has_what_was_fixed(tmp_path: Path) -> None:
    """Of a file alone one knows which values are no symbols, and why."""
    given = msgspec.structs.replace(
        word_lm(), settings={"layers": 1, "rate": 0.5}, held={"layers": "changes the ops"}, notes=("said",)
    )
    read = load_formulas(save_formulas(given, tmp_path / "f.json"))
    assert (read.settings, read.held, read.notes) == (given.settings, given.held, given.notes)


def test_files(tmp_path: Path) -> None:
    for formulas in (word_lm(), transformer()):
        path = save_formulas(formulas, tmp_path / "x.formulas.json")
        assert load_formulas(path) == formulas
        first = path.read_bytes()
        save_formulas(load_formulas(path), path)
        assert path.read_bytes() == first
    with pytest.raises(OutputError):
        save_formulas(word_lm(), tmp_path / "no" / "x.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "tensortide.formulas/9"}, "format"),
        ({"totals": {"flops": "2*h +"}}, "totals.flops"),
        ({"totals": {"flops": "2*q"}}, "no default for q"),
        ({"totals": 3}, "does not hold valid formulas"),
        ({"region": ["h = 3"]}, "region"),
        ({"defaults": {"h": 0, "v": 1, "s": 1, "b": 1}}, "positive"),
        ({"defaults": {"h": 1.5}}, "does not hold valid formulas"),
        ({"extra": 1}, "extra"),
    ],
)
def test_bad_files_are_one_clear_error(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = save_formulas(word_lm(), tmp_path / "x.formulas.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ExpressionError, match=message) as found:
        load_formulas(path)
    assert "x.formulas.json" in str(found.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\x00")
    for name in ("x.json", "missing.json"):
        with pytest.raises(ExpressionError, match=name):
            load_formulas(tmp_path / name)


def test_any_symbol_name_survives(tmp_path: Path) -> None:
    name = "encoder/x:0::dim_1"
    formulas = Formulas(totals={"flops": parse(f"2*'{name}' + 1")}, defaults={name: 3})
    assert load_formulas(save_formulas(formulas, tmp_path / "x.json")) == formulas
    assert formulas.evaluate(**{name: 5}) == {"flops": 11}


def test_latex_and_sympy() -> None:
    small = made(
        {"parameters": "12*layers*hidden**2", "peak_bytes": "max(hidden, 3*layers)"}, {"layers": 1, "hidden": 1}
    )
    assert small.latex({"hidden": "h", "layers": "L"}) == (
        "\\begin{align}\n"
        "  \\text{parameters} &= 12 \\, h^{2} \\, L \\\\\n"
        "  \\text{peak\\_bytes} &= \\max\\left(3 \\, L, h\\right)\n"
        "\\end{align}\n"
    )
    layers, hidden = (sympy.Symbol(name, integer=True, positive=True) for name in ("layers", "hidden"))
    assert small.sympy() == {"parameters": 12 * layers * hidden**2, "peak_bytes": sympy.Max(hidden, 3 * layers)}


def test_pickles() -> None:
    formulas = transformer()
    formulas.evaluate()
    assert pickle.loads(pickle.dumps(formulas)).evaluate() == formulas.evaluate()
