"""Weights of less than a byte, packed into tensors of bytes: parameters are elements, sizes are bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tensortide import capture, count
from tensortide.cost import rule
from tensortide.cost.registry import forget
from tensortide.graph import GraphBuilder

N, K = 32, 64


def sizes_of(op: str, shape: tuple[int, ...], name: str, **attributes: Any) -> tuple[int, int]:
    """Parameters and their bytes of a graph of one product."""
    b = GraphBuilder("packed")
    x, weight = b.input("x", (2, K)), b.parameter("w", shape, "uint8")
    b.output(b.op(op, x, weight, out=(2, N), names=("x", name), arguments=attributes))
    found = count(b.build()).sizes
    return found.parameters, found.parameter_bytes


@pytest.mark.parametrize(("bits", "held"), [(2, 4), (4, 2), (8, 1)])
def test_elements_are_counted_by_the_bits_that_an_op_states(bits: int, held: int) -> None:
    op = "com.microsoft::MatMulNBits"
    assert sizes_of(op, (N, 2, K // 2 // held), "B", N=N, K=K, bits=bits) == (N * K, N * K // held)


def test_elements_are_counted_by_the_bits_of_a_rule() -> None:
    assert sizes_of("bitsandbytes.gemv_4bit", (N * K // 2, 1), "B") == (N * K, N * K // 2)
    assert sizes_of("bitsandbytes.dequantize_4bit", (N * K // 2, 1), "A") == (N * K, N * K // 2)
    assert sizes_of("aten.mul.Tensor", (N, K), "other") == (N * K, N * K)

    @rule("mylib::three", formula="none", packs="w 3")
    def three(op: Any) -> None:
        del op

    try:
        assert sizes_of("mylib.three", (96,), "w") == (256, 96)
    finally:
        forget(["mylib::three"])


def test_a_layer_that_captured_packs_its_weight_has_all_its_elements() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(N, K // 2, dtype=torch.uint8), requires_grad=False)
            self.register_buffer("scales", torch.ones(K // 32, N, 2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, self.weight, 32, self.scales)
            return result

    def workload() -> Any:
        layer, x = Layer(), torch.ones(2, K)
        return lambda: layer(x)

    sizes = count(capture(workload, real=False)).sizes
    assert (sizes.parameters, sizes.parameter_bytes) == (N * K, N * K // 2)
