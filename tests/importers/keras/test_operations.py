"""Operations of Keras cost what the same work costs in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.cost.probe import cost_of, cost_of_call, tensor

SQUARE = torch.eye(5) + torch.zeros(3, 5, 5)
ROWS = torch.randn(4, 6)
ALIKE: dict[str, tuple[Callable[[], Any], dict[str, Any], tuple[int, ...]]] = {
    "Logsumexp": (lambda: torch.logsumexp(ROWS, 1), {"x0": (4, 6)}, (4,)),
    "Std": (lambda: torch.std(ROWS, 1), {"x0": (4, 6)}, (4,)),
    "Var": (lambda: torch.var(ROWS, 1), {"x0": (4, 6)}, (4,)),
    "Norm": (lambda: torch.linalg.vector_norm(ROWS, dim=1), {"x0": (4, 6)}, (4,)),
    "Amax": (lambda: torch.amax(ROWS, 1), {"x0": (4, 6)}, (4,)),
    "Trace": (lambda: torch.trace(ROWS), {"x0": (4, 6), "offset": 0, "axis1": 0, "axis2": 1}, ()),
    "Sort": (lambda: torch.sort(ROWS), {"x0": (4, 6)}, (4, 6)),
    "TopK": (lambda: torch.topk(ROWS, 3), {"x0": (4, 6), "k": 3}, (4, 3)),
    "Glu": (lambda: torch.nn.functional.glu(ROWS), {"x0": (4, 6)}, (4, 3)),
    "LogSigmoid": (lambda: torch.nn.functional.logsigmoid(ROWS), {"x0": (4, 6)}, (4, 6)),
    "SoftShrink": (lambda: torch.nn.functional.softshrink(ROWS), {"x0": (4, 6)}, (4, 6)),
    "Einsum": (lambda: torch.einsum("ij,kj->ik", ROWS, ROWS), {"x0": (4, 6), "x1": (4, 6), "subscripts": "ij,kj->ik"},
               (4, 4)),
    "Inner": (lambda: ROWS @ ROWS.T, {"x0": (4, 6), "x1": (4, 6)}, (4, 4)),
    "Vdot": (lambda: torch.dot(ROWS[0], ROWS[1]), {"x0": (6,), "x1": (6,)}, ()),
    "Tensordot": (lambda: torch.tensordot(SQUARE, SQUARE.transpose(0, 2), dims=2),
                  {"x0": (3, 5, 5), "x1": (5, 5, 3), "axes": 2}, (3, 3)),
    "Cholesky": (lambda: torch.linalg.cholesky(SQUARE), {"x0": (3, 5, 5)}, (3, 5, 5)),
    "Solve": (lambda: torch.linalg.solve(SQUARE, SQUARE[..., :2]), {"x0": (3, 5, 5), "x1": (3, 5, 2)}, (3, 5, 2)),
    "Conv": (lambda: torch.conv1d(torch.randn(2, 3, 9), torch.randn(4, 3, 3)), {"x0": (2, 9, 3), "x1": (3, 3, 4)},
             (2, 7, 4)),
    "MaxPool": (lambda: torch.max_pool2d(torch.randn(2, 3, 8, 8), 2), {"x0": (2, 8, 8, 3), "pool_size": (2, 2)},
                (2, 4, 4, 3)),
    "AdaptiveAveragePool": (lambda: torch.nn.functional.adaptive_avg_pool2d(torch.randn(2, 3, 9, 8), (4, 3)),
                            {"x0": (2, 9, 8, 3)}, (2, 4, 3, 3)),
    "AdaptiveMaxPool": (lambda: torch.nn.functional.adaptive_max_pool2d(torch.randn(2, 3, 9, 8), (4, 3)),
                        {"x0": (2, 9, 8, 3)}, (2, 4, 3, 3)),
}  # fmt: skip
"""By the name of the operation: what it is in PyTorch, its arguments by shape, and the shape of its result."""


@pytest.mark.parametrize("name", ALIKE)
def test_an_operation_costs_what_torch_does(name: str) -> None:
    function, given, shape = ALIKE[name]
    known = cost_of(function)
    arguments = {key: tensor(*value) if key.startswith("x") else value for key, value in given.items()}
    found = cost_of_call(f"keras.ops_{name}", arguments, tensor(*shape))
    assert (found.macs, found.elementwise_flops, found.transcendentals, found.comparisons) == (
        known.macs, known.elementwise_flops, known.transcendentals, known.comparisons,
    )  # fmt: skip


def test_a_convolution_in_an_lstm_counts_every_site_of_every_step() -> None:
    given = {"x": tensor(2, 3, 8, 9, 5), "kernel": tensor(3, 3, 5, 16), "recurrent_kernel": tensor(3, 3, 4, 16)}
    found = cost_of_call("keras.ConvLSTM", {**given, "bias": tensor(16), "sites": (6, 7)}, tensor(2, 6, 7, 4))
    assert found.macs == 2 * 3 * 6 * 7 * (9 * 5 + 9 * 4) * 16
    assert found.elementwise_flops == 30 * 2 * 3 * 6 * 7 * 4


def test_attention_of_heads_counts_all_pairs() -> None:
    given = {"x0": tensor(2, 5, 3, 4), "x1": tensor(2, 7, 3, 4), "x2": tensor(2, 7, 3, 6)}
    found = cost_of_call("keras.ops_DotProductAttention", given, tensor(2, 5, 3, 6))
    assert found.macs == 2 * 3 * 5 * 7 * (4 + 6)
