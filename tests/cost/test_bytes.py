"""Algorithmic bytes: what must be read and written, and nothing else."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tensortide.cost import count
from tests.cost.probe import cost_of, counted, recorded

X = torch.ones(4, 6)
INDEX = torch.tensor([0, 2, 2])

MOVED: dict[str, tuple[Any, int, int]] = {
    "add": (lambda: X + X.clone(), 24 + 48, 24 + 24),
    "same twice": (lambda: X * X, 24, 24),
    "with its transpose": (lambda: torch.mm(X, X.t()), 24, 16),
    "expanded": (lambda: torch.ones(1).expand(4, 6) + 1, 1, 1 + 24),
    "view": (lambda: X.view(24).view(2, 12).t(), 0, 0),
    "zeros": (lambda: torch.zeros(5), 0, 5),
    "empty": (lambda: torch.empty(5), 0, 0),
    "zeros like": (lambda: torch.zeros_like(X), 0, 24),
    "in place": (lambda: X.clone().add_(1), 48, 48),
    "fill": (lambda: torch.empty(24).fill_(1), 0, 24),
    "copy": (lambda: torch.empty(4, 6).copy_(X), 24, 24),
    "out": (lambda: torch.add(X, 1, out=torch.empty(4, 6)), 24, 24),
    "out of itself": (lambda: torch.add(X.view(4, 6), 1, out=X), 24, 24),
    "cat": (lambda: torch.cat([X, X[:2]]), 36, 36),
    "cast": (X.double, 24, 48),
    "rows": (lambda: X.index_select(0, INDEX), 18 + 6, 18),
    "index": (lambda: X[INDEX], 18 + 6, 18),
    "gather": (lambda: X.gather(0, INDEX.view(3, 1)), 3 + 6, 3),
    "put": (lambda: torch.ones(4, 6).index_put_((INDEX,), torch.ones(3, 6)), 18 + 6, 24 + 18 + 18),
    "put and add": (lambda: torch.ones(4, 6).index_put_((INDEX,), torch.ones(3, 6), True), 18 + 6 + 18, 24 + 18 + 18),
    "put a block": (lambda: torch.ones(4, 6).index_put_((INDEX.view(3, 1), INDEX[:2]), torch.ones(3, 2)), 16, 36),
    "fill rows": (lambda: torch.ones(4, 6).index_fill_(0, INDEX, 2), 6, 24 + 18),
    "copy rows": (lambda: torch.ones(4, 6).index_copy_(0, INDEX, torch.ones(3, 6)), 18 + 6, 24 + 18 + 18),
    "scatter": (lambda: torch.zeros(9).scatter_(0, INDEX, torch.ones(3)), 6 + 3, 9 + 3 + 3),
    "scatter add": (lambda: torch.zeros(9).scatter_add_(0, INDEX, torch.ones(3)), 6 + 3 + 3, 9 + 3 + 3),
}


@pytest.mark.parametrize(("function", "read", "written"), MOVED.values(), ids=MOVED.keys())
def test_bytes_moved(function: Any, read: int, written: int) -> None:
    """Figures in elements of four bytes; what the program makes first counts too."""
    cost = cost_of(function)
    assert (cost.read_bytes, cost.written_bytes) == (4 * read, 4 * written)


def test_views_are_no_ops_to_cover() -> None:
    found = count(recorded(lambda: X.t().reshape(2, 12)[0]))
    assert found.coverage.ops == 1
    assert [cost.how for cost in found.costs].count("view") == len(found.costs) - 1


def test_batch_norm_reads_and_writes_its_statistics() -> None:
    x, mean, var = torch.ones(5, 3, 2), torch.zeros(3), torch.ones(3)
    training = cost_of(lambda: F.batch_norm(x, mean, var, training=True))
    evaluation = cost_of(lambda: F.batch_norm(x, mean, var, training=False))
    assert training.read_bytes == evaluation.read_bytes == 4 * (30 + 6)
    assert training.written_bytes - evaluation.written_bytes >= 4 * 6


def test_max_pool_backward_does_not_read_its_input() -> None:
    x = torch.ones(1, 1, 4, 4, requires_grad=True)
    found = counted(lambda: torch.autograd.grad(F.max_pool2d(x, 2).sum(), x))
    cost = found.by_op["aten.max_pool2d_with_indices_backward"].cost
    assert cost.read_bytes == 4 + 4 * 8


def test_the_same_call_on_shared_and_on_other_memory() -> None:
    """One call, one shape: what is shared decides what is read, whichever came first."""
    x, y = torch.ones(4, 4), torch.ones(4, 4)
    programs = {"other": lambda: x @ y, "same": lambda: x @ x, "transposed": lambda: y @ y.T.contiguous()}
    read = {"other": 128, "same": 64, "transposed": 128}
    for names in itertools.permutations(programs):
        graph = recorded(lambda names=names: [programs[name]() for name in names])
        found = [
            cost.cost.read_bytes
            for op, cost in zip(graph, count(graph).costs, strict=True)
            if cost.cost and "mm" in op.name
        ]
        assert found == [read[name] for name in names]


def test_regions() -> None:
    """Views of one storage are one region if they touch the same addresses."""
    x = torch.ones(4, 6)
    assert cost_of(lambda: x.view(24) + x.view(24)).read_bytes == 96
    assert cost_of(lambda: torch.cat([x[:2], x[2:]])).read_bytes == 96
    assert cost_of(lambda: x.view(2, 12) @ x.view(12, 2)).read_bytes == 96
    assert cost_of(lambda: x[:, :3] @ x[:3, :3]).read_bytes == 4 * (12 + 9)
    assert cost_of(lambda: x[:2] + x[2:]).read_bytes == 96
    assert cost_of(lambda: x[:2] * x[:2]).read_bytes == 48
    assert cost_of(lambda: x[:, :1] * x[:, :1].reshape(4, 1)).read_bytes == 16
    assert cost_of(lambda: x[:1, :3] + x[:1, 3:]).read_bytes == 24
