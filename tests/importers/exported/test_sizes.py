"""Expressions of sizes as PyTorch writes them, and the values of their symbols."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from tensortide.errors import WorkloadError
from tensortide.expr import expr_of, text
from tensortide.importers.exported.sizes import Symbols, Unreadable, read_expression
from tests.importers.exported.archives import opened

S = "Symbol('s0', positive=True, integer=True)"
EXPRESSIONS: dict[str, Callable[[int], int]] = {
    "2*s0 + 1": lambda s: 2 * s + 1,
    "((s0 - 1)//2) + 1": lambda s: (s - 1) // 2 + 1,
    f"Add(Integer(1), FloorDiv(Add({S}, Integer(-1)), Integer(2)))": lambda s: (s - 1) // 2 + 1,
    f"Mul(Integer(32), {S})": lambda s: 32 * s,
    f"Mod({S}, Integer(3))": lambda s: s % 3,
    f"PythonMod({S}, Integer(4))": lambda s: s % 4,
    f"Max(Integer(1), {S})": lambda s: max(1, s),
    f"Min(Integer(7), {S})": lambda s: min(7, s),
    f"Pow({S}, Integer(2))": lambda s: s * s,
    "s0**2": lambda s: s * s,
    f"CeilToInt(IntTrueDiv({S}, Integer(2)))": lambda s: math.ceil(s / 2),
    f"FloorToInt(IntTrueDiv({S}, Integer(3)))": lambda s: s // 3,
    f"ModularIndexing({S}, 2, 3)": lambda s: s // 2 % 3,
    f"Mul(Rational(1, 2), Mul(Integer(4), {S}))": lambda s: 2 * s,
    "-s0 + 20": lambda s: 20 - s,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_has_the_value_that_arithmetic_gives(expression: str) -> None:
    expr = read_expression(expression)
    for size in (1, 2, 3, 7, 12):
        assert expr.evaluate({"s0": size}) == EXPRESSIONS[expression](size)


@pytest.mark.parametrize("expression", ["", "s0.x", "f(s0)", "s0 if s0 else 1", "[s0]", "'s0'", "1.5", "s0**s0",
                                        "(s0 + 1)**17", "10**30", "+".join(["s0"] * 2000)])  # fmt: skip
def test_what_is_no_expression_of_sizes_is_unreadable(expression: str) -> None:
    with pytest.raises(Unreadable):
        read_expression(expression)


def test_a_symbol_follows_from_an_expression_in_it() -> None:
    symbols = Symbols("here", {})
    symbols.learn("2*s0 + 1", 9, "x.0")
    symbols.settle({}, (), {}, ())
    assert symbols.shown == {"s0": 4}
    assert symbols.size("s0*s0") == 16


def test_two_sizes_that_differ_cannot_share_a_name() -> None:
    program = torch.export.export(
        torch.nn.Linear(4, 4), (torch.rand(3, 5, 4),), dynamic_shapes=({0: Dim("a"), 1: Dim("b")},)
    )
    graph = opened(program, bind=("input=a,b",))
    assert text(expr_of(graph[0].outputs[0].numel)) == "4*a*b"
    with pytest.raises(WorkloadError, match="n would be two sizes"):
        opened(program, bind=("input=n,n",))
    with pytest.raises(WorkloadError, match="no input of that name; there are: input"):
        opened(program, bind=("x=n",))
    with pytest.raises(WorkloadError, match="dimension 2 of input is 4, no symbol"):
        opened(program, bind=("input=_,_,n",))


def test_a_size_beyond_the_range_of_the_export_is_refused() -> None:
    program = torch.export.export(
        torch.nn.Linear(4, 4), (torch.rand(3, 4),), dynamic_shapes=({0: Dim("n", min=3, max=8)},)
    )
    assert opened(program, hyperparameters={"input.0": 8})[0].outputs[0].shape == (8, 4)
    for size in (2, 9):
        with pytest.raises(WorkloadError, match="it may be 3 to 8"):
            opened(program, hyperparameters={"input.0": size})
