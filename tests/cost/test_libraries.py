"""Ops of libraries that may not be installed, by their documented signatures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tensortide import capture, count
from tests.cost.probe import cost_of_call, tensor

B, S, H, D = 2, 8, 4, 16
FORWARD = (
    "(Tensor q, Tensor k, Tensor v, float dropout_p, float softmax_scale, bool causal, SymInt window_size_left, "
    "SymInt window_size_right, float softcap, Tensor? alibi_slopes, bool return_softmax) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


@pytest.fixture
def flash_attn() -> Iterator[torch.library.Library]:
    """A stand-in for flash-attn with a fake kernel, as the library has it."""
    library = torch.library.Library("flash_attn", "DEF")
    library.define(f"_flash_attn_forward{FORWARD}")

    def fake(q: torch.Tensor, *_: object) -> tuple[torch.Tensor, ...]:
        b, s, h, _d = q.shape
        empty = q.new_empty((0,))
        return torch.empty_like(q), q.new_empty((b, h, s), dtype=torch.float32), empty, q.new_empty((2,)).long()

    torch.library.register_fake("flash_attn::_flash_attn_forward", fake, lib=library)
    yield library
    library._destroy()


@pytest.mark.parametrize(("causal", "active"), [(False, S * S), (True, S * (S + 1) // 2)])
def test_flash_attention_counts_as_any_other(flash_attn: torch.library.Library, causal: bool, active: int) -> None:
    del flash_attn
    q = torch.empty(B, S, H, D, dtype=torch.float16)

    def step() -> object:
        return torch.ops.flash_attn._flash_attn_forward(q, q, q, 0.0, 0.25, causal, -1, -1, 0.0, None, False)

    cost = count(capture(step)).total.cost
    assert cost.macs == B * H * S * S * 2 * D
    assert cost.active_macs == B * H * active * 2 * D


def test_packed_flash_attention_is_bounded_by_the_longest() -> None:
    packed = tensor(20, H, D, dtype="float16")
    shapes = {"q": packed, "k": packed, "v": packed, "cu_seqlens_q": tensor(4, dtype="int32"), "max_seqlen_k": 9}
    cost = cost_of_call("flash_attn._flash_attn_varlen_forward.default", shapes, packed)
    assert (cost.macs, cost.exact, cost.active_macs) == (H * 20 * 9 * 2 * D, False, None)


def test_backward_is_twice_the_forward() -> None:
    one = tensor(B, S, H, D, dtype="float16")
    shapes = dict.fromkeys(("dout", "q", "k", "v", "out"), one)
    cost = cost_of_call("flash_attn._flash_attn_backward.default", shapes, tensor(B, H, S))
    assert (cost.macs, cost.kernel_recompute_macs) == (2 * B * H * S * S * 2 * D, B * H * S * S * D)


def test_products_of_bitsandbytes() -> None:
    rows, weight = tensor(4, 32, dtype="int8"), tensor(8, 32, dtype="int8")
    product = cost_of_call("bitsandbytes.int8_linear_matmul.default", {"A": rows, "B": weight}, tensor(4, 8))
    assert (product.macs, product.elementwise_flops) == (4 * 8 * 32, 0)
    packed = {"A": tensor(1, 32), "B": tensor(128, 1, dtype="uint8"), "shapeB": (8, 32)}
    single = cost_of_call("bitsandbytes.gemv_4bit.default", packed, tensor(1, 8))
    assert (single.macs, single.elementwise_flops) == (8 * 32, 8 * 32)
    wide = cost_of_call("bitsandbytes.dequantize_4bit.default", {"A": packed["B"]}, tensor(8, 32))
    assert wide.elementwise_flops == 8 * 32
