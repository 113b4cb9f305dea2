"""Counts by brute force: what a convolution and its gradients multiply, one product at a time."""

from __future__ import annotations

import itertools


def convolution(
    batch: int, inputs: int, outputs: int, size: int, kernel: int, *, stride: int = 1, low: int = 0, high: int = 0,
    dilation: int = 1, groups: int = 1,
) -> int:  # fmt: skip
    """Count the products of a convolution in one dimension, taps on padding included."""
    reach = (kernel - 1) * dilation
    sites = range(-low, size + high - reach, stride)
    taps = itertools.product(range(batch), sites, range(outputs), range(inputs // groups), range(kernel))
    return sum(1 for _ in taps)


def transposed(batch: int, inputs: int, outputs: int, size: int, kernel: int) -> int:
    """Count the products of a transposed convolution in one dimension: every input element meets the whole kernel."""
    taps = itertools.product(range(batch), range(size), range(inputs), range(outputs), range(kernel))
    return sum(1 for _ in taps)
