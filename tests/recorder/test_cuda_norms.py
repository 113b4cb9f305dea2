"""Root-mean-square normalization on a pretended GPU, which has one kernel for each pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensortide
from tensortide import capture
from tensortide.graph.model import Graph, Phase
from tensortide.parallelism import Degrees, per_rank
from tests.recorder.steps import Step

ROWS, WIDTH = (4, 8), 16
PARTS = [f"aten.{name}" for name in ("pow.Tensor_Scalar", "mean.dim", "add_.Scalar", "rsqrt.default", "mul.Tensor")]
"""What the kernel computes, op by op."""


def normalized(
    dtype: torch.dtype = torch.float32,
    *,
    weight: bool = True,
    eps: float | None = None,
    shape: tuple[int, ...] = (*ROWS, WIDTH),
) -> Step:
    """A step whose normalization reads a tensor that nothing else keeps."""
    norm = nn.RMSNorm(shape[-1], eps=eps, elementwise_affine=weight, dtype=dtype)
    x = torch.randn(shape, dtype=dtype, requires_grad=True)
    return lambda: norm(x + 1).sum().backward()


def ops(graph: Graph, phase: Phase) -> list[str]:
    return [op.name for op in graph if op.phase is phase and "view" not in op.call.tags]


def norms(graph: Graph) -> list[str]:
    return [op.name for op in graph if "rms_norm" in op.name]


def saved_bytes(graph: Graph) -> int:
    """Bytes of the forward pass that the backward pass finds, without the loss."""
    first = next(op.index for op in graph if op.phase is Phase.BACKWARD)
    loss = next(op.outputs[0] for op in graph if op.name == "aten.sum.default")
    return sum(
        int(each.nbytes)
        for index, each in enumerate(graph.storages)
        if index != loss.storage
        and each.birth is not None
        and each.birth < first
        and (each.death is None or each.death > first)
    )


@pytest.mark.parametrize("eps", [None, 1e-5])
@pytest.mark.parametrize("weight", [True, False])
@pytest.mark.parametrize(("dtype", "itemsize", "statistic"), [("bfloat16", 2, 4), ("float32", 4, 4), ("float64", 8, 8)])
def test_one_kernel_each_way_saves_the_input_and_a_statistic_of_each_row(
    dtype: str, itemsize: int, statistic: int, weight: bool, eps: float | None
) -> None:
    graph = capture(lambda: normalized(getattr(torch, dtype), weight=weight, eps=eps), device="cuda")
    rows = math.prod(ROWS)
    assert ops(graph, Phase.FORWARD) == ["aten.add.Tensor", "aten._fused_rms_norm.default", "aten.sum.default"]
    assert ops(graph, Phase.BACKWARD).count("aten._fused_rms_norm_backward.default") == 1
    assert saved_bytes(graph) == rows * WIDTH * itemsize + rows * statistic
    backward = next(op for op in graph if op.name.startswith("aten._fused_rms_norm_backward"))
    assert [each.shape for each in backward.outputs] == [(*ROWS, WIDTH), *([(WIDTH,)] if weight else [])]
    assert not tensortide.count(graph).coverage.missing


def test_the_cpu_has_no_such_kernel() -> None:
    graph = capture(normalized)
    assert not any("_fused_rms_norm.default" in name for name in norms(graph))
    assert [name for name in ops(graph, Phase.FORWARD) if name in PARTS] == [*PARTS, PARTS[-1]]


def test_without_gradients_the_kernel_is_the_same() -> None:
    def workload() -> Step:
        norm, x = nn.RMSNorm(WIDTH), torch.randn(*ROWS, WIDTH)

        def step() -> None:
            with torch.inference_mode():
                norm(x)

        return step

    assert ops(capture(workload, device="cuda"), Phase.FORWARD) == ["aten._fused_rms_norm.default"]
    assert ops(capture(workload), Phase.FORWARD) == [*PARTS, PARTS[-1]]


def _weight_of_another_dtype() -> torch.Tensor:
    return F.rms_norm(torch.randn(*ROWS, WIDTH, dtype=torch.bfloat16), (WIDTH,), torch.ones(WIDTH))


def _channels_last() -> torch.Tensor:
    return F.rms_norm(torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), (5,))


def _complex() -> torch.Tensor:
    return F.rms_norm(torch.randn(*ROWS, WIDTH, dtype=torch.complex64), (WIDTH,))


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input")
@pytest.mark.parametrize("call", [_weight_of_another_dtype, _channels_last, _complex])
def test_what_the_kernel_does_not_take_is_several_ops(call: Callable[[], torch.Tensor]) -> None:
    graph = capture(lambda: call, device="cuda")
    assert not norms(graph)
    assert {"aten.pow.Tensor_Scalar", "aten.rsqrt.default"} <= {op.name for op in graph}


def test_autocast_computes_it_in_float32() -> None:
    def workload() -> Step:
        norm, layer = nn.RMSNorm(WIDTH).cuda(), nn.Linear(WIDTH, WIDTH).cuda()
        x = torch.randn(*ROWS, WIDTH, device="cuda")

        def step() -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = norm(layer(x)).sum()
            loss.backward()

        return step

    graph = capture(workload, device="cuda")
    norm = next(op for op in graph if op.name == "aten._fused_rms_norm.default")
    assert [each.dtype for each in (*norm.inputs, *norm.outputs)] == ["float32"] * 4


def test_ranks_divide_its_rows() -> None:
    whole = capture(normalized, device="cuda")
    (rank,) = per_rank(whole, Degrees(data=2)).graphs
    shapes = [
        [each.shape for each in (*op.inputs, *op.outputs)] for op in rank if op.name == "aten._fused_rms_norm.default"
    ]
    assert shapes == [[(2, 8, WIDTH), (WIDTH,), (2, 8, WIDTH), (2, 8, 1)]]
    exchanged = [op.inputs[0].shape for op in rank if "reduce" in op.name]
    assert exchanged == [(WIDTH,)]
