"""Sorting, pooling, resampling and the rest against enumeration and figures worked out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from tests.cost.probe import Number, assert_counted, cost_of, cost_of_call, largest, numbers, tally, tensor, total


def merge_sort(items: list[int]) -> tuple[list[int], int]:
    """Sorted items and comparisons made, bottom up."""
    if len(items) <= 1:
        return items, 0
    half = (len(items) + 1) // 2
    (left, a), (right, b) = merge_sort(items[:half]), merge_sort(items[half:])
    out: list[int] = []
    compared = a + b
    while left and right:
        compared += 1
        out.append((left if left[0] <= right[0] else right).pop(0))
    return out + left + right, compared


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_sort_is_the_worst_case_of_merge_sort(n: int) -> None:
    worst = max(merge_sort(list(order))[1] for order in itertools.permutations(range(n)))
    assert cost_of(lambda: torch.ones(2, n).sort(-1)).comparisons == 2 * worst


def test_sort_and_search_figures() -> None:
    assert cost_of(lambda: torch.ones(64).sort()).comparisons == 321
    assert cost_of(lambda: torch.ones(3, 100).topk(5)).comparisons == 3 * 100 * 3
    assert cost_of(lambda: torch.searchsorted(torch.ones(7), torch.ones(5))).comparisons == 5 * 3


def windows(n: int, kernel: int, stride: int) -> list[list[int]]:
    return [list(range(i, i + kernel)) for i in range(0, n - kernel + 1, stride)]


def test_pooling_by_hand() -> None:
    places = [a + b for a in windows(6, 3, 2) for b in windows(6, 3, 2)]
    assert len(places) == 4
    with tally() as done:
        for _ in range(2 * len(places)):
            largest(numbers(9))
    assert_counted(cost_of(lambda: F.max_pool2d(torch.ones(1, 2, 6, 6), 3, 2)), done)
    with tally() as done:
        for _ in range(2 * len(places)):
            total(numbers(9)) / 9.0
    assert_counted(cost_of(lambda: F.avg_pool2d(torch.ones(1, 2, 6, 6), 3, 2)), done)


@pytest.mark.parametrize(("n", "out"), [(4, 2), (5, 2), (7, 3), (3, 5)])
def test_adaptive_pooling_against_kernel_positions(n: int, out: int) -> None:
    """Each output averages the inputs that have a part in it."""
    probe = torch.zeros(n, n, 1, n, n)
    for i in range(n):
        for j in range(n):
            probe[i, j, 0, i, j] = 1
    covered = int((F.adaptive_avg_pool2d(probe.flatten(0, 1), out) != 0).sum())
    assert cost_of(lambda: F.adaptive_avg_pool2d(torch.ones(1, 1, n, n), out)).elementwise_flops == covered
    assert cost_of(lambda: F.adaptive_max_pool2d(torch.ones(1, 1, n, n), out)).comparisons == covered - out * out


def test_resampling() -> None:
    x = torch.ones(1, 2, 4, 4)
    assert cost_of(lambda: F.interpolate(x, scale_factor=2, mode="nearest")).flops == 0
    assert cost_of(lambda: F.interpolate(x, scale_factor=2, mode="bilinear")).flops == 7 * 128
    assert cost_of(lambda: F.interpolate(x, scale_factor=2, mode="bicubic")).flops == 31 * 128
    assert cost_of(lambda: F.interpolate(x[0], scale_factor=2, mode="linear")).flops == 3 * 64
    assert cost_of(lambda: F.interpolate(x[None], scale_factor=2, mode="trilinear")).flops == 15 * 256
    assert cost_of(lambda: F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2)).flops == 0


@pytest.mark.parametrize(("mode", "taps"), [("bilinear", 4), ("bicubic", 16)])
def test_gradient_of_resampling(mode: str, taps: int) -> None:
    """Every gradient, weighted, is added to all its taps; nearest neighbours only sum."""
    x = torch.ones(1, 2, 4, 4, requires_grad=True)
    y = F.interpolate(x, scale_factor=2, mode=mode)
    assert cost_of(lambda: torch.autograd.grad(y, x, torch.ones_like(y))).flops == 2 * taps * y.numel()
    near = F.interpolate(x, scale_factor=2, mode="nearest")
    assert cost_of(lambda: torch.autograd.grad(near, x, torch.ones_like(near))).flops == near.numel() - x.numel()


def bilinear(x: Number, y: Number) -> Number:
    """A point between four others: the weights from its two coordinates, then the weighted sum."""
    right, down = x - 0.0, y - 0.0
    left, up = 1 - right, 1 - down
    weights = [up * left, up * right, down * left, down * right]
    return total([w * v for w, v in zip(weights, numbers(4), strict=True)])


def test_grid_sampling() -> None:
    image, grid = torch.ones(1, 2, 4, 4), torch.zeros(1, 3, 5, 2)
    with tally() as done:
        for _ in range(2 * 3 * 5):
            bilinear(Number(0.1), Number(0.2))
    assert cost_of(lambda: F.grid_sample(image, grid, align_corners=False)).flops == done.flops
    assert cost_of(lambda: F.grid_sample(image, grid, mode="nearest", align_corners=False)).flops == 0


def norm(order: float, row: list[Number]) -> Number:
    if order == 2:
        return total([x * x for x in row]).function(math.sqrt)
    row = [x.selected(abs) for x in row]
    if math.isinf(order):
        return largest(row)
    if order < 2:
        return total(row)
    return total([x.function(lambda v: v**order) for x in row]).function(math.sqrt)


@pytest.mark.parametrize("order", [0.0, 1.0, 2.0, 3.0, math.inf])
def test_norms_by_hand(order: float) -> None:
    x = torch.rand(3, 5)
    with tally() as done:
        for row in numbers(3, 5):
            norm(order, row)
    assert_counted(cost_of(lambda: torch.linalg.vector_norm(x, order, -1)), done)
    with tally() as done:
        norm(order, [a - b for a, b in zip(numbers(15), numbers(15), strict=True)])
    call = {"self": tensor(3, 5), "other": tensor(3, 5), "p": order}
    assert_counted(cost_of_call("aten.dist.default", call, tensor()), done)


def test_losses() -> None:
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    assert cost_of(lambda: F.mse_loss(x, y, reduction="none")).flops == 24
    assert cost_of(lambda: F.mse_loss(x, y)).flops == 24 + 12
    target = torch.zeros(3, dtype=torch.int64)
    assert cost_of(lambda: F.cross_entropy(x, target)).flops == 3 * (5 * 4 - 1) + 3


def test_fft() -> None:
    assert cost_of(lambda: torch.fft.fft(torch.ones(2, 64, dtype=torch.complex64))).flops == 2 * 5 * 64 * 6
    assert cost_of(lambda: torch.fft.rfft(torch.ones(2, 64))).flops == 2 * 5 * 64 * 3
    assert cost_of(lambda: torch.fft.irfft(torch.ones(2, 33, dtype=torch.complex64))).flops == 2 * 5 * 64 * 3 + 2 * 64
    assert cost_of(lambda: torch.fft.fft2(torch.ones(8, 4, dtype=torch.complex64))).flops == 5 * 32 * 5


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows_by_hand(mode: str) -> None:
    lengths, dim = (3, 1, 2), 4
    with tally() as done:
        for length in lengths:
            for column in range(dim):
                del column
                joined = (largest if mode == "max" else total)(numbers(length))
                _ = joined / length if mode == "mean" else joined
    table, index, starts = torch.randn(9, dim), torch.randint(0, 9, (6,)), torch.tensor([0, 3, 4])
    assert_counted(cost_of(lambda: F.embedding_bag(index, table, starts, mode=mode)), done)


def test_random_and_dropout() -> None:
    cost = cost_of(lambda: torch.rand(5))
    assert (cost.flops, cost.random_draws, cost.read_bytes, cost.written_bytes) == (0, 5, 0, 20)
    call = {"input": tensor(6), "p": 0.5, "train": True}
    dropped = cost_of_call("aten.native_dropout.default", call, tensor(6), tensor(6, dtype="bool"))
    assert (dropped.random_draws, dropped.flops) == (6, 12)


def test_embedding() -> None:
    table, index = torch.ones(100, 8, requires_grad=True), torch.zeros(5, dtype=torch.int64)
    forward = cost_of(lambda: F.embedding(index, table))
    assert (forward.flops, forward.read_bytes, forward.written_bytes) == (0, 40 + 160, 160)
    call = {"grad_output": tensor(5, 8), "indices": tensor(5, dtype="int64"), "num_weights": 100}
    backward = cost_of_call("aten.embedding_dense_backward.default", call, tensor(100, 8))
    assert (backward.flops, backward.written_bytes, backward.exact) == (40, 3200, False)
