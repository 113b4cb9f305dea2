"""``int`` and square roots of hyperparameters keep their expressions in the workload's module, and their numbers."""

from __future__ import annotations

import contextlib
import math
import sys
import types
from math import isqrt
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.errors import WorkloadError
from tensortide.expr import Size, parse, sized, symbol
from tensortide.formulas import symbolic
from tensortide.formulas.observe import observed
from tensortide.formulas.remembering import _uses_the_type, remembering, searched_once
from tensortide.graph import Graph
from tests.formulas.ordinary import Step
from tests.formulas.ordinary_sizes import make_divisible


def _forward(model: torch.nn.Module, x: torch.Tensor) -> Step:
    return lambda: model(x).mean()


def rounded(hidden: int = 100, tokens: int = 64) -> Step:
    """Widths by way of ``int`` and of roots."""
    widths = [int(hidden * 2 / 3), int(hidden * 0.9), int(tokens**0.5), isqrt(tokens), int(math.sqrt(tokens)) + 1]
    assert all(isinstance(width, int) for width in widths)
    layers = [torch.nn.Linear(i, o) for i, o in zip([hidden, *widths], widths, strict=False)]
    return _forward(torch.nn.Sequential(*layers), torch.randn(tokens, hidden))


def test_what_int_and_roots_make_is_remembered() -> None:
    graph, seen = observed(rounded, {"hidden": 101, "tokens": 67}, {}, name="rounded", assume={})
    assert isinstance(graph, Graph)
    made = {parse(text) for text in ("floor(2*hidden/3)", "floor(9*hidden/10)", "isqrt(tokens)", "isqrt(tokens) + 1")}
    assert made <= set(seen.made)
    assert "int" not in globals()
    assert isqrt is math.isqrt
    assert type(int(sized(symbol("n"), 3))) is int


