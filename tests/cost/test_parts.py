"""Ops that few programs meet: fused ones against the parts they replace, the others against loops that count."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide.cost import Cost, count
from tests.cost.probe import (
    Number,
    assert_counted,
    cost_of,
    cost_of_call,
    largest,
    numbers,
    recorded,
    tally,
    tensor,
    total,
)
from tests.cost.test_elements import softmax

# -- attention modules ------------------------------------------------------------------------------

BATCH, TOKENS, WIDTH, HEADS = 2, 5, 8, 2


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_by_hand(masked: bool, averaged: bool) -> None:
    """Biases of four projections, scaled queries, masked scores, softmax; the mean over heads divides once each."""
    with tally() as done:
        for _ in range(BATCH):
            for _ in range(4 * TOKENS * WIDTH):
                Number(1) + 2
            for _ in range(TOKENS * WIDTH):
                Number(1) * 2
            heads = []
            for _ in range(HEADS):
                rows = numbers(TOKENS, TOKENS)
                rows = [[x + 0.0 for x in row] for row in rows] if masked else rows
                heads.append([softmax(row) for row in rows])
            if averaged:
                for i in range(TOKENS):
                    for j in range(TOKENS):
                        total([head[i][j] for head in heads]) / HEADS
    shape = tensor(BATCH, TOKENS, WIDTH)
    call: dict[str, Any] = {"query": shape, "key": shape, "value": shape, "embed_dim": WIDTH, "num_head": HEADS}
    call |= {"mask": tensor(TOKENS, TOKENS)} if masked else {}
    options = {"need_weights": averaged, "average_attn_weights": averaged}
    cost = cost_of_call("aten._native_multi_head_attention.default", call | options, shape)
    assert_counted(cost, done)
    assert (cost.active_macs is None) == masked


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_costs_what_its_parts_cost(activation: str) -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 12, activation=activation, batch_first=True).eval()
    x = torch.randn(BATCH, TOKENS, WIDTH)
    parts = count(recorded(lambda: layer(x)))
    with torch.no_grad():
        fused = count(recorded(lambda: layer(x)))
    assert "aten._transformer_encoder_layer_fwd" in fused.by_op
    assert "aten._transformer_encoder_layer_fwd" not in parts.by_op
    # one scales the queries, the other the scores
    scale = BATCH * TOKENS * WIDTH - BATCH * HEADS * TOKENS * TOKENS
    assert fused.total.macs == parts.total.macs
    assert fused.total.cost.elementwise_flops == parts.total.cost.elementwise_flops + scale
    assert fused.total.cost.comparisons == parts.total.cost.comparisons


def test_attention_of_one_kernel_costs_what_any_costs() -> None:
    shapes = {"q": tensor(2, 3, 4, 8), "k": tensor(2, 3, 5, 8), "v": tensor(2, 3, 5, 6)}
    triton = cost_of_call("aten._triton_scaled_dot_attention.default", shapes, tensor(2, 3, 4, 6))
    names = dict(zip(("query", "key", "value"), shapes.values(), strict=True))
    other = cost_of_call("aten._scaled_dot_product_efficient_attention.default", names, tensor(2, 3, 4, 6))
    assert triton == other


def test_one_packed_sequence_is_known_exactly() -> None:
    shapes = {name: tensor(6, 2, 4) for name in ("query", "key", "value")}
    lengths = {"cum_seq_q": tensor(2, dtype="int32"), "cum_seq_k": tensor(2, dtype="int32"), "is_causal": True}
    cost = cost_of_call("aten._flash_attention_forward.default", shapes | lengths, tensor(6, 2, 4))
    assert (cost.macs, cost.active_macs, cost.exact) == (6 * 6 * 2 * 8, 21 * 2 * 8, True)


# -- gradients of normalization ---------------------------------------------------------------------


def test_batch_norm_backward_by_hand() -> None:
    """The sums of the weight's and bias's gradients are those that the input's needs."""
    channels, m = 3, 8
    with tally() as done:
        for _ in range(channels):
            scale, mean, weight = Number(2), Number(1), Number(3)
            grads = numbers(m)
            normal = [(x - mean) * scale for x in numbers(m)]
            of_bias, of_weight = total(grads), total([g * x for g, x in zip(grads, normal, strict=True)])
            a, b, c = of_bias / m, of_weight / m, weight * scale
            _ = [(g - a - x * b) * c for g, x in zip(grads, normal, strict=True)]
    layer, x = nn.BatchNorm1d(channels), torch.randn(4, channels, 2, requires_grad=True)
    y = layer(x)
    cost = cost_of(lambda: torch.autograd.grad(y, [x, *layer.parameters()], torch.ones_like(y)))
    assert cost.elementwise_flops == done.flops


