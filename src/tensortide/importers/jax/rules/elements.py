"""Element work of JAX's primitives. The same counts as for the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.forms import simple
from tensortide.cost.kinds import Kind, Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import (
    ARITHMETIC,
    BOUNDS,
    COMPARISON,
    DIVISION,
    MULTIPLICATION,
    SIGMOID,
    SPECIAL,
    describe,
)
from tensortide.importers.jax.rules.register import jax

TABLE: dict[str, Weights] = {
    "add sub neg add_any": ARITHMETIC,
    "mul square": MULTIPLICATION,
    "div rem": DIVISION,
    "max min abs sign floor ceil round is_finite eq ne lt le gt ge eq_to le_to lt_to": COMPARISON,
    "clamp": BOUNDS,
    "exp exp2 expm1 log log1p sqrt rsqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc erf_inv lgamma digamma pow nextafter": SPECIAL,
    "bessel_i0e bessel_i1e igamma igammac igamma_grad_a polygamma zeta regularized_incomplete_beta "
    "random_gamma_grad": SPECIAL,
    "logistic": SIGMOID,
}
"""FLOPs per output element, of which special functions and comparisons."""

for _names, _weights in TABLE.items():
    jax(_names, describe(_weights), "Element by element.")(simple(_weights))


@jax("select_n", "1 compared per output element")
def select(op: OpCall) -> Cost:
    """One of several operands for every element."""
    return elements(op, op.out.numel, COMPARISON, kind_of(op.outputs))


@jax("integer_pow", "multiplications of binary powering, + 1 division if the power is negative")
def integer_pow(op: OpCall) -> Cost:
    """An integer power of every element."""
    power = int(op.arg("y", 1))
    times = max(0, abs(power).bit_length() - 1 + abs(power).bit_count() - 1)
    cost = elements(op, op.out.numel, Weights(times, 0, 0, 6 * times))
    return cost + elements(op, op.out.numel, DIVISION) if power < 0 else cost


@jax(
    "and or xor not shift_left shift_right_logical shift_right_arithmetic population_count clz mulhi",
    "1 integer op per element",
)
def bits(op: OpCall) -> Cost:
    """Work on booleans and bits."""
    return Cost(int_ops=op.out.numel)


@jax("iota", "1 integer op per element")
def iota(op: OpCall) -> Cost:
    """The numbers 0, 1, ... along one dimension."""
    return Cost(int_ops=op.out.numel, written_bytes=op.out.nbytes)


@jax("convert_element_type reduce_precision", "0 FLOP: 1 integer op per element")
def cast(op: OpCall) -> Cost:
    """The same numbers in another dtype."""
    return Cost(int_ops=op.out.numel)


@jax(
    "random_bits threefry2x32 threefry4x32 philox2x32 philox4x32 rng_bit_generator rng_uniform random_gamma "
    "iota_2x32_shape",
    "1 draw per element",
)
def draws(op: OpCall) -> Cost:
    """Random numbers."""
    return Cost(random_draws=op.outputs[-1].numel)


@jax("random_seed random_split random_fold_in random_clone", "1 integer op per word")
def keys(op: OpCall) -> Cost:
    """Random keys made of others."""
    return Cost(int_ops=sum(tensor.numel for tensor in op.outputs))


@jax("sort", "R (n L - 2^L + 1) comparisons, L = ceil(log2 n)")
def sort(op: OpCall) -> Cost:
    """Sort of rows of n by the first operand, the worst case of merge sort."""
    n = op.inputs[0].shape[int(op.arg("dimension", -1))]
    rows = op.inputs[0].numel // max(1, n)
    levels = max(0, n - 1).bit_length()
    op.let(R=rows, n=n, L=levels)
    return _compared(op, rows * (n * levels - 2**levels + 1) if n else 0)


@jax("top_k approx_top_k", "R n ceil(log2(k + 1)) comparisons")
def top_k(op: OpCall) -> Cost:
    """The k largest of rows of n."""
    k = int(op.arg("k", op.out.shape[-1]))
    op.let(n=op.inputs[0].shape[-1], k=k)
    return _compared(op, op.inputs[0].numel * k.bit_length())


def _compared(op: OpCall, count: int) -> Cost:
    if kind_of(op.inputs[:1]) is Kind.INTEGER:
        return Cost(int_ops=count)
    return Cost(elementwise_flops=count, comparisons=count)


@jax("fft", "B 5 n log2 n FLOP; half of it from or to real numbers")
def fft(op: OpCall) -> Cost:
    """Discrete Fourier transform over the last dimensions."""
    lengths = [int(n) for n in op.arg("fft_lengths", ())]
    n = math.prod(lengths)
    real = op.out if kind_of(op.inputs) is Kind.COMPLEX else op.inputs[0]
    complex_both = kind_of(op.inputs) is Kind.COMPLEX and kind_of(op.outputs) is Kind.COMPLEX
    batch = real.numel // max(1, n)
    op.let(B=batch, n=n)
    work = (5.0 if complex_both else 2.5) * n * math.log2(n) if n > 1 else 0
    return Cost(elementwise_flops=batch * math.ceil(work), exact=False, reason="convention: 5 n log2 n")
