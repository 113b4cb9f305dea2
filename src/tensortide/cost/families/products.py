"""Families of products: contractions, convolutions, recurrent layers, linear algebra, Fourier transforms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from tensortide.cost.access import BytesRule, interface, sum_with
from tensortide.cost.families.table import family
from tensortide.cost.kinds import Kind, chosen, dtype_kind, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Rule
from tensortide.errors import TensortideError
from tensortide.graph.model import Tensor


def product(op: OpCall, macs: int, elementwise: int = 0) -> Cost:
    """``macs`` of the kind of the op's operands: a complex multiply-accumulate is 4 real ones, with a real 2."""
    kinds = [dtype_kind(t.dtype) for t in op.inputs]
    if Kind.COMPLEX in kinds:
        return Cost(macs=(4 if kinds.count(Kind.COMPLEX) > 1 else 2) * macs, elementwise_flops=2 * elementwise)
    if kind_of([*op.inputs, *op.outputs]) is Kind.INTEGER:
        return Cost(macs=macs, int_ops=elementwise)
    return Cost(macs=macs, elementwise_flops=elementwise)


def lengths(letters: str, shape: Sequence[int]) -> dict[str, list[int]] | None:
    """Sizes of the dimensions that each letter names. ``*`` stands for any dimensions in between; None: the rank is
    another.

    >>> lengths("O*I", (8, 3, 3, 4))
    {'O': [8], '*': [3, 3], 'I': [4]}
    """
    before, star, after = letters.partition("*")
    middle = len(shape) - len(before) - len(after)
    if middle < 0 or (middle and not star):
        return None
    found: dict[str, list[int]] = {}
    for letter, n in zip(before + "*" * middle + after, shape, strict=True):
        found.setdefault(letter, []).append(n)
    return found


def _sides(letters: str, needed: str) -> list[str]:
    """Separate the letters of operands. Raises TensortideError where one other than ``*`` lacks the one ``needed``."""
    sides = letters.split(",")
    if needed not in letters or not all(re.fullmatch(r"\w*\*?\w*", s) and (s == "*" or needed in s) for s in sides):
        raise TensortideError(
            f"letters: {letters!r} does not say which dimension is {needed}: give a letter for each dimension of an "
            f"operand, {needed} among them, and * once for any others, such as {'*k,kn' if needed == 'k' else 'O*I'}."
        )
    return sides


@family("contraction")
def contraction(
    letters: str, operands: str = "0 1", *, bias: str = "", turned: str = "", scaled: int = 0, term: bool = False
) -> Rule:
    """A product of two operands. ``letters`` name their dimensions (``*``: any); ``k`` is contracted, and ``n`` is the
    last of the result, where it is named.

    ``turned``: an attribute that swaps the last two dimensions of the first. ``scaled``: further operations on every
    element of the result. ``term``: the product times ``alpha`` is added to a term times ``beta``.
    """
    sides = list(zip(operands.split(), _sides(letters, "k"), strict=False))
    named = len(sides) > 1 and not turned and not set("*_") & set(letters)
    result = "".join(dict.fromkeys(letters.replace(",", "").replace("k", ""))) if named else ""

    def work(op: OpCall) -> Cost | None:
        """Every element of the result is a sum of k products; of a sparse operand only stored elements are met."""
        sizes: dict[str, list[int]] = {}
        for number, (which, dims) in enumerate(sides):
            shape = op.operand(which).shape
            if not number and turned and op.arg(turned, False) and len(shape) > 1:
                shape = (*shape[:-2], shape[-1], shape[-2])
            found = lengths(dims, shape)
            if found is None:
                return None
            sizes = {**found, **sizes}
            if named and found["k"] != sizes["k"]:
                return None
        if "n" in sizes and op.out.shape[-1:] != tuple(sizes["n"]):
            return None
        k, count = math.prod(sizes["k"]), op.out.numel
        op.let(**({letter: sizes[letter][0] for letter in result} if named else {"E": count}), k=k)
        product_left = not term or op.arg("alpha", 1) != 0
        macs = _stored(op, [which for which, _ in sides], count * k * product_left)
        return None if macs is None else with_bias(op, macs, bias, scaled, added(op, count) if term else 0)

    each = " ".join(result) if named else "E"
    formula = f"{each} k MACs".lstrip() + _more(bias, scaled)
    formula += f" + {each} add (+ {each} per factor alpha, beta)" * term
    dims = (*sides, ("out", result)) if named else ()
    return Rule("", formula, work, sum_with(*operands.split()) if term else interface, dims=dims)


def _stored(op: OpCall, operands: Sequence[str], macs: int) -> int | None:
    """Count the multiply-accumulates that the stored elements of a sparse operand leave of all ``macs``; None for two
    such operands."""
    if not op.sparse:
        return macs
    sparse = [which for which in operands if which in op.sparse]
    if len(sparse) != 1:
        return None
    stored = op.stored(sparse[0])
    op.let(nnz="unknown" if stored is None else stored)
    return None if stored is None else macs // max(1, op.tensor(sparse[0]).numel) * stored


def added(op: OpCall, count: int) -> int:
    """Elementwise work of ``beta * self + alpha * product`` on ``count`` elements."""
    alpha, beta = op.arg("alpha", 1), op.arg("beta", 1)
    return count * (int(alpha not in (0, 1)) + int(beta not in (0, 1)) + int(0 not in (alpha, beta)))


def with_bias(op: OpCall, macs: int, bias: str, scaled: int = 0, more: int = 0) -> Cost:
    """A product, a bias of every element of the result, if it is given under one of its names, ``scaled`` more of each
    and ``more`` in all."""
    return product(op, macs, op.out.numel * (scaled + any(map(op.has, bias.split()))) + more)