def test_the_sums_of_one_device_are_gradients_of_weight_and_bias() -> None:
    call = {"grad_out": tensor(4, 3, 2), "input": tensor(4, 3, 2)}
    sums = cost_of_call("aten.batch_norm_backward_reduce.default", call, tensor(3), tensor(3), tensor(3), tensor(3))
    fixed = call | {"train": False, "output_mask": (False, True, True)}
    assert (
        sums.elementwise_flops
        == cost_of_call("aten.native_batch_norm_backward.default", fixed, tensor(3), tensor(3)).elementwise_flops
    )


def test_group_norm_and_its_gradient_by_hand() -> None:
    """Each group of each sample is a row; the input's gradient makes the normalized row again."""
    batch, groups, n = 2, 3, 8
    with tally() as done:
        for _ in range(batch * groups):
            grads = [g * w for g, w in zip(numbers(n), numbers(n), strict=True)]
            normal = [(x - Number(1)) * Number(2) for x in numbers(n)]
            first, second = total(grads) / n, total([g * x for g, x in zip(grads, normal, strict=True)]) / n
            _ = [(g - first - x * second) * 2.0 for g, x in zip(grads, normal, strict=True)]
    x, layer = torch.randn(batch, 6, 4, requires_grad=True), nn.GroupNorm(groups, 6)
    y = layer(x)
    assert cost_of(lambda: torch.autograd.grad(y, x, torch.ones_like(y))).elementwise_flops == done.flops
    with tally() as reduced:
        for _ in range(6):
            total([a * b for a, b in zip(numbers(batch * 4), numbers(batch * 4), strict=True)])
            total(numbers(batch * 4))
    y = layer(x.detach())
    both = cost_of(lambda: torch.autograd.grad(y, list(layer.parameters()), torch.ones_like(y)))
    assert both.elementwise_flops == reduced.flops


def test_weight_norm_by_hand() -> None:
    with tally() as done:
        for row in numbers(3, 5):
            scale = Number(2) / total([x * x for x in row]).function(math.sqrt)
            _ = [x * scale for x in row]
    assert_counted(cost_of(lambda: torch._weight_norm_interface(torch.rand(3, 5), torch.ones(3, 1), 0)), done)


def test_rms_norm_backward_by_hand() -> None:
    rows, n = 3, 5
    with tally() as done:
        for _ in range(rows):
            scale, grads = Number(2), [g * w for g, w in zip(numbers(n), numbers(n), strict=True)]
            normal = [x * scale for x in numbers(n)]
            along = total([g * x for g, x in zip(grads, normal, strict=True)]) / n
            _ = [(g - x * along) * scale for g, x in zip(grads, normal, strict=True)]
    call = {"grad_out": tensor(rows, n), "input": tensor(rows, n), "normalized_shape": (n,), "weight": tensor(n)}
    cost = cost_of_call("aten._fused_rms_norm_backward.default", call | {"output_mask": (True, False)}, tensor(rows, n))
    assert cost.elementwise_flops == done.flops


# -- the rest ---------------------------------------------------------------------------------------


