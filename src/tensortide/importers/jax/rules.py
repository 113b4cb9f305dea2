"""Cost rules of JAX's primitives. The same counts as for the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tensortide.cost.access import interface, unless_view
from tensortide.cost.families import (
    collective,
    contraction,
    decomposition,
    elementwise,
    free,
    gather,
    integer,
    move,
    numbered,
    pool,
    random,
    reduction,
    running,
    scatter,
    sort,
    substitution,
    topk,
)
from tensortide.cost.families.attention import Problem, backward, forward
from tensortide.cost.families.products import CONVENTION, product, transform
from tensortide.cost.kinds import WEIGHTS, Kind, Weights, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.graph.collectives import COLLECTIVES
from tensortide.importers.jax import special
from tensortide.importers.jax.views import SAME

__all__ = ["special"]  # imported for the rules that it registers

jax = Vocabulary("jax")
_CONTROL = (
    "constant carry row empty empty2 shard unshard copy_to_host_async create_token after_all debug_callback "
    "debug_print axis_index platform_index dimension_size shape_assertion zeros_like new_ref free_ref empty_ref "
    "new_box dce_sink pvary_done unreachable create_linear dim_as_value broadcast_to result"
)
_EXCHANGES = " ".join(
    variants.partition("/")[0] for row in COLLECTIVES.values() if not row.reduces for variants in row.jax.split()
)
jax.rows({
    "add sub neg add_any": "arithmetic",
    "mul square": "multiplication",
    "div": "division",
    "rem": "remainder",
    "conj": "conjugate",
    "max min abs sign floor ceil round nextafter is_finite eq ne lt le gt ge eq_to le_to lt_to": "comparison",
    "clamp": "bounds",
    "exp exp2 expm1 log log1p sqrt rsqrt cbrt sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf "
    "erfc erf_inv lgamma digamma pow bessel_i0e bessel_i1e igamma igammac igamma_grad_a polygamma zeta "
    "regularized_incomplete_beta random_gamma_grad": "special",
    "logistic": "sigmoid",
    "addupdate accum_grad_in_ref": elementwise("arithmetic", of="1 0"),
    "and or xor not shift_left shift_right_logical shift_right_arithmetic population_count clz mulhi": integer(),
    "iota": numbered(),
    "reduce_precision": integer(),
    "random_seed random_split random_fold_in random_clone symmetric_product lu_pivots_to_permutation":
        integer("outputs"),
    "random_bits threefry2x32 threefry4x32 philox2x32 philox4x32 rng_bit_generator rng_uniform random_gamma "
    "iota_2x32_shape": random(of="last", bytes=interface),
    "squeeze expand_dims broadcast_in_dim transpose slice split unstack real imag bitcast_convert_type": free(),
    f"{_CONTROL} {' '.join(sorted(SAME - {'copy_p'}))}": free(),
    "reshape": move("A view, or a copy where the elements lie in another order.", bytes=unless_view),
    "convert_element_type copy concatenate rev pad tile stack complex": move(),
    "gather dynamic_slice": gather(),
    "get": gather("", "The contents of a mutable array."),
    "dynamic_update_slice scatter write_row swap": scatter(updates="update updates row x1", into="place"),
    "scatter-add scatter-sub": scatter("arithmetic", updates="updates out"),
    "scatter-mul": scatter("multiplication", updates="updates out"),
    "scatter-min scatter-max": scatter("comparison", updates="updates out"),
    "psum": collective("arithmetic", meaning="Sum over devices."),
    "pmax pmin": collective("comparison", meaning="Largest or smallest over devices."),
    "reduce_scatter": collective("arithmetic", divided=False, meaning="Sum over devices, a part on each."),
    _EXCHANGES: collective(),
    "reduce_sum": reduction("sum"),
    "reduce_prod": reduction("product"),
    "reduce_max reduce_min argmax argmin reduce_and reduce_or reduce_xor": reduction("max"),
    "cumsum": running("arithmetic", axis="axis"),
    "cumprod": running("multiplication", axis="axis"),
    "cummax cummin": running("comparison", axis="axis"),
    "cumlogsumexp": running((5, 2, 1), axis="axis"),
    "sort": sort("dimension"),
    "top_k approx_top_k": topk(k="k"),
    "reduce_window_sum reduce_window": pool("sum", "window_dimensions"),
    "reduce_window_max reduce_window_min": pool("max", "window_dimensions"),
    "select_and_scatter_add select_and_scatter": pool("max_gradient", "", of="0"),
    "select_and_gather_add": pool("max_gradient", "", of="out"),
    "scaled_dot scaled_matmul scaled_matmul_wrapper": contraction("*k"),
    "cholesky": decomposition("cholesky"),
    "lu": decomposition("lu"),
    "qr geqrf geqp3 householder_product ormqr": decomposition("qr"),
    "triangular_solve": substitution("1"),
})  # fmt: skip


@jax("select_n", "1 compared per output element", family="elementwise")
def select(op: OpCall) -> Cost:
    """One of several operands for every element."""
    return elements(op, op.out.numel, WEIGHTS["comparison"], kind_of(op.outputs))


@jax("integer_pow", "multiplications of binary powering, + 1 division if the power is negative", family="elementwise")
def integer_pow(op: OpCall) -> Cost:
    """An integer power of every element."""
    power = int(op.arg("y", 1))
    times = max(0, abs(power).bit_length() - 1 + abs(power).bit_count() - 1)
    cost = elements(op, op.out.numel, Weights(times, 0, 0, 6 * times))
    return cost + elements(op, op.out.numel, WEIGHTS["division"]) if power < 0 else cost


@jax("fft", "B 5 n log2 n FLOP; half of it from or to real numbers", family="fourier")
def fft(op: OpCall) -> Cost:
    """Discrete Fourier transform over the last dimensions."""
    n = math.prod(int(length) for length in op.arg("fft_lengths", ()))
    given, made = kind_of(op.inputs), kind_of(op.outputs)
    batch = (op.out if given is Kind.COMPLEX else op.inputs[0]).numel // max(1, n)
    op.let(B=batch, n=n)
    work = batch * transform(n, real=given is not Kind.COMPLEX or made is not Kind.COMPLEX)
    return Cost(elementwise_flops=work, exact=False, reason=CONVENTION)


@jax("reduce", "R (n - 1) times the ops that combine two elements", family="reduction")
def reduce(op: OpCall) -> Cost:
    """A reduction by a function of two elements."""
    count = max(0, op.inputs[0].numel - op.out.numel)
    work = rows_work(op, count * max(1, len(op.arg("jaxpr", ("add",)))))
    return work + Cost(exact=False, reason="by default: 1 FLOP per op that combines")


@jax(
    "dot_general", "E k MACs, k the contracted sizes; if nothing is contracted, E multiplications", family="contraction"
)
def dot_general(op: OpCall) -> Cost:
    """Contraction of two tensors over pairs of dimensions, batched over others."""
    (contracted, _), _ = op.arg("dimension_numbers")
    k = math.prod(op.shape("lhs")[dim] for dim in contracted)
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k) if contracted else product(op, 0, op.out.numel)


@jax(
    "conv_general_dilated",
    "N O C_out (C_in/g) K MACs; with lhs_dilation I for O; gradients as the convolution that they are of",
    family="convolution",
)
def convolution(op: OpCall) -> Cost:
    """Every output site meets the whole kernel, taps on padding included; of a dilated (transposed) input every input
    site does. A gradient costs what its convolution does, in whichever form it is written."""
    lhs_spec, rhs_spec, out_spec = op.arg("dimension_numbers")
    left, kernel = _spatial(op.shape("lhs"), lhs_spec), _spatial(op.shape("rhs"), rhs_spec)
    made = _spatial(op.out.shape, out_spec)
    features = op.shape("rhs")[rhs_spec[1]]
    transposed = _dilated(op.arg("lhs_dilation"))
    per_site = op.out.numel // max(1, made) * features
    op.let(I=left, O=made, K=kernel, C=per_site)
    match op.arg("gradient_of", ""):
        case "weight":  # here the kernel is a gradient, and the output as large as the kernel
            return product(op, op.out.numel * features * (left if transposed else kernel))
        case "input":
            sites = made if _dilated(op.arg("window_strides")) else left
            return product(op, per_site * kernel * sites)
        case _:
            return product(op, per_site * kernel * (left if transposed else made))


def _spatial(shape: Sequence[int], spec: Sequence[int]) -> int:
    """Return the number of sites: the first two dimensions of a specification are batch and features."""
    return math.prod(shape[dim] for dim in spec[2:])


def _dilated(steps: Any) -> bool:
    return any(step != 1 for step in steps or ())


@jax(
    "ragged_dot_general", "T k n MACs: each row meets one group's matrix; by groups of the contraction also T k n",
    family="contraction",
)  # fmt: skip
def ragged(op: OpCall) -> Cost:
    """Product of rows with the matrix of their group. How many rows the groups have is data: all of them count."""
    numbers = op.arg("ragged_dot_dimension_numbers")
    (contracted, right_contracted), (batch, right_batch) = numbers[0]
    left, right = op.shape("lhs"), op.shape("rhs")
    k = math.prod(left[dim] for dim in contracted)
    others = math.prod(n for dim, n in enumerate(left) if dim not in (*contracted, *batch))
    used = {*numbers[2], *right_contracted, *right_batch}
    columns = math.prod(n for dim, n in enumerate(right) if dim not in used)
    macs = math.prod(left[dim] for dim in batch) * others * k * columns
    op.let(T=others, k=k, n=columns)
    return msgspec.structs.replace(product(op, macs), exact=False, reason="bound: rows beyond the groups count, too")


@jax(
    "dot_product_attention_fwd dot_product_attention_fwd_wrapper dot_product_attention_fp8_fwd "
    "dot_product_attention_fp8_fwd_wrapper", "B H Sq Sk (Dk + Dv) MACs, + B H Sq (5 Sk - 2 + Sk)",
    "Fused attention of cuDNN on (batch, sequence, heads, size).", family="attention",
)  # fmt: skip
@jax(
    "dot_product_attention_bwd dot_product_attention_bwd_wrapper dot_product_attention_fp8_bwd "
    "dot_product_attention_fp8_bwd_wrapper",
    "2 B H Sq Sk (Dk + Dv) MACs, + B H Sq (5 Sk - 1)", "Gradient of fused attention.", family="attention",
)  # fmt: skip
def attention(op: OpCall) -> Cost:
    """Scores, softmax and values of every head; dense, whatever the mask."""
    query, key, value = (tensor.shape for tensor in op.inputs[:3])
    if len(query) != 4 or len(key) != 4 or len(value) != 4:
        return Cost(exact=False, reason="attention in an unknown layout")
    batch, rows, heads, size = query
    pairs = batch * rows * key[1]
    one = Problem(batch, heads, heads, rows, key[1], size, value[3], pairs, pairs, masked=False, dropout=False)
    return backward(op, one, (True, True, True, False)) if "bwd" in op.base else forward(op, one)


@jax("tridiagonal_solve", "3 n r MACs", "Solution of a tridiagonal system with r right sides.", family="decomposition")
def tridiagonal(op: OpCall) -> Cost:
    """Leading term."""
    return product(op, 3 * op.inputs[-1].numel) + Cost(exact=False, reason="leading term")