def _more(bias: str, scaled: int) -> str:
    return (f" + {scaled} E" if scaled else "") + " + E of a bias" * bool(bias)


@family("convolution")
def convolution(
    letters: str,
    *,
    kernel: str = "kernel",
    of: str = "out",
    bias: str = "bias",
    transposed: bool = False,
    image: str = "",
    scaled: int = 0,
    bytes: BytesRule = interface,
) -> Rule:
    """Every element of ``of``, the result or its gradient, meets the taps of its channel, those on padding included.

    ``letters`` name the dimensions of the kernel: ``O`` channels of the result, ``I`` of a group of the input, ``*``
    the window. A transposed one visits the input. ``image``: the input, channels last, whose sizes must fit.
    """
    own = "I" if transposed else "O"
    _sides(letters, own)

    def work(op: OpCall) -> Cost | None:
        """Each site meets the whole kernel once, taps on padding included."""
        filters, visited = op.operand(kernel), op.operand(of)
        sizes = lengths(letters, filters.shape)
        if sizes is None or (image and not _fits(op.operand(image), op.out, filters, sizes, transposed)):
            return None
        taps = math.prod(n for letter, found in sizes.items() if letter != own for n in found)
        op.let(E=visited.numel, taps=taps)
        return with_bias(op, visited.numel * taps, bias, scaled)

    what = "as the convolution" if of not in ("out", "x", "input", "0") else ""
    plain = "N I Cin (Cout/g) K MACs" if transposed else "N O Cout (Cin/g) K MACs"
    return Rule(
        "", (what or plain) + " + N O Cout of the bias" * bool(bias), work, bytes, f"The kernel is ({letters})."
    )


def _fits(image: Tensor, out: Tensor, kernel: Tensor, sizes: dict[str, list[int]], transposed: bool) -> bool:
    """Tell whether a kernel is one for images and results whose channels are the last dimension."""
    if not kernel.shape or len(kernel.shape) != len(image.shape):
        return False
    inner = sizes.get("I", [1])[0]
    if transposed:
        return image.shape[-1] == inner
    return bool(inner) and image.shape[-1] % inner == 0 and out.shape[-1] == sizes["O"][-1]


@family("recurrent")
def recurrent(matrices: str, per_unit: int, *, bias: str = "", bare: int = 0) -> Rule:
    """A recurrent layer: every step of every sample meets all ``matrices`` once, and each unit does ``per_unit``
    operations, ``bare`` without a bias."""

    def work(op: OpCall) -> Cost:
        """Each step meets all its matrices once."""
        steps = math.prod(op.inputs[0].shape[:-1])
        each = bare if bias and not op.has(bias) else per_unit
        units = steps * op.out.shape[-1]
        return product(op, steps * sum(op.tensor(name).numel for name in matrices.split()), each * units)

    return Rule(
        "", f"T B (weights) MACs, + {per_unit} per unit and step" + f" ({bare} without bias)" * bool(bare), work
    )


DECOMPOSITIONS: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "cholesky": ("n^3 / 6", lambda s, _: s**3 // 6),
    "inverse": ("n^3", lambda s, _: s**3),
    "inverse_of_factor": ("n^3 / 3", lambda s, _: s**3 // 3),
    "determinant": ("n^3 / 3", lambda s, _: s**3 // 3),
    "lu": ("s^2 (l - s/3) / 2, s the smaller side: n^3 / 3 if square", lambda s, large: s * s * (3 * large - s) // 6),
    "ldl": ("n^3 / 6", lambda s, _: s**3 // 6),
    "qr": ("s^2 (l - s/3), s the smaller side", lambda s, large: s * s * (3 * large - s) // 3),
}
"""Leading terms by the smaller and the larger side of a matrix."""


@family("decomposition")
def decomposition(what: str) -> Rule:
    """Linear algebra on the matrices of the first operand."""
    formula, leading = chosen("what", what, DECOMPOSITIONS)

    def work(op: OpCall) -> Cost:
        """Leading term of the algorithm, rounded down (Golub and Van Loan, Matrix Computations)."""
        *batch, m, n = op.inputs[0].shape
        op.let(m=m, n=n, batch=math.prod(batch))
        return product(op, math.prod(batch) * leading(*sorted((m, n)))) + Cost(exact=False, reason="leading term")

    return Rule("", formula + " MACs", work)


@family("decomposition")
def substitution(right: str) -> Rule:
    """A triangular system of the first operand solved for the columns of ``right``."""

    def work(op: OpCall) -> Cost:
        """Back substitution for r right-hand sides."""
        *batch, _, n = op.inputs[0].shape
        r = op.operand(right).numel // max(1, n * math.prod(batch))
        op.let(n=n, r=r)
        return product(op, math.prod(batch) * (n * n * r // 2)) + Cost(exact=False, reason="leading term")

    return Rule("", "n^2 r / 2 MACs", work)


CONVENTION = "FFT by convention: 5 n log2 n"


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


@family("fourier")
def fourier(axes: int, *, real: bool = False, of: str = "0") -> Rule:
    """Fourier transforms over the last ``axes`` dimensions of ``of``; ``real``: from or to real numbers."""

    def work(op: OpCall) -> Cost:
        """Fast Fourier transform."""
        full = op.operand(of)
        n = math.prod(full.shape[-axes:])
        op.let(n=n)
        flops = full.numel // max(n, 1) * transform(int(n), real)
        return Cost(elementwise_flops=flops, exact=False, reason=CONVENTION)

    return Rule("", f"ceil({2.5 if real else 5} n log2 n) per transform", work)
