"""Element work: arithmetic, comparisons, special functions; activation functions and their gradients.

Counting convention: docs/cost.md, pointwise. In-place, out-of-place, ``out=``, scalar and ``_foreach_`` forms of an op
share its rule.
"""

from __future__ import annotations

import msgspec

from tensortide.cost.families import elementwise, move
from tensortide.cost.kinds import ARITHMETIC, COMPARISON, WEIGHTS, Kind, Weights, dtype_kind, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

aten = Vocabulary("aten", "elementwise")

aten.rows({
    "neg negative deg2rad rad2deg": "arithmetic",
    "conj_physical _conj_physical": "conjugate",
    "maximum minimum fmax fmin clamp_max clamp_min sign sgn relu isnan isinf isposinf isneginf isfinite "
    "eq ne lt le gt ge signbit copysign heaviside nextafter nan_to_num "
    "ceil floor round trunc frac frexp": "comparison",
    "div true_divide divide reciprocal": "division",
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh "
    "erf erfc erfinv lgamma digamma polygamma igamma igammac i0 atan2 angle special_i0e special_i1 special_i1e "
    "special_ndtri special_log_ndtr special_erfcx special_airy_ai special_bessel_j0 special_bessel_j1 "
    "special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_zeta": "special",
    "floor_divide remainder fmod": "remainder",
    "hypot": Weights(4, 1),
    "logaddexp logaddexp2": Weights(6, 2, 2),
    "xlogy special_xlog1py special_entr": "xlogy",
    "sinc": Weights(4, 2, 1),
    "logit": Weights(3, 2),
    "logit_backward": Weights(3, 1),
    "ldexp": Weights(2, 1),
    # activations
    "sigmoid": "sigmoid",
    "silu": "silu",
    "leaky_relu _prelu_kernel": "leaky_relu",
    "hardtanh relu6": "bounds",
    "threshold": Weights(1, 0, 1),
    "softplus": "softplus",
    "celu": "elu",
    "selu": "selu",
    "mish": "mish",
    "hardswish": "hard_swish",
    "hardsigmoid": "hard_sigmoid",
    "hardshrink": Weights(2, 0, 2),
    "softshrink": Weights(3, 0, 2),
    "log_sigmoid_forward": Weights(5, 2, 1),
    "rrelu_with_noise rrelu_with_noise_functional": Weights(2, 0, 1),
    # gradients of activations
    "threshold_backward hardshrink_backward softshrink_backward": Weights(1, 0, 1),
    "hardtanh_backward": "bounds_gradient",
    "hardsigmoid_backward": "hard_sigmoid_gradient",
    "leaky_relu_backward rrelu_with_noise_backward": "leaky_relu_gradient",
    "sigmoid_backward tanh_backward": "sigmoid_gradient",
    "silu_backward": "silu_gradient",
    "mish_backward": "mish_gradient",
    "hardswish_backward": "hard_swish_gradient",
    "softplus_backward": "softplus_gradient",
    "elu_backward": "elu_gradient",
    "log_sigmoid_backward": Weights(6, 1, 1),
    "abs absolute": Weights(1, 0, 1, 4),
    "linalg_cross": Weights(3, 0, 0, 14),  # two products and a difference
    "glu": Weights(5, 2),  # the sigmoid of one half times the other
    "glu_jvp glu_backward_jvp": Weights(12, 2),
    "glu_backward": elementwise((9, 2), of="grad_output"),  # sigmoid 4, two products, sigmoid gradient 3
    "_prelu_kernel_backward": elementwise((3, 0, 1), of="self"),  # of input and weight
    "polar": elementwise((4, 2), kind=Kind.REAL),  # sine, cosine, two products
    "complex real imag": move("A complex number from its parts."),
})  # fmt: skip


@aten.each("gelu", "5 per output element, 9 in the tanh form")
def gelu(op: OpCall) -> Weights:
    """``x/2 (1 + erf(x/sqrt 2))``, or its tanh approximation (Hendrycks and Gimpel, 2016)."""
    return WEIGHTS["gelu_tanh" if op.arg("approximate", "none") == "tanh" else "gelu"]


@aten.each("gelu_backward", "11 per output element, 18 in the tanh form")
def gelu_backward(op: OpCall) -> Weights:
    """Gradient of GELU."""
    return WEIGHTS["gelu_tanh_gradient" if op.arg("approximate", "none") == "tanh" else "gelu_gradient"]


@aten.each("elu", "4 per output element, 5 if scaled (selu)")
def elu(op: OpCall) -> Weights:
    """``x`` or ``alpha (exp(x) - 1)``; selu is the same times a scale (Klambauer et al., 2017)."""
    return WEIGHTS["elu" if op.arg("scale", 1) == 1 else "selu"]


