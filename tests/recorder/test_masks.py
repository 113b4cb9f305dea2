"""Masks that are objects, and other arguments that decide which keys a query meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

from tensortide import capture, count

HEADS, WIDTH = 2, 16
MADE_BEFORE = {make: make(4, 8) for make in (causal_lower_right, causal_upper_left)}


def step(mask: Callable[[], Any], length: int = 8) -> Callable[[], Any]:
    """Attention of 4 queries and ``length`` keys."""
    q, k = torch.randn(1, HEADS, 4, WIDTH), torch.randn(1, HEADS, length, WIDTH)
    return lambda: functional.scaled_dot_product_attention(q, k, k, attn_mask=mask())


@pytest.mark.parametrize("device", [None, "cuda"])
@pytest.mark.parametrize("make", MADE_BEFORE)
def test_causal_masks_are_objects_wherever_they_are_made(make: Any, device: str | None) -> None:
    def outside() -> Any:
        mask = make(4, 8)
        return step(lambda: mask)

    def inside() -> Any:
        return step(lambda: make(4, 8))

    def before() -> Any:
        return step(lambda: MADE_BEFORE[make])

    # keys that queries of a causal mask meet: 1 to 4 from the upper left, 5 to 8 to the lower right
    active = 2 * HEADS * WIDTH * (1 + 2 + 3 + 4) if make is causal_upper_left else None
    for workload in (outside, inside, before):
        graph = capture(workload, device=device)
        cost = count(graph).total.cost
        assert graph.meta.captured_on == "fake"
        assert (cost.macs, cost.active_macs) == (2 * HEADS * WIDTH * 4 * 8, active), workload
    assert capture(before, real=None if device else True, device=device).meta.assumptions == ()
    assert type(make(4, 8)) is type(MADE_BEFORE[make])
    assert torch.Tensor(2, 3).shape == (2, 3)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0)])
def test_packed_attention_is_bounded_by_the_longest_sequence(window: tuple[int, int]) -> None:
    def workload() -> Any:
        from torch.nn.attention.varlen import varlen_attn

        q = torch.randn(17, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        starts = torch.tensor([0, 5, 14, 17], device="cuda", dtype=torch.int32)

        def step() -> None:
            result = varlen_attn(q, q, q, starts, starts, 9, 9, window_size=window)
            assert isinstance(result, torch.Tensor)
            result.sum().backward()

        return step

    counted = count(capture(workload, device="cuda"))
    forward = counted.by_phase["forward"].cost
    exact, bound = 4 * (5**2 + 9**2 + 3**2) * 2 * 64, 4 * 17 * 9 * 2 * 64
    assert exact <= forward.macs <= bound
    assert (forward.exact, forward.active_macs) == (False, None)
    assert counted.by_phase["backward"].macs == 2 * forward.macs
    assert counted.total.unknown_ops == 0
