"""Element work: arithmetic, comparisons and special functions. Counting convention: docs/cost.md, pointwise.

In-place, out-of-place, ``out=``, scalar and ``_foreach_`` forms of an op share its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tensortide.cost.kinds import Kind, Weights, elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule

Work: TypeAlias = Callable[[OpCall], Cost]

ARITHMETIC = Weights(1, 0, 0, 2)
COMPARISON = Weights(1, 0, 1, 2)
DIVISION = Weights(1, 1, 0, 11)
SPECIAL = Weights(1, 1)

TABLE: dict[str, Weights] = {
    "neg negative conj_physical _conj_physical deg2rad rad2deg": ARITHMETIC,
    "maximum minimum fmax fmin clamp_max clamp_min sign sgn relu isnan isinf isposinf isneginf isfinite "
    "eq ne lt le gt ge signbit copysign heaviside nextafter nan_to_num "
    "ceil floor round trunc frac frexp": COMPARISON,
    "div true_divide divide reciprocal": DIVISION,
    "sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh tanh "
    "erf erfc erfinv lgamma digamma polygamma igamma igammac i0 atan2 angle special_i0e special_i1 special_i1e "
    "special_ndtri special_log_ndtr special_erfcx special_airy_ai special_bessel_j0 special_bessel_j1 "
    "special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_zeta": SPECIAL,
    "floor_divide remainder fmod": Weights(2, 1, 1),
    "hypot": Weights(4, 1),
    "logaddexp logaddexp2": Weights(6, 2, 2),
    "xlogy special_xlog1py special_entr": Weights(3, 1, 1),
    "sinc": Weights(4, 2, 1),
    "logit": Weights(3, 2),
    "logit_backward": Weights(3, 1),
    "ldexp": Weights(2, 1),
}
"""FLOPs per output element, of which special functions and comparisons."""

INTEGER_OPS = (
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ "
    "__ilshift__ __irshift__ __and__ __or__ __xor__ gcd lcm logical_and logical_or logical_xor logical_not"
)


def simple(weights: Weights) -> Work:
    """The rule that charges ``weights`` for every output element."""

    def per_element(op: OpCall) -> Cost:
        op.let(E=op.out.numel)
        return elements(op, op.out.numel, weights)

    return per_element


def describe(weights: Weights) -> str:
    """Formula text of ``weights``."""
    parts = [f"{weights.transcendentals} special" * bool(weights.transcendentals)]
    parts += [f"{weights.comparisons} compared" * bool(weights.comparisons)]
    detail = ", ".join(part for part in parts if part)
    return f"{weights.flops} per output element" + (f" ({detail})" if detail else "")


def register(table: dict[str, Weights]) -> None:
    """Give every op that ``table`` names (several to a key) the rule of its weights."""
    for names, weights in table.items():
        rule(*(f"aten::{name}" for name in names.split()), formula=describe(weights))(simple(weights))


register(TABLE)


@rule(*(f"aten::{name}" for name in INTEGER_OPS.split()), formula="1 integer op per output element")
def integer(op: OpCall) -> Cost:
    """Bitwise and logical work is integer work, whatever the operands; on floats it compares them."""
    if kind_of(op.inputs) is Kind.INTEGER:
        return Cost(int_ops=op.out.numel)
    return elements(op, op.out.numel, COMPARISON)


@rule("aten::add", "aten::sub", "aten::rsub", formula="1 per output element, 2 with alpha != 1")
def add(op: OpCall) -> Cost:
    """Sum or difference; a factor alpha other than 1 multiplies first."""
    op.let(E=op.out.numel, alpha=str(op.arg("alpha", 1)))
    return elements(op, op.out.numel, ARITHMETIC if op.arg("alpha", 1) == 1 else Weights(2, 0, 0, 4))


@rule("aten::_add_relu", formula="1 add and 1 compared per output element")
def add_relu(op: OpCall) -> Cost:
    """Sum, then ReLU."""
    return elements(op, op.out.numel, Weights(2 if op.arg("alpha", 1) == 1 else 3, 0, 1))


@rule("aten::mul", "aten::multiply", formula="1 per output element (6 complex, 2 complex by real)")
def mul(op: OpCall) -> Cost:
    """Product."""
    count = op.out.numel
    op.let(E=count)
    other = op.arg("other")
    factors = sum(t.dtype.startswith("complex") for t in op.inputs) + isinstance(other, complex)
    return elements(op, count, Weights(1, 0, 0, 6 if factors > 1 else 2))


@rule("aten::addcmul", "aten::addcdiv", formula="2 per output element, 3 with value != 1")
def addcmul(op: OpCall) -> Cost:
    """``self + value * tensor1 * tensor2``, or divided."""
    flops = 2 if op.arg("value", 1) == 1 else 3
    return elements(op, op.out.numel, Weights(flops, 1 if "div" in op.base else 0, 0, 8 if flops == 2 else 10))


@rule("aten::lerp", formula="3 per output element")
def lerp(op: OpCall) -> Cost:
    """``self + weight * (end - self)``."""
    return elements(op, op.out.numel, Weights(3, 0, 0, 6 if isinstance(op.arg("weight"), (int, float)) else 10))


@rule("aten::pow", "aten::float_power", formula="multiplications by binary powering for integer exponent >= 2, else 1")
def power(op: OpCall) -> Cost:
    """Power; an integer exponent k costs floor(log2 k) squarings and a product per further one bit."""
    exponent = op.arg("exponent")
    op.let(E=op.out.numel, exponent=str(exponent) if isinstance(exponent, (int, float)) else "tensor")
    if isinstance(exponent, (int, float)) and exponent >= 2 and float(exponent).is_integer():
        times = powering(int(exponent))
        return elements(op, op.out.numel, Weights(times, 0, 0, 6 * times))
    return elements(op, op.out.numel, Weights(1, 1, 0, 11))


def powering(k: int) -> int:
    """Multiplications that raise to the power k >= 1.

    >>> [powering(k) for k in (1, 2, 3, 4, 7, 8)]
    [0, 1, 2, 2, 4, 3]
    """
    return k.bit_length() - 1 + k.bit_count() - 1


@rule("aten::clamp", "aten::clip", formula="1 per bound and output element")
def clamp(op: OpCall) -> Cost:
    """Limited from below, above or both."""
    bounds = op.has("min") + op.has("max")
    return elements(op, op.out.numel, Weights(bounds, 0, bounds))


@rule("aten::where", "aten::masked_fill", formula="1 per output element (a selection)")
def where(op: OpCall) -> Cost:
    """One of two values, by a condition. Only the condition: the indices where it holds."""
    if len(op.arguments) == 1:
        return elements(op, op.tensor("condition").numel, COMPARISON)
    return elements(op, op.out.numel, COMPARISON, kind_of(op.outputs or op.mutated))


@rule("aten::abs", "aten::absolute", formula="1 per output element, 4 complex")
def absolute(op: OpCall) -> Cost:
    """Magnitude."""
    return elements(op, op.out.numel, Weights(1, 0, 1, 4))


@rule("aten::equal", "aten::allclose", "aten::isclose", formula="1 per element (allclose 6)")
def equal(op: OpCall) -> Cost:
    """Compare all elements and reduce to one boolean."""
    count = op.tensor("self").numel
    return elements(op, count, COMPARISON if op.base == "equal" else Weights(6, 0, 2))


@rule("aten::mvlgamma", formula="p special functions and p adds per output element")
def mvlgamma(op: OpCall) -> Cost:
    """Logarithm of the multivariate gamma function."""
    p = int(op.arg("p", 1))
    return elements(op, op.out.numel, Weights(2 * p, p))


@rule("aten::complex", "aten::real", "aten::imag", formula="a copy")
def assemble(op: OpCall) -> Cost:
    """A complex number from its parts."""
    del op
    return Cost()


@rule("aten::polar", formula="4 per output element (sine, cosine, two products)")
def polar(op: OpCall) -> Cost:
    """A complex number from magnitude and angle."""
    count = op.out.numel
    return Cost(elementwise_flops=4 * count, transcendentals=2 * count)


@rule("aten::linalg_cross", formula="3 per output element")
def cross(op: OpCall) -> Cost:
    """Cross product: two products and a difference."""
    return elements(op, op.out.numel, Weights(3, 0, 0, 14))


POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
    "legendre_polynomial_p"
)


@rule(*(f"aten::special_{name}" for name in POLYNOMIALS.split()), formula="3 per degree and output element")
def polynomial(op: OpCall) -> Cost:
    """An orthogonal polynomial by its recurrence of three terms."""
    degree = op.arg("n")
    known = isinstance(degree, (int, float))
    cost = elements(op, op.out.numel, Weights(3 * max(1, int(degree)) if known else 3))
    return Cost(
        elementwise_flops=cost.elementwise_flops,
        int_ops=cost.int_ops,
        exact=False,
        reason="recurrence of 3 per degree" if known else "degree not known: counted as 1",
    )
