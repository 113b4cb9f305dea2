"""Counts of ops that onnx itself defines by others, against those of the bodies that define them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import defs

from tensortide.cost import Cost, count
from tensortide.importers.onnx import convert
from tensortide.importers.onnx.read import NEWEST, model_of
from tensortide.importers.onnx.value import Settings
from tests.importers.onnx.cases import Array, Case, f, i


def case(op: str, *inputs: Array, outputs: int = 1, stored: tuple[int, ...] = (), **attributes: Any) -> Case:
    return Case(op, inputs, outputs, NEWEST, stored, "", attributes)


LENGTH = np.array(10)
ALIKE = [
    case("Bernoulli", f(2, 3)),
    case("CausalConvWithState", f(2, 3, 6), f(3, 1, 4)),
    case("DepthToSpace", f(2, 8, 3, 5), blocksize=2),
    case("HardSwish", f(2, 3)),
    case("LogSoftmax", f(2, 5)),
    case("Mish", f(2, 3)),
    case("NegativeLogLikelihoodLoss", f(3, 5), i(1, 2, 0), reduction="none"),
    case("ReduceL2", f(2, 3)),
    case("ReduceLogSum", f(2, 3)),
    case("ReduceSumSquare", f(2, 3)),
    case("Relu", f(2, 3)),
    case("RotaryEmbedding", f(2, 3, 4, 8), f(2, 4, 4), f(2, 4, 4)),
    case("Softmax", f(2, 5)),
    case("SoftmaxCrossEntropyLoss", f(3, 5), i(1, 2, 0)),  # its body makes no logarithms that nobody takes
    case("Softsign", f(2, 3)),
    case("SpaceToDepth", f(2, 2, 6, 4), blocksize=2),
]
"""Ops whose FLOPs, special functions and comparisons are those of their bodies. Their bytes are not: what passes from
one op of a body to the next is moved, and here it is not. So each keeps a rule of its own."""

BY_CASES = "the body compares twice, or writes both cases and selects; an op takes one"
SCALED = "the body multiplies by factors that are computed once, or by 1"
STATISTICS = "the body divides rows element by element; here by one reciprocal or root a row"
DIFFERENT = {
    "AffineGrid": "the body computes both ranks of images, and the grid itself",
    "Attention": "the body scales query and key each, and adds a bias of zeros",
    "BlackmanWindow": "the body computes both cosines for every window",
    "CastLike": "a Cast, which is priced alike: to be tested below",
    "Celu": SCALED,
    "CenterCropPad": "the body computes with sizes, which are no work here",
    "Clip": BY_CASES,
    "DynamicQuantizeLinear": "the body computes with the scale, a number, too",
    "Elu": BY_CASES,
    "Gelu": SCALED,
    "GreaterOrEqual": BY_CASES,
    "GroupNormalization": STATISTICS,
    "HammingWindow": "the body computes both cosines for every window",
    "HannWindow": "the body computes both cosines for every window",
    "HardSigmoid": "a division is a special function, and the body multiplies",
    "LayerNormalization": STATISTICS,
    "LeakyRelu": BY_CASES,
    "LessOrEqual": BY_CASES,
    "LinearAttention": "the body computes the parallel form, in chunks; here the recurrent one",
    "MeanVarianceNormalization": STATISTICS,
    "PRelu": BY_CASES,
    "RMSNormalization": STATISTICS,
    "Range": "the body is a loop that adds; here nothing is computed of an index",
    "ReduceL1": "an absolute value and an addition are one operation each; the body compares as well",
    "ReduceLogSumExp": "the body does not subtract the maximum, which a kernel does",
    "Selu": BY_CASES,
    "SequenceMap": "a loop over the items, which is converted as one",
    "Shrink": BY_CASES,
    "Softplus": "the body has no threshold, which a kernel has",
    "SwiGLU": "the body is the op itself",
    "Swish": SCALED,
    "ThresholdedRelu": BY_CASES,
}
"""Ops whose counts differ from those of their bodies, and the reasons."""


def of(one: Case, monkeypatch: pytest.MonkeyPatch, *, body: bool) -> Cost:
    """The cost of a node as an op, or as its body."""
    monkeypatch.setattr(convert, "needs_body", lambda call: body and call.node.name == "n")
    return count(convert.Conversion(model_of(one.model(), "m"), Settings({}), trained=True).graph("m")).total.cost


def test_every_op_with_a_body_agrees_with_it_or_has_a_reason() -> None:
    found = {schema.name for schema in defs.get_all_schemas() if not schema.domain and not schema.deprecated}
    newest: dict[str, Any] = {name: defs.get_schema(name, NEWEST, "") for name in found}
    defined = {name for name, one in newest.items() if one.has_function or one.has_context_dependent_function}
    assert sorted([*DIFFERENT, *(one.op for one in ALIKE)]) == sorted(defined)


@pytest.mark.parametrize("one", ALIKE, ids=[one.op for one in ALIKE])
def test_an_op_counts_as_the_body_that_defines_it(one: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, body = (of(one, monkeypatch, body=flag) for flag in (False, True))
    for name in ("macs", "flops", "transcendentals", "comparisons", "random_draws"):
        assert getattr(ours, name) == getattr(body, name), name
    assert ours.bytes < body.bytes


def test_what_only_says_a_type_or_is_not_picked_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    cast = case("CastLike", f(2, 3), i(1, 2))
    assert of(cast, monkeypatch, body=False) == of(cast, monkeypatch, body=True)
    loss = of(case("NegativeLogLikelihoodLoss", f(3, 5), i(1, 2, 0), reduction="none"), monkeypatch, body=False)
    assert (loss.read_bytes, loss.written_bytes) == (3 * 4 + 3 * 8, 3 * 4)


def test_windows_count_as_those_of_pytorch() -> None:
    def flops(op: str, of: tuple[int, ...] = (0,)) -> int:
        graph = convert.Conversion(model_of(case(op, LENGTH, stored=of).model(), "m"), Settings({})).graph("m")
        return int(count(graph).total.cost.flops)

    assert [flops(f"{name}Window") for name in ("Hann", "Hamming", "Blackman")] == [40, 40, 100]
