"""Quantized, fused and sparse forms of products against the plain ones, and what a sparse operand stores."""

from __future__ import annotations

import pytest
import torch

from tensortide.cost import count
from tensortide.cost.evaluate import evaluate
from tensortide.graph import TENSOR, Call
from tensortide.graph.model import Value
from tests.cost.probe import cost_of, cost_of_call, graph_of, recorded, single, tensor

X, WEIGHT, OUT = tensor(2, 4, 9), tensor(6, 2, 3), tensor(2, 6, 7)
PLAIN = 2 * 7 * 6 * 2 * 3
"""MACs of a convolution of X by WEIGHT in two groups."""


def test_convolutions_cost_what_the_plain_one_costs() -> None:
    plain = {"input": X, "weight": WEIGHT, "bias": tensor(6), "transposed": False, "groups": 2}
    assert cost_of_call("aten.convolution.default", plain, OUT).macs == PLAIN
    quantized = cost_of_call("onednn.qconv1d_pointwise.default", {"qx": X, "qw": WEIGHT, "bias": tensor(6)}, OUT)
    assert quantized.macs == PLAIN
    fused = {"X": X, "W": WEIGHT, "B": tensor(6), "attr": "relu"}
    mkldnn = cost_of_call("mkldnn._convolution_pointwise.default", fused, OUT)
    assert (mkldnn.macs, mkldnn.elementwise_flops) == (PLAIN, 2 * OUT.numel)
    visible = {"qx": X, "weight": WEIGHT}
    relu = cost_of_call("quantized.conv1d_relu.default", visible, OUT)
    assert (relu.macs, relu.elementwise_flops) == (PLAIN, 2 * OUT.numel)
    assert single("quantized.conv1d.default", {"qx": X, "weight": 3}, OUT).cost is None


def test_quantization_as_ops_of_its_own_costs_what_it_does_in_one() -> None:
    x = tensor(3, 5)
    quantized = cost_of_call(
        "quantized_decomposed.quantize_per_tensor.default", {"input": x}, tensor(3, 5, dtype="int8")
    )
    whole = cost_of_call("aten.quantize_per_tensor.default", {"self": x}, tensor(3, 5, dtype="qint8"))
    assert quantized == whole
    back = cost_of_call("quantized_decomposed.dequantize_per_channel.default", {"input": x}, x)
    assert back.elementwise_flops == 2 * 15


@pytest.mark.parametrize(("options", "extra"), [({}, 0), ({"bias": tensor(8)}, 1), ({"activation": "relu"}, 1)])
def test_half_of_a_linear_layer_with_structured_sparsity_is_active(options: dict[str, object], extra: int) -> None:
    call = {"input": tensor(5, 16), "weight": tensor(8, 8)} | options
    cost = cost_of_call("aten._sparse_semi_structured_linear.default", call, tensor(5, 8))
    assert (cost.macs, cost.active_macs, cost.elementwise_flops) == (640, 320, 40 * extra)


@pytest.mark.parametrize("stored", [1, 3, 16])
def test_a_sampled_product_costs_what_the_matrix_stores(stored: int) -> None:
    given: tuple[tuple[str, Value], ...] = (
        *((n, TENSOR) for n in ("self", "mat1", "mat2")),
        ("self.stored", (stored, stored * 20)),
    )
    call = Call("aten.sparse_sampled_addmm.default", given, 3)
    cost = evaluate(graph_of((call, [tensor(4, 4), tensor(4, 6), tensor(6, 4)], [tensor(4, 4)]))[0]).cost
    assert cost is not None
    assert (cost.macs, cost.elementwise_flops) == (stored * 6, stored)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_compressed_matrix_tells_what_it_stores() -> None:
    where, left, right = torch.eye(4).to_sparse_csr(), torch.randn(4, 6), torch.randn(6, 4)
    assert cost_of(lambda: torch.sparse.sampled_addmm(where, left, right)).macs == 4 * 6


def test_one_expanded_number_is_not_sparse() -> None:
    ones, right = torch.ones(20)[:1].expand(4, 4), torch.randn(4, 6)  # in memory for four entries of a sparse one
    assert count(recorded(lambda: ones @ right)).total.macs == 4 * 4 * 6
