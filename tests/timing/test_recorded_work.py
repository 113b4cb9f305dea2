"""The work of recorded ops: products, convolutions, and what launches nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tensortide
from tensortide.graph import TENSOR, Call
from tensortide.timing import device, estimate
from tensortide.timing.families import VIEW, works
from tensortide.timing.prediction import VIEW_NS
from tensortide.timing.work import product
from tests.cost.probe import graph_of, tensor
from tests.graphs import stored


def test_recorded_products_have_the_work_of_products() -> None:
    graph = stored("mlp")
    found, index = works(graph)
    assert len(index) == len(graph)
    for work in found:
        if work.family.startswith(("mm", "addmm", "bmm")):
            batch, m, n, k = work.dims
            assert work.matrix_flops == 2 * batch * m * n * k
    assert {found[i].family for i, op in zip(index, graph, strict=True) if op.is_view} <= {VIEW}


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "int64", "float64", "bfloat16", "int8"])
def test_a_product_by_hand_asks_what_a_recorded_one_does(dtype: str) -> None:
    kind = getattr(torch, dtype)

    def multiplied(batch: int = 96) -> Callable[[], object]:
        left, right = torch.zeros(batch, 80, dtype=kind), torch.zeros(80, 72, dtype=kind)
        return lambda: left @ right

    found, index = works(tensortide.capture(multiplied))
    assert found[index[-1]] == product(96, 72, 80, dtype=dtype)


def test_a_product_with_a_sparse_operand_is_no_dense_product() -> None:
    def product_of(stored: int = 0) -> Callable[[], object]:
        right = torch.randn(2000, 128)
        if not stored:
            left = torch.randn(2000, 2000)
            return lambda: left @ right
        where = torch.randint(0, 2000, (2, stored))
        sparse = torch.sparse_coo_tensor(where, torch.randn(stored), (2000, 2000), check_invariants=False)
        return lambda: sparse @ right

    times = [
        estimate(tensortide.capture(product_of, hyperparameters={"stored": stored}), device("A100-SXM-80GB")).ns[-1]
        for stored in (10_000, 100_000, 0)
    ]
    assert times[0] < times[1] < times[2]
    assert times[0] < 20_000  # 1.28 M of 512 M multiply-accumulates
    found, index = works(tensortide.capture(product_of, hyperparameters={"stored": 10_000}))
    assert found[index[-1]].read_bytes == 10_000 * 20 + 2000 * 128 * 4


def test_an_op_on_no_elements_launches_nothing() -> None:
    def empty(batch: int = 0) -> Callable[[], object]:
        rows = torch.randn(batch, 1024)
        return lambda: rows.pow(2)

    none, some = (
        estimate(tensortide.capture(empty, hyperparameters={"batch": n}), device("H100-SXM-80GB")).ns[-1]
        for n in (0, 1)
    )
    assert none <= VIEW_NS < some


def test_convolutions_are_products_of_patches_and_weights() -> None:
    found, _ = works(stored("conv"))
    kinds = {work.family for work in found if work.family.startswith("convolution")}
    assert kinds == {f"convolution{way}_{kernel}" for way in ("", "_backward") for kernel in ("1x1", "kxk")}
    for work in found:
        if work.family in ("convolution_1x1", "convolution_kxk"):
            batch, m, n, k = work.dims
            assert work.matrix_flops == 2 * batch * m * n * k


@pytest.mark.parametrize("op", ["tf.ApplyGradientDescent", "tf.ResourceApplyGradientDescent"])
def test_a_step_named_after_a_descent_is_no_backward_pass(op: str) -> None:
    call = Call(op, (("var", TENSOR), ("delta", TENSOR)), 2)
    (found,), _ = works(graph_of((call, [tensor(4, 4), tensor(4, 4)], [tensor(4, 4)])))
    assert found.family == "optimizer"
