"""Attention: masks against enumeration, every kernel's op against the products it stands for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from tensortide.cost.families import attention as masks
from tests.cost.probe import cost_of, cost_of_call, counted, tensor
from tests.marks import since

length = st.integers(1, 12)
reach = st.none() | st.integers(0, 12)


@given(length, length, reach, reach)
def test_pairs_against_enumeration(sq: int, sk: int, left: int | None, right: int | None) -> None:
    places = [(i, j) for i in range(sq) for j in range(sk)]
    assert masks.dense(sq, sk) == len(places)
    assert masks.top_left(sq, sk) == sum(j <= i for i, j in places)
    assert masks.bottom_right(sq, sk) == sum(j <= i + sk - sq for i, j in places)
    for shift in (0, sk - sq):
        kept = [
            (left is None or j >= i + shift - left) and (right is None or j <= i + shift + right) for i, j in places
        ]
        assert masks.window(sq, sk, left, right, shift) == sum(kept)


def loop_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[int, torch.Tensor]:
    """Multiply-accumulates of scores and of the weighted sum; query heads share key heads."""
    done, out = 0, torch.zeros(*q.shape[:3], v.shape[3])
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores = []
                for j in range(k.shape[2]):
                    score = 0.0
                    for d in range(q.shape[3]):
                        score += float(q[b, h, i, d] * k[b, h // group, j, d])
                        done += 1
                    scores.append(score * q.shape[3] ** -0.5)
                weights = torch.softmax(torch.tensor(scores), 0)
                for j in range(k.shape[2]):
                    for d in range(v.shape[3]):
                        out[b, h, i, d] += weights[j] * v[b, h // group, j, d]
                        done += 1
    return done, out


@pytest.mark.parametrize(
    ("hq", "hkv", "sq", "sk", "dk", "dv"), [(2, 2, 3, 3, 4, 4), (4, 2, 3, 5, 4, 4), (2, 1, 2, 6, 3, 5)]
)
def test_forward_against_loop(hq: int, hkv: int, sq: int, sk: int, dk: int, dv: int) -> None:
    q, k, v = torch.randn(2, hq, sq, dk), torch.randn(2, hkv, sk, dk), torch.randn(2, hkv, sk, dv)
    done, out = loop_attention(q, k, v)
    assert torch.allclose(out, F.scaled_dot_product_attention(q, k, v, enable_gqa=hq != hkv), atol=1e-5)
    assert cost_of(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=hq != hkv)).macs == done


HEADS_FIRST = [
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
]
B, HQ, HKV, SQ, SK, D = 2, 4, 2, 6, 8, 16
DENSE = B * HQ * SQ * SK * 2 * D


def operands(heads_first: bool = True) -> dict[str, Any]:
    def shape(heads: int, tokens: int) -> tuple[int, ...]:
        return (B, heads, tokens, D) if heads_first else (B, tokens, heads, D)

    return {"query": tensor(*shape(HQ, SQ)), "key": tensor(*shape(HKV, SK)), "value": tensor(*shape(HKV, SK))}


@pytest.mark.parametrize("name", HEADS_FIRST)
def test_every_kernel_costs_the_same(name: str) -> None:
    out = tensor(B, HQ, SQ, D)
    cost = cost_of_call(f"aten.{name}.default", operands(), out)
    causal = cost_of_call(f"aten.{name}.default", operands() | {"is_causal": True}, out)
    rows = B * HQ * SQ
    assert (cost.macs, cost.active_macs, cost.elementwise_flops) == (DENSE, DENSE, rows * (SK + 5 * SK - 2))
    # FlashAttention aligns the last query with the last key since 2.1
    active = masks.bottom_right(SQ, SK) if name.endswith("flash_attention") else masks.top_left(SQ, SK)
    assert (causal.macs, causal.active_macs) == (DENSE, B * HQ * active * 2 * D)
    given_mask = cost_of_call(f"aten.{name}.default", operands() | {"attn_bias": tensor(B, HQ, SQ, SK)}, out)
    assert (given_mask.macs, given_mask.active_macs) == (DENSE, None)
    assert given_mask.elementwise_flops == cost.elementwise_flops + rows * SK
    dropped = cost_of_call(f"aten.{name}.default", operands() | {"dropout_p": 0.1}, out)
    assert (dropped.random_draws, dropped.elementwise_flops) == (rows * SK, cost.elementwise_flops + 2 * rows * SK)


@pytest.mark.parametrize("name", HEADS_FIRST)
def test_every_backward_costs_the_same(name: str) -> None:
    given_operands = {"grad_out": tensor(B, HQ, SQ, D)} | operands() | {"out": tensor(B, HQ, SQ, D)}
    grads = tensor(B, HQ, SQ, D), tensor(B, HKV, SK, D), tensor(B, HKV, SK, D)
    cost = cost_of_call(f"aten.{name}_backward.default", given_operands, *grads)
    assert (cost.macs, cost.kernel_recompute_macs) == (2 * DENSE, DENSE // 2)
    rows = B * HQ * SQ
    reduced = (HQ // HKV - 1) * B * HKV * SK * 2 * D
    assert cost.elementwise_flops == rows * (5 * SK - 1) + reduced


def test_gradients_that_are_not_wanted_are_not_counted() -> None:
    name = "aten._scaled_dot_product_efficient_attention_backward.default"

    def macs(*mask: bool) -> int:
        return cost_of_call(name, operands() | {"grad_input_mask": mask}, tensor(B, HQ, SQ, D)).macs

    product = DENSE // 2
    assert macs(True, True, True, True) == 4 * product
    assert macs(True, False, False, False) == 2 * product
    assert macs(False, False, True, False) == product


@pytest.mark.parametrize("name", ["_flash_attention_forward", "_efficient_attention_forward"])
def test_direct_ops_have_heads_behind_tokens(name: str) -> None:
    assert cost_of_call(f"aten.{name}.default", operands(False), tensor(B, SQ, HQ, D)).macs == DENSE


def test_direct_ops_know_windows_and_alignment() -> None:
    def active(name: str, **options: Any) -> int | None:
        return cost_of_call(f"aten.{name}.default", operands(False) | options, tensor(B, SQ, HQ, D)).active_macs

    width = B * HQ * 2 * D
    assert active("_flash_attention_forward", is_causal=True) == width * masks.bottom_right(SQ, SK)
    windowed = active("_flash_attention_forward", is_causal=False, window_size_left=1, window_size_right=2)
    assert windowed == width * masks.window(SQ, SK, 1, 2, SK - SQ)
    unlimited = active("_flash_attention_forward", is_causal=False, window_size_left=-1, window_size_right=-1)
    assert unlimited == DENSE
    assert active("_efficient_attention_forward", custom_mask_type=1) == width * masks.top_left(SQ, SK)
    assert active("_efficient_attention_forward", custom_mask_type=2) == width * masks.bottom_right(SQ, SK)


def test_packed_sequences_are_bounded_by_the_longest() -> None:
    packed = {"query": tensor(30, 4, 8), "key": tensor(30, 4, 8), "value": tensor(30, 4, 8)}
    lengths = {"cum_seq_q": tensor(4, dtype="int32"), "cum_seq_k": tensor(4, dtype="int32"), "max_q": 12, "max_k": 12}
    cost = cost_of_call("aten._flash_attention_forward.default", packed | lengths, tensor(30, 4, 8))
    assert cost.macs >= sum(n * n for n in (12, 10, 8)) * 4 * 16
    assert cost.macs == 30 * 12 * 4 * 16
    assert (cost.exact, cost.active_macs) == (False, None)


def test_cudnn_op_takes_its_layout_from_the_lengths() -> None:
    for heads_first in (True, False):
        given_operands = operands(heads_first) | {"max_q": SQ, "max_k": SK}
        assert cost_of_call("aten._cudnn_attention_forward.default", given_operands, tensor(1)).macs == DENSE


@pytest.mark.parametrize("gqa", [False, pytest.param(True, marks=since(2, 8, "no fused kernel shares heads"))])
def test_math_and_fused_routes_agree(gqa: bool) -> None:
    q, k = torch.randn(2, 4, 6, 8, requires_grad=True), torch.randn(2, 2 if gqa else 4, 6, 8, requires_grad=True)

    def in_context(backend: SDPBackend) -> tuple[int, int]:
        def step() -> None:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, k, enable_gqa=gqa).sum().backward()

        phases = counted(step).by_phase
        return phases["forward"].macs, phases["backward"].macs

    forward = 2 * 4 * 36 * 16
    assert in_context(SDPBackend.MATH) == in_context(SDPBackend.FLASH_ATTENTION) == (forward, 2 * forward)


def test_fused_bytes_are_the_interface() -> None:
    cost = cost_of_call(
        "aten._scaled_dot_product_flash_attention_for_cpu.default", operands(), tensor(B, HQ, SQ, D), tensor(B, HQ, SQ)
    )
    assert cost.read_bytes == 4 * B * D * (HQ * SQ + 2 * HKV * SK)
    assert cost.written_bytes == 4 * B * HQ * SQ * (D + 1)


def test_native_multi_head_attention_across() -> None:
    shapes = {"query": tensor(2, 5, 8), "key": tensor(2, 7, 8), "value": tensor(2, 7, 8), "embed_dim": 8, "num_head": 2}
    cost = cost_of_call("aten._native_multi_head_attention.default", shapes, tensor(2, 5, 8))
    assert cost.macs == 2 * (2 * 5 * 64 + 2 * 7 * 64 + 2 * 5 * 7 * 8)
