"""Loops whose turns are a quotient of sizes: formulas hold at any number of turns, whole or not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from tensortide import symbolic
from tests.formulas.judge import Truth, verdicts


def chunked(seq: int = 64, chunk: int = 24) -> Callable[[], None]:
    """A layer over a sequence, chunk by chunk."""
    layer, x = nn.Linear(8, 8), torch.randn(seq, 8)

    def step() -> None:
        torch.stack([layer(x[at : at + chunk]).square().sum() for at in range(0, seq, chunk)]).sum().backward()

    return step


def pieces(seq: int = 64, count: int = 3) -> Callable[[], None]:
    """A layer over pieces of a sequence."""
    layer, x = nn.Linear(8, 8), torch.randn(seq, 8)

    def step() -> None:
        torch.stack([layer(piece).square().sum() for piece in x.chunk(count)]).sum().backward()

    return step


def every_third(width: int = 24, depth: int = 6) -> Callable[[], None]:
    """Every third layer has a twin."""
    layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
    twins = nn.ModuleDict({str(index): nn.Linear(width, width) for index in range(depth) if index % 3 == 2})
    x = torch.randn(4, width)

    def step() -> None:
        y = x
        for index, layer in enumerate(layers):
            y = layer(y) + twins[str(index)](x) if str(index) in twins else layer(y)
        y.sum().backward()

    return step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "over", "settings"),
    [
        (chunked, ("seq", "chunk"), [{"seq": 300, "chunk": 70}, {"seq": 96, "chunk": 24}, {"seq": 65, "chunk": 6}]),
        (
            pieces,
            ("seq", "count"),
            [{"seq": 301, "count": 4}, {"seq": 96, "count": 8}, {"seq": 1000, "count": 11}],
        ),
        (every_third, ("width", "depth"), [{"width": 9, "depth": 11}, {"width": 5, "depth": 18}]),
    ],
)
def test_turns_are_counted(
    workload: Callable[..., Callable[[], None]], over: tuple[str, ...], settings: list[dict[str, int]]
) -> None:
    found = symbolic(workload, over=over)
    assert not found.held
    assert len(found.formulas.totals) >= 9
    for setting in settings:
        said = verdicts(found.formulas, setting, Truth(workload, setting))
        assert not [total for total, verdict in said.items() if verdict.endswith("wrong")]
        assert {said[total].split()[-1] for total in ("product_flops", "bytes", "footprint_bytes", "peak_bytes")} == {
            "right"
        }


def test_a_count_that_a_minimum_leaves_open_stays_small() -> None:
    """That ``min(experts, k)`` is 4 allows any number of experts: none of thousands is captured to find out."""

    def routed(experts: int = 4, k: int = 2) -> Callable[[], torch.Tensor]:
        if k > experts:
            raise ValueError("k must not exceed experts")
        x = torch.zeros(4, 8)

        def step() -> torch.Tensor:
            h = x
            for _ in range(experts):
                h = h.sin()
            for _ in range(k):
                h = h.tanh()
            return h

        return step

    said: list[str] = []
    found = symbolic(routed, over=["experts", "k"], progress=said.append)
    numbers = [int(number) for line in said for number in re.findall(r"(?:experts|k)=(\d+)", line)]
    assert max(numbers) < 200
    assert len(found.formulas.totals) == 11
