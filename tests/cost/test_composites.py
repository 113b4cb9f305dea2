"""Composite ops priced whole cost what the ops that PyTorch makes of them cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from tensortide.cost import Cost, count
from tensortide.graph import GraphBuilder, Out
from tests.cost.probe import cost_of, cost_of_call, tensor

F: Any = functional
A: Any = torch.ops.aten


def like(value: Any) -> Any:
    """A tensor as a rule sees it."""
    if isinstance(value, torch.Tensor):
        return tensor(*value.shape, dtype=str(value.dtype).removeprefix("torch."))
    return tuple(map(like, value)) if isinstance(value, (list, tuple)) else value


def whole(op: Any, *arguments: Any) -> Cost:
    """The cost of ``op`` by its own rule."""
    names = [argument.name for argument in op._schema.arguments]
    result = op(*arguments)
    outputs = map(like, result if isinstance(result, tuple) else (result,))
    return cost_of_call(
        str(op),
        dict(zip(names, map(like, arguments), strict=False)),
        *outputs,
    )


def r(*shape: int) -> torch.Tensor:
    return torch.rand(*shape)


CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "conv1d": (A.conv1d.default, (r(2, 4, 9), r(6, 2, 3), r(6), [1], [1], [1], 2)),
    "conv2d": (A.conv2d.default, (r(2, 3, 8, 8), r(5, 3, 3, 3), None, [2, 2], [1, 1])),
    "conv2d same": (A.conv2d.padding, (r(2, 4, 9, 9), r(8, 2, 3, 3), r(8), [1, 1], "same", [2, 2], 2)),
    "conv3d": (A.conv3d.default, (r(1, 2, 4, 4, 4), r(3, 2, 2, 2, 2), r(3))),
    "conv_transpose2d": (A.conv_transpose2d.input, (r(2, 4, 5, 5), r(4, 3, 4, 4), r(6), [2, 2], [1, 1], [0, 0], 2)),
    "batch_norm": (A.batch_norm.default, (r(3, 4, 5), r(4), r(4), r(4), r(4), True, 0.1, 1e-5, False)),
    "batch_norm eval": (A.batch_norm.default, (r(3, 4, 5), r(4), r(4), r(4), r(4), False, 0.1, 1e-5, False)),
    "group_norm": (A.group_norm.default, (r(3, 4, 5), 2, r(4), r(4))),
    "instance_norm": (A.instance_norm.default, (r(3, 4, 5), r(4), r(4), None, None, True, 0.1, 1e-5, False)),
    "cross_entropy": (A.cross_entropy_loss.default, (r(6, 5), torch.tensor([0, 1, 2, 3, 4, 0]))),
    "cross_entropy weighted": (A.cross_entropy_loss.default, (r(2, 5), torch.tensor([0, 1]), r(5))),
    "tensordot": (A.tensordot.default, (r(2, 3, 4), r(4, 3, 5), [1, 2], [1, 0])),
    "bilinear": (A.bilinear.default, (r(3, 4), r(3, 5), r(6, 4, 5), r(6))),
    "lstm_cell": (A.lstm_cell.default, (r(2, 3), [r(2, 4), r(2, 4)], r(16, 3), r(16, 4), r(16), r(16))),
    "gru_cell": (A.gru_cell.default, (r(2, 3), r(2, 4), r(12, 3), r(12, 4), r(12), r(12))),
    "rnn_tanh_cell": (A.rnn_tanh_cell.default, (r(2, 3), r(2, 4), r(4, 3), r(4, 4), r(4), r(4))),
    "square": (A.square.default, (r(3, 4),)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_composite_costs_what_its_parts_cost(name: str) -> None:
    op, arguments = CALLS[name]
    made, parts = whole(op, *arguments), cost_of(op, *arguments)
    assert (made.macs, made.elementwise_flops) == (parts.macs, parts.elementwise_flops)
    assert (made.transcendentals, made.comparisons) == (parts.transcendentals, parts.comparisons)


EINSUMS = {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "ij,kj->ik": ((3, 4), (5, 4)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "i,j->ij": ((3,), (4,)),
    "ij,ij->ij": ((3, 4), (3, 4)),
    "...d,de->...e": ((2, 3, 4), (4, 5)),
    "ij,jk": ((3, 4), (4, 5)),
    "ai,ib": ((3, 1), (1, 5)),  # nothing to add up: a product of elements
    "ai,bi->ab": ((3, 1), (5, 4)),
    "ijk->i": ((3, 4, 5),),
    "bid,bjd->bij": ((2, 3, 4), (1, 5, 4)),
    "ija,jk->ik": ((3, 4, 2), (4, 5)),
}


@pytest.mark.parametrize("equation", EINSUMS)
def test_einsum_costs_the_products_and_sums_that_pytorch_dispatches(equation: str) -> None:
    arguments = (equation, [r(*shape) for shape in EINSUMS[equation]])
    made, parts = whole(A.einsum.default, *arguments), cost_of(A.einsum.default, *arguments)
    assert (made.macs, made.elementwise_flops) == (parts.macs, parts.elementwise_flops)
    assert made.exact


def test_einsum_of_three_follows_its_path_and_says_where_there_is_none() -> None:
    tensors = [r(10, 2), r(2, 10), r(10, 2)]
    given = {"equation": "ij,jk,kl->il", "tensors": tuple(map(like, tensors)), "path": (1, 2, 0, 1)}
    inner_first = cost_of_call("aten.einsum.default", given, tensor(10, 2))
    assert (inner_first.macs, inner_first.exact) == (2 * 10 * 2 + 10 * 2 * 2, True)
    assert inner_first.macs == cost_of(lambda: A.einsum.default("ij,jk,kl->il", tensors, path=[1, 2, 0, 1])).macs
    left_first = whole(A.einsum.default, "ij,jk,kl->il", tensors)
    assert (left_first.macs, left_first.exact) == (10 * 2 * 10 + 10 * 10 * 2, False)


def test_a_reshape_moves_bytes_only_where_it_copies() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 6))
    for out in (Out((24,), view_of=x), Out((24,))):
        b.op("aten.reshape.default", x, out=out, names=("self",), arguments={"shape": (24,)})
    assert [found.nbytes for found in count(b.build()).costs] == [0, 2 * 96]
