"""Steps of single ops that a calibration measures, at sizes from a cache line to beyond the last-level cache.

Results are held until the step ends, as those of a forward pass are: memory that is new costs more than memory used
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tensortide.profile.calibration.networks import Step

Sizes = Sequence[tuple[int, ...]]


def _held(results: Callable[..., Iterator[Any]], operands: Sequence[tuple[Tensor, ...]]) -> Step:
    """A step that holds the results of all ``operands``."""

    def step() -> None:
        held = [list(found) for found in starmap(results, operands)]
        del held

    return step


def products(sizes: Sizes) -> Step:
    """Products of (m, k) and (k, n) matrices, with and without a bias."""

    def results(left: Tensor, right: Tensor, bias: Tensor) -> Iterator[Any]:
        yield left @ right
        yield torch.addmm(bias, left, right)

    return _held(results, [(torch.randn(m, k), torch.randn(k, n), torch.randn(n)) for m, n, k in sizes])


def batched(sizes: Sizes) -> Step:
    """Batches of products of (m, k) and (k, n) matrices."""

    def results(left: Tensor, right: Tensor) -> Iterator[Any]:
        found = torch.bmm(left, right)
        yield found
        yield torch.baddbmm(found, left, right)
        yield torch.bmm(found.transpose(1, 2), left)

    return _held(results, [(torch.randn(b, m, k), torch.randn(b, k, n)) for b, m, n, k in sizes])


def pointwise(rows: Sequence[int], columns: int) -> Step:
    """Arithmetic on one, two and three operands, broadcast, compared and in place."""

    def results(a: Tensor, b: Tensor, c: Tensor) -> Iterator[Any]:
        found = a + b
        yield found.mul_(0.5).add_(c, alpha=0.1)
        yield torch.addcmul(found, a, b)
        yield torch.where(a > 0, a, b)
        yield F.relu(found - a[:1])
        yield found.lerp_(b, 0.1).clamp_(-1, 1)

    return _held(results, [tuple(torch.randn(3, count, columns)) for count in rows])


def transcendental(rows: Sequence[int], columns: int) -> Step:
    """Exponentials, roots and the activations made of them."""

    def results(a: Tensor) -> Iterator[Any]:
        for function in (torch.exp, torch.log, torch.tanh, torch.sigmoid, torch.sqrt, F.gelu, F.silu):
            yield function(a)
        yield torch.addcdiv(a, a, a + 1)

    return _held(results, [(torch.rand(count, columns) + 0.1,) for count in rows])


def reductions(rows: Sequence[int], columns: int) -> Step:
    """Sums, means, extremes and norms of rows, columns and all."""

    def results(a: Tensor) -> Iterator[Any]:
        for axis in (0, 1):
            yield a.sum(axis)
            yield a.mean(axis)
            yield a.amax(axis)
        yield torch.linalg.vector_norm(a)
        yield a.var(1)
        yield a.argmax(1)

    return _held(results, [(torch.randn(count, columns),) for count in rows])


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

    def results(a: Tensor, index: Tensor) -> Iterator[Any]:
        chosen = a[index]
        yield chosen
        yield a.index_select(0, index)
        yield torch.zeros_like(a).index_add_(0, index, chosen)
        order = a.argsort(1)
        yield a.gather(1, order)
        yield torch.zeros_like(a).scatter_(1, order, chosen)
        yield a.topk(4, 1)
        yield a.cumsum(0)
        yield a.masked_fill(a > 1, 0.0)

    return _held(results, [(torch.randn(count, columns), torch.randint(count, (count,))) for count in rows])


def copies(rows: Sequence[int], columns: int) -> Step:
    """Copies of transposed and joined tensors, of other dtypes, and fills."""

    def results(a: Tensor) -> Iterator[Any]:
        yield a.clone()
        yield a.t().contiguous()
        yield torch.cat([a, a], 1)
        yield torch.stack([a, a])
        yield a.to(torch.bfloat16).to(torch.float32)
        yield torch.zeros_like(a).copy_(a)
        yield torch.full_like(a, 1.0)

    return _held(results, [(torch.randn(count, columns),) for count in rows])


def random(rows: Sequence[int], columns: int) -> Step:
    """Random numbers and dropout."""

    def results(a: Tensor) -> Iterator[Any]:
        yield torch.rand_like(a)
        yield torch.randn_like(a)
        yield F.dropout(a, 0.1)
        yield torch.empty_like(a).bernoulli_(0.5)

    return _held(results, [(torch.randn(count, columns),) for count in rows])
