"""Fourier transforms. Counting convention: docs/cost.md, FFT: 5 n log2 n for a complex transform of any length.

The figure is that of radix 2 (Cooley and Tukey, 1965; Frigo and Johnson report all FFTs in it).
"""

from __future__ import annotations

import math

from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

REASON = "FFT by convention: 5 n log2 n"


def transform(n: int, real: bool) -> int:
    """FLOPs of one transform of n points, rounded up: 5 n log2 n, half of it between real and complex.

    >>> transform(64, True), transform(64, False), transform(1, False), transform(6, False)
    (960, 1920, 0, 78)
    """
    if n <= 1:
        return 0
    levels = n.bit_length() - 1
    if n == 1 << levels:
        return -(-5 * n * levels // 2) if real else 5 * n * levels
    return math.ceil((2.5 if real else 5) * n * math.log2(n))


def _cost(op: OpCall, shape: tuple[int, ...], real: bool, per_output: int) -> Cost:
    dims = op.arg("dim", ())
    n = math.prod(shape[d] for d in dims)
    batch = math.prod(shape) // max(1, n)
    op.let(n=n, batch=batch)
    scaled = per_output * op.out.numel if op.arg("normalization", 0) else 0
    return Cost(elementwise_flops=batch * transform(n, real) + scaled, exact=False, reason=REASON)


@rule("aten::_fft_c2c", formula="per transform ceil(5 n log2 n), + 2 per output if normalized")
def complex_fft(op: OpCall) -> Cost:
    """Complex to complex."""
    return _cost(op, op.shape("self"), False, 2)


@rule("aten::_fft_r2c", formula="per transform ceil(2.5 n log2 n), + 2 per output if normalized")
def real_fft(op: OpCall) -> Cost:
    """Real to complex, with or without the redundant half."""
    return _cost(op, op.shape("self"), True, 2)


@rule("aten::_fft_c2r", formula="per transform ceil(2.5 n log2 n), + 1 per output if normalized")
def inverse_real_fft(op: OpCall) -> Cost:
    """Complex to real."""
    return _cost(op, op.out.shape, True, 1)
