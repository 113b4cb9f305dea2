"""The largest of many moments."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tensortide import capture, footprint, symbolic
from tensortide.expr import Expr, constant, floor_ratio, maximum, symbol
from tensortide.expr.atoms import alternatives
from tensortide.formulas.peaks import falls_short, largest

Step = Callable[[], Tensor]
NAMES = ("batch", "hidden", "layers")
TYPICAL = {"batch": 8, "hidden": 768, "layers": 12}


@st.composite
def moments(draw: st.DrawFn) -> Expr:
    terms = st.lists(st.sampled_from(NAMES), max_size=3)
    several = draw(st.lists(st.tuples(st.integers(0, 9), terms), min_size=1, max_size=4))
    rounded = floor_ratio(symbol("hidden") + 1, constant(2)) * draw(st.integers(0, 2))
    return sum((constant(n) * math.prod(map(symbol, names), start=constant(1)) for n, names in several), start=rounded)


@given(st.lists(moments(), min_size=1, max_size=12))
def test_it_is_the_maximum(several: list[Expr]) -> None:
    found, expected = largest(several, TYPICAL), maximum(*several)
    assert set(alternatives(found)) <= set(several)
    assert set(alternatives(found)) == set(alternatives(expected))


@given(st.lists(moments(), min_size=1, max_size=8), st.integers(0, 7))
def test_no_moment_is_above_the_largest(several: list[Expr], missing: int) -> None:
    peaks = alternatives(largest(several, TYPICAL))
    assert not falls_short(peaks, several, TYPICAL)
    assert falls_short(peaks, [*several, several[missing % len(several)] + 1 + symbol("batch") ** 4], TYPICAL)


def stopped(batch: int = 2, hidden: int = 8, steps: int = 4, limit: int = 6) -> Step:
    cell, x = nn.Linear(hidden, hidden), torch.zeros(batch, hidden)

    def step() -> Tensor:
        h = x
        for turn in range(steps):
            h = torch.tanh(cell(h))
            if turn + 1 >= limit:
                break
        loss = h.square().mean()
        loss.backward()
        return loss

    return step


def shared(batch: int = 2, seq: int = 16, hidden: int = 32, layers: int = 6, groups: int = 2) -> Step:
    tied, x = nn.ModuleList(nn.Linear(hidden, hidden) for _ in range(groups)), torch.zeros(batch, seq, hidden)

    def step() -> Tensor:
        h = x
        for layer in range(layers):
            h = h + torch.tanh(tied[layer * groups // layers](h))
        loss = h.square().mean()
        loss.backward()
        return loss

    return step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "setting"),
    [
        (stopped, {"batch": 59, "steps": 4, "limit": 6}),
        (shared, {"batch": 3, "hidden": 383, "layers": 5}),
        (shared, {"batch": 2, "seq": 37, "hidden": 786}),
    ],
)
def test_bounds_of_the_least_memory_are_on_their_sides(workload: Callable[..., Step], setting: dict[str, int]) -> None:
    """Where two hyperparameters change the structure together, a bound is claimed only if it is one."""
    found = symbolic(workload, over=list(inspect.signature(workload).parameters))
    said = found.evaluate(**{name: value for name, value in setting.items() if name not in found.held})
    least = footprint(capture(workload, hyperparameters=setting), workspace=False)
    assert said.get("minimal_footprint_lower_bytes", 0) <= least.upper_bytes
    assert said.get("minimal_footprint_upper_bytes", least.lower_bytes) >= least.lower_bytes