def difference(p: float) -> Number:
    """The distance of two points of 7 coordinates."""
    apart = [a - b for a, b in zip(numbers(7), numbers(7), strict=True)]
    if p == 2:
        return total([x * x for x in apart]).function(math.sqrt)
    apart = [x.selected(abs) for x in apart]
    if p == math.inf:
        return largest(apart)
    return total(apart if p == 1 else [x.function(lambda v: v**p) for x in apart])


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_distances_by_hand(p: float) -> None:
    with tally() as done:
        for _ in range(3 * 4):
            difference(p)
    assert_counted(cost_of(lambda: torch.cdist(torch.rand(3, 7), torch.rand(4, 7), p=p)), done)
    with tally() as done:
        for _ in range(5 * 4 // 2):
            difference(p)
    assert_counted(cost_of(lambda: F.pdist(torch.rand(5, 7), p=p)), done)


def test_boxes_by_hand() -> None:
    """Every box with every other one, as many as are never suppressed."""
    boxes = 4
    with tally() as done:
        areas = []
        for x1, y1, x2, y2 in numbers(boxes, 4):
            areas.append((x2 - x1) * (y2 - y1))
        for i in range(boxes):
            for j in range(i):
                left, top, right, bottom = (Number(1).larger(Number(2)) for _ in range(4))
                common = (right - left).larger(Number(0)) * (bottom - top).larger(Number(0))
                (common / (areas[i] + areas[j] - common)).larger(Number(0.5))
    assert_counted(
        cost_of_call("torchvision.nms.default", {"dets": tensor(boxes, 4)}, tensor(boxes, dtype="int64")), done
    )


def test_affine_grid_is_a_product() -> None:
    theta = torch.randn(2, 2, 3)
    parts = cost_of(lambda: F.affine_grid(theta, [2, 1, 4, 5], align_corners=False))
    fused = cost_of_call("aten.affine_grid_generator.default", {"theta": tensor(2, 2, 3)}, tensor(2, 4, 5, 2))
    assert fused.macs == 2 * 4 * 5 * 2 * 3 == parts.macs


def test_linear_cross_entropy_is_its_parts() -> None:
    rows, classes, width = 6, 5, 4
    x, w = torch.randn(rows, width, requires_grad=True), torch.randn(classes, width, requires_grad=True)
    labels = torch.zeros(rows, dtype=torch.int64)
    parts = cost_of(lambda: F.cross_entropy(x @ w.T, labels))
    call = {"input": tensor(rows, width), "linear_weight": tensor(classes, width)}

    def fused(**wanted: bool) -> Cost:
        return cost_of_call("torch_nn._linear_cross_entropy_batch_chunked.default", call | wanted, tensor())

    assert (fused().macs, fused().elementwise_flops) == (parts.macs, parts.elementwise_flops)
    gradients = cost_of(lambda: F.cross_entropy(x @ w.T, labels).backward())
    assert fused(compute_input_grad=True, compute_linear_weight_grad=True).macs == gradients.macs
    assert fused(compute_linear_weight_grad=True).macs == 2 * parts.macs


def test_half_of_a_structured_sparse_product_is_active() -> None:
    call = {"compressed_A": tensor(8, 10), "dense_B": tensor(16, 6), "bias": tensor(8)}
    cost = cost_of_call("aten._cslt_sparse_mm.default", call, tensor(8, 6))
    assert (cost.macs, cost.active_macs, cost.elementwise_flops) == (8 * 16 * 6, 8 * 16 * 6 // 2, 8 * 6)


def test_rows_are_sorted_along_the_dimension_that_is_asked_for() -> None:
    x = torch.rand(4, 16)
    assert cost_of(lambda: x.sort(0)).comparisons == 16 * 5
    assert cost_of(lambda: x.median(0)).comparisons == 16 * 5
    assert cost_of(x.median).comparisons == 321
    assert cost_of(lambda: torch.isin(x, x[:1])).comparisons == (64 + 16) * 5
    assert cost_of(lambda: x.kthvalue(3)).comparisons == 64 * 2


def test_dropout_in_evaluation_does_nothing() -> None:
    outs = tensor(6), tensor(6, dtype="bool")
    for options in ({"p": 0.5, "train": False}, {"p": 0.0, "train": True}):
        assert cost_of_call("aten.native_dropout.default", {"input": tensor(6)} | options, *outs).flops == 0