def test_code_that_needs_the_type_itself_gets_it(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(
        "import torch\n\n"
        "def typed(batch: int = 8, hidden: int = 16):\n"
        "    model, rows = torch.nn.Linear(hidden, hidden), torch.zeros(batch, dtype=int)\n"
        "    return lambda: model(torch.randn(batch, hidden))[rows.to(int)]\n"
    )
    found = symbolic(f"{file}:typed", over=["batch", "hidden"])
    assert found.total("parameters") == parse("hidden**2 + hidden")


@pytest.mark.parametrize(
    ("code", "given"),
    [
        *((code, True) for code in ("f(int)", "f(a, int)", "f(x=int, y=1)", "f( # c\n  int # d\n)", "f(x=\\\nint)")),
        *(
            (code, False)
            for code in ("f(int(a))", "a: int = 3", "isinstance(a, int)", "f(tuple[int, int])", "g = (int,)")
        ),
    ],
)
def test_code_that_hands_on_the_type_is_told_from_code_that_does_not(code: str, given: bool, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(code)
    assert _uses_the_type(str(file)) is given


def test_names_are_restored_after_an_error() -> None:
    with contextlib.suppress(ZeroDivisionError), remembering(rounded, lambda value: value):
        other = globals()["int"]
        assert type(other) is not type
        assert isinstance(5, other)
        assert issubclass(bool, other)
        assert other(7.5) == other("7") == 7
        assert globals()["isqrt"](17) == math.sqrt(16) == 4
        raise ZeroDivisionError
    assert "int" not in globals()
    assert math.isqrt is isqrt


@pytest.mark.parametrize(("above", "below"), [(1, 2), (3, 2), (1, 4), (7, 4), (3, 10), (2, 3), (5, 6)])
def test_halves_are_rounded_to_even_numbers(above: int, below: int) -> None:
    for value in range(1, 60):
        found = round(sized(symbol("n"), value) * above / below)
        assert found == round(value * above / below)
        assert isinstance(found, Size)
        assert found.expr.evaluate({"n": value}) == found


def floats(seq: int = 64, hidden: int = 64, experts: int = 4) -> Step:
    """Sizes made from floats that remember nothing, as Python asks the factor on the left first."""
    slots, wide, narrow = int(1.25 * 8 * seq / experts), math.ceil(2.5 * hidden), round(0.3 * hidden)
    layers = torch.nn.Linear(hidden, wide), torch.nn.Linear(wide, narrow)
    return _forward(torch.nn.Sequential(*layers), torch.randn(min(slots, 8 * seq), hidden))


def test_floats_are_what_several_captures_say() -> None:
    found = symbolic("tests.formulas.test_remembering:floats", over=["seq", "hidden"])
    for hidden in (15, 25, 64, 1000):
        wide, narrow = math.ceil(2.5 * hidden), round(0.3 * hidden)
        assert found.formulas.evaluate(hidden=hidden)["parameters"] == wide * (hidden + 1) + narrow * (wide + 1)
    rows = parse("floor(5*seq/2)")
    assert found.formulas.totals["io_bytes"].divided(parse("4")) == rows * parse("hidden") + 1


@pytest.mark.parametrize("factor", [0.1, 0.3, 0.9, 1.8, 2 / 3])
def test_a_decimal_stands_for_its_fraction_where_products_are_whole(factor: float) -> None:
    for value in (*range(1, 200), 10**6, 3 * 10**6):
        found = math.floor(sized(symbol("n"), value) * factor)
        assert isinstance(found, Size) or value * factor < 1
        assert found == math.floor(factor * value)
        assert not isinstance(found, Size) or found.expr.evaluate({"n": value}) == found


def test_a_decimal_whose_products_are_not_whole_is_no_fraction() -> None:
    assert math.floor(90 * 0.7) == 62
    assert not isinstance(math.floor(sized(symbol("n"), 90) * 0.7), Size)


def test_the_condition_of_a_rounding_bounds_its_formula() -> None:
    """Nine tenths of 19 are more than 16, so it becomes 24: another side of a threshold in the code."""
    found = symbolic("tests.formulas.test_remembering:divisible", over=["width"])
    formulas = found.formulas
    for width in (38, 96, 100, 131, 1000):
        assert formulas.evaluate(width=width)["parameters"] == make_divisible(width / 2) * 4
    assert parse("160*floor((width + 8)/16) - 9*width") in [condition.expr for condition in formulas.region]


def divisible(width: int = 96) -> Step:
    """A width that is halved and rounded to a multiple of 8."""
    return _forward(torch.nn.Linear(3, make_divisible(width / 2)), torch.randn(2, 3))


@pytest.mark.slow
def test_a_grid_takes_squares_only() -> None:
    found = symbolic("tests.formulas.ordinary_sizes:grid", over=["tokens"], hyperparameters={"hidden": 4})
    assert not found.held
    assert parse("isqrt(tokens)**2 - tokens") in [condition.expr for condition in found.formulas.region]
    assert found.formulas.totals["parameters"] == parse("168")


def test_a_workload_without_a_module_is_observed_too() -> None:
    with pytest.raises(WorkloadError):
        symbolic(print, over=["n"])


def test_modules_are_searched_once_and_those_imported_later_too(monkeypatch: pytest.MonkeyPatch) -> None:
    root, up = math.sqrt, math.ceil

    def module(name: str) -> dict[str, Any]:
        new = types.ModuleType(name)
        vars(new).update(__file__=str(Path(__file__).with_name(f"{name}.py")), root=root)
        monkeypatch.setitem(sys.modules, name, new)
        return vars(new)

    early = module("early")
    with searched_once():
        for turn in range(2):
            late = module("late") if turn else early
            with remembering(rounded, lambda value: value):
                assert early["root"] is late["root"] is not root
                assert early["int"](7.5) == late["int"](7.5) == 7
            assert early["root"] is late["root"] is root
            assert not {"int", "round"} & (early.keys() | late.keys())
        early["other"] = up
        with remembering(rounded, lambda value: value):
            assert early["other"] is up
    with remembering(rounded, lambda value: value):
        assert early["other"] is not up
