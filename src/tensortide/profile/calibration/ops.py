"""Steps of single ops that a calibration measures, at sizes from a cache line to beyond the last-level cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from tensortide.profile.calibration.networks import Step

Sizes = Sequence[tuple[int, ...]]


def products(sizes: Sizes) -> Step:
    """Products of (m, k) and (k, n) matrices, with and without a bias."""
    operands = [(torch.randn(m, k), torch.randn(k, n), torch.randn(n)) for m, n, k in sizes]

    def step() -> None:
        for left, right, bias in operands:
            left @ right
            torch.addmm(bias, left, right)

    return step


def batched(sizes: Sizes) -> Step:
    """Batches of products of (m, k) and (k, n) matrices."""
    operands = [(torch.randn(b, m, k), torch.randn(b, k, n)) for b, m, n, k in sizes]

    def step() -> None:
        for left, right in operands:
            found = torch.bmm(left, right)
            torch.baddbmm(found, left, right)
            torch.bmm(found.transpose(1, 2), left)

    return step


def pointwise(rows: Sequence[int], columns: int) -> Step:
    """Arithmetic on one, two and three operands, broadcast, compared and in place."""
    operands = [[torch.randn(count, columns) for _ in range(3)] for count in rows]

    def step() -> None:
        for a, b, c in operands:
            found = a + b
            found.mul_(0.5).add_(c, alpha=0.1)
            torch.addcmul(found, a, b)
            torch.where(a > 0, a, b)
            F.relu(found - a[:1])
            found.lerp_(b, 0.1).clamp_(-1, 1)

    return step


def transcendental(rows: Sequence[int], columns: int) -> Step:
    """Exponentials, roots and the activations made of them."""
    operands = [torch.rand(count, columns) + 0.1 for count in rows]

    def step() -> None:
        for a in operands:
            for function in (torch.exp, torch.log, torch.tanh, torch.sigmoid, torch.sqrt, F.gelu, F.silu):
                function(a)
            torch.addcdiv(a, a, a + 1)

    return step


def reductions(rows: Sequence[int], columns: int) -> Step:
    """Sums, means, extremes and norms of rows, columns and all."""
    operands = [torch.randn(count, columns) for count in rows]

    def step() -> None:
        for a in operands:
            for axis in (0, 1):
                a.sum(axis)
                a.mean(axis)
                a.amax(axis)
            torch.linalg.vector_norm(a)
            a.var(1)
            a.argmax(1)

    return step


def softmaxes(rows: Sequence[int], columns: int) -> Step:
    """Softmax and losses, forward and backward."""
    operands = [
        (torch.randn(count, columns, requires_grad=True), torch.rand(count, columns), torch.randint(columns, (count,)))
        for count in rows
    ]

    def step() -> None:
        for a, target, labels in operands:
            loss = F.cross_entropy(a, labels) + F.mse_loss(a, target) + F.smooth_l1_loss(a, target)
            loss = loss + F.binary_cross_entropy_with_logits(a, target) + a.softmax(1).mean()
            loss.backward()
            a.grad = None

    return step


def gathered(rows: Sequence[int], columns: int) -> Step:
    """Rows and elements that are chosen by index or mask, sorted and accumulated."""
    operands = [(torch.randn(count, columns), torch.randint(count, (count,))) for count in rows]

    def step() -> None:
        for a, index in operands:
            chosen = a[index]
            a.index_select(0, index)
            torch.zeros_like(a).index_add_(0, index, chosen)
            order = a.argsort(1)
            a.gather(1, order)
            torch.zeros_like(a).scatter_(1, order, chosen)
            a.topk(4, 1)
            a.cumsum(0)
            a.masked_fill(a > 1, 0.0)

    return step


def copies(rows: Sequence[int], columns: int) -> Step:
    """Copies of transposed and joined tensors, of other dtypes, and fills."""
    operands = [torch.randn(count, columns) for count in rows]

    def step() -> None:
        for a in operands:
            a.clone()
            a.t().contiguous()
            torch.cat([a, a], 1)
            torch.stack([a, a])
            a.to(torch.bfloat16).to(torch.float32)
            torch.zeros_like(a).copy_(a)
            torch.full_like(a, 1.0)

    return step


def random(rows: Sequence[int], columns: int) -> Step:
    """Random numbers and dropout."""
    operands = [torch.randn(count, columns) for count in rows]

    def step() -> None:
        for a in operands:
            torch.rand_like(a)
            torch.randn_like(a)
            F.dropout(a, 0.1)
            torch.empty_like(a).bernoulli_(0.5)

    return step