@aten.each("add sub rsub", "1 per output element, 2 with alpha != 1")
def add(op: OpCall) -> Weights:
    """Sum or difference; a factor alpha other than 1 multiplies first."""
    op.let(alpha=str(op.arg("alpha", 1)))
    return ARITHMETIC if op.arg("alpha", 1) == 1 else Weights(2, 0, 0, 4)


@aten.each("_add_relu", "1 add and 1 compared per output element")
def add_relu(op: OpCall) -> Weights:
    """Sum, then ReLU."""
    return Weights(2 if op.arg("alpha", 1) == 1 else 3, 0, 1)


@aten.each("mul multiply", "1 per output element (6 complex, 2 complex by real)")
def mul(op: OpCall) -> Weights:
    """Product."""
    factors = sum(dtype_kind(t.dtype) is Kind.COMPLEX for t in op.inputs) + isinstance(op.arg("other"), complex)
    return Weights(1, 0, 0, 6 if factors > 1 else 2)


@aten.each("addcmul addcdiv", "2 per output element, 3 with value != 1")
def addcmul(op: OpCall) -> Weights:
    """``self + value * tensor1 * tensor2``, or divided."""
    flops = 2 if op.arg("value", 1) == 1 else 3
    return Weights(flops, 1 if "div" in op.base else 0, 0, 8 if flops == 2 else 10)


@aten.each("lerp", "3 per output element")
def lerp(op: OpCall) -> Weights:
    """``self + weight * (end - self)``."""
    return Weights(3, 0, 0, 6 if isinstance(op.arg("weight"), (int, float)) else 10)


@aten.each("pow float_power", "multiplications by binary powering for integer exponent >= 2, else 1")
def power(op: OpCall) -> Weights:
    """Power; an integer exponent k costs floor(log2 k) squarings and a product per further one bit."""
    exponent = op.arg("exponent")
    op.let(exponent=str(exponent) if isinstance(exponent, (int, float)) else "tensor")
    if isinstance(exponent, (int, float)) and exponent >= 2 and float(exponent).is_integer():
        times = powering(int(exponent))
        return Weights(times, 0, 0, 6 * times)
    return WEIGHTS["division"]


def powering(k: int) -> int:
    """Multiplications that raise to the power k >= 1.

    >>> [powering(k) for k in (1, 2, 3, 4, 7, 8)]
    [0, 1, 2, 2, 4, 3]
    """
    return k.bit_length() - 1 + k.bit_count() - 1


@aten.each("clamp clip", "1 per bound and output element")
def clamp(op: OpCall) -> Weights:
    """Limited from below, above or both."""
    bounds = op.has("min") + op.has("max")
    return Weights(bounds, 0, bounds)


@aten.each("isclose", "6 per element", of="self")
@aten.each("equal allclose", "1 per element (allclose 6)", of="self", family="reduction")
def equal(op: OpCall) -> Weights:
    """Compare all elements and reduce to one boolean."""
    return COMPARISON if op.base == "equal" else Weights(6, 0, 2)


@aten.each("mvlgamma", "p special functions and p adds per output element")
def mvlgamma(op: OpCall) -> Weights:
    """Logarithm of the multivariate gamma function."""
    p = int(op.arg("p", 1))
    return Weights(2 * p, p)


INTEGER_OPS = (
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ "
    "__ilshift__ __irshift__ __and__ __or__ __xor__ gcd lcm logical_and logical_or logical_xor logical_not"
)
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
    "legendre_polynomial_p"
)


@aten(INTEGER_OPS, "1 integer op per output element")
def integer(op: OpCall) -> Cost:
    """Bitwise and logical work is integer work, whatever the operands; on floats it compares them."""
    if kind_of(op.inputs) is Kind.INTEGER:
        return Cost(int_ops=op.out.numel)
    return elements(op, op.out.numel, COMPARISON)


@aten("where masked_fill", "1 per output element (a selection)")
def where(op: OpCall) -> Cost:
    """One of two values, by a condition. Only the condition: the indices where it holds."""
    if len(op.arguments) == 1:
        return elements(op, op.tensor("condition").numel, COMPARISON)
    return elements(op, op.out.numel, COMPARISON, kind_of(op.outputs or op.mutated))


@aten(" ".join(f"special_{name}" for name in POLYNOMIALS.split()), "3 per degree and output element")
def polynomial(op: OpCall) -> Cost:
    """An orthogonal polynomial by its recurrence of three terms."""
    degree = op.arg("n")
    known = isinstance(degree, (int, float))
    cost = elements(op, op.out.numel, Weights(3 * max(1, int(degree)) if known else 3))
    return msgspec.structs.replace(
        cost, exact=False, reason="recurrence of 3 per degree" if known else "degree not known: counted as 1"
    )
