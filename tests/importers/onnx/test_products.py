"""Products cost what executing them on ones sums up to; attention and packed products what their definition says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tensortide
from tensortide.cost import count
from tests.importers.onnx.build import FLOAT, model, node, stored
from tests.importers.onnx.cases import CASES, Case, named

SUMS = {"MatMul", "Einsum", "Conv", "MatMulInteger", "ConvInteger"}
"""Ops whose result on ones, summed, is the number of multiply-accumulates, if nothing is padded."""
POINTWISE = {"ii", "ij->ji", "i,j,k->ijk"}


def is_a_sum(case: Case) -> bool:
    padded = case.attributes.get("auto_pad", "VALID") != "VALID" or "pads" in case.attributes
    return case.op in SUMS and not padded and case.attributes.get("equation") not in POINTWISE


def macs_of(made: Any) -> int:
    return count(tensortide.open(made).graph, strict=True).total.macs


@pytest.mark.parametrize("case", [case for case in CASES if is_a_sum(case)], ids=named)
def test_products_cost_what_ones_sum_up_to(case: Case) -> None:
    ones = replace(case, inputs=[None if x is None else np.ones_like(x) for x in case.inputs])
    results: Any = ReferenceEvaluator(ones.model()).run(None, ones.feeds)
    assert macs_of(ones.model()) == int(np.asarray(results[0], dtype=np.float64).sum())


@pytest.mark.parametrize("equation", sorted(POINTWISE))
def test_a_sum_of_products_that_contracts_nothing_has_none(equation: str) -> None:
    (case,) = (case for case in CASES if case.attributes.get("equation") == equation)
    assert macs_of(case.model()) == 0


def test_padding_taps_count() -> None:
    made = node("Conv", "x w", "y", pads=[1, 1, 1, 1])
    padded = model([made], {"x": (FLOAT, [1, 2, 4, 4])}, "y", [stored("w", FLOAT, [3, 2, 3, 3], 1.0)])
    assert macs_of(padded) == 4 * 4 * 3 * 2 * 3 * 3


def test_a_transposed_convolution_counts_its_input() -> None:
    made = node("ConvTranspose", "x w", "y", strides=[2, 2], group=2)
    weight = stored("w", FLOAT, [4, 3, 3, 3], 1.0)
    assert macs_of(model([made], {"x": (FLOAT, [1, 4, 5, 5])}, "y", [weight])) == 4 * 5 * 5 * 3 * 3 * 3


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "macs"),
    [
        ("FusedMatMul", [(2, 4, 3), (2, 5, 4)], {"transA": 1, "transB": 1}, 2 * 3 * 4 * 5),
        ("Attention", [(2, 5, 8), (8, 24), (24,)], {"num_heads": 2}, 2 * 5 * 8 * 24 + 2 * 2 * 5 * 5 * (4 + 4)),
        ("MultiHeadAttention", [(2, 5, 8), (2, 7, 8), (2, 7, 8)], {"num_heads": 2}, 2 * 2 * 5 * 7 * (4 + 4)),
        ("SkipLayerNormalization", [(2, 3, 8), (2, 3, 8), (8,)], {}, 0),
    ],
)
def test_ops_of_onnxruntime(kind: str, shapes: list[tuple[int, ...]], attributes: dict[str, Any], macs: int) -> None:
    names = [f"i{place}" for place in range(len(shapes))]
    made = node(kind, " ".join(names), "y", domain="com.microsoft", **attributes)
    assert macs_of(model([made], {name: (FLOAT, s) for name, s in zip(names, shapes, strict=True)}, "y")) == macs


def test_attention_is_dense_and_a_causal_mask_leaves_fewer_pairs_active() -> None:
    ports = {"q": (FLOAT, [2, 4, 5, 8]), "k": (FLOAT, [2, 2, 7, 8]), "v": (FLOAT, [2, 2, 7, 6])}
    made = [node("Attention", "q k v", "y", is_causal=1)]
    total = count(tensortide.open(model(made, ports, "y", opset=23)).graph, strict=True).total
    assert total.macs == 2 * 4 * 5 * 7 * (8 + 6)
    assert total.cost.active_macs == 2 * 4 * sum(range(1, 6)) * (8 + 6)


def test_a_chain_of_three_is_contracted_left_to_right() -> None:
    made = [node("Einsum", "a b c", "y", equation="ij,jk,kl->il")]
    ports = {"a": (FLOAT, (2, 3)), "b": (FLOAT, [3, 4]), "c": (FLOAT, [4, 5])}
    assert macs_of(model(made, ports, "y")) == 2 * 3 * 4 + 2 * 4 * 5
