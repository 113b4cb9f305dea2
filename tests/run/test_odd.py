"""Tensors without a storage, a size or memory of their own: sparse and nested ones, zeros that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tensortide
from tensortide.run.budget import Budget
from tests.run.same import UNLIMITED, identical, squeezed

pytestmark = pytest.mark.filterwarnings("ignore:.*(nested tensor|Sparse CS|torch.jit.script)")  # PyTorch's own

SHARES = (0.75, 0.8, 0.9)
WIDTH = 32
LAYOUTS = ("to_sparse_coo", "to_sparse_csr", "to_sparse_csc")


class Loop:
    """A call is a step of ``loss`` with ``model``."""

    def __init__(self, model: nn.Module, loss: Callable[[nn.Module], Tensor], *, sparse: bool = False) -> None:
        self.model, self.loss = model, loss
        kind = torch.optim.SparseAdam if sparse else torch.optim.Adam
        self.optimizer = kind(list(model.parameters()), 1e-3)

    def __call__(self) -> Tensor:
        loss = self.loss(self.model)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def looked_up(model: nn.Module) -> Tensor:
    rows: Tensor = model(torch.randint(0, 100, (16, 8)))
    loss: Tensor = ((rows.sin() * rows.cos()).exp() + rows).mean()
    return loss


def encoded(model: nn.Module) -> Tensor:
    """Outside of training, layers take nested tensors for padded sequences."""
    x, padded = torch.randn(4, 10, WIDTH), torch.zeros(4, 10, dtype=torch.bool)
    padded[:, 7:] = True
    loss: Tensor = model(x, src_key_padding_mask=padded).square().mean()
    model.eval()
    with torch.no_grad():
        loss += model(x, src_key_padding_mask=padded).sum() * 1e-3
    model.train()
    return loss


def multiplied(layout: str) -> Callable[[nn.Module], Tensor]:
    def loss(model: nn.Module) -> Tensor:
        chosen = getattr(torch.eye(WIDTH) * torch.rand(WIDTH), layout)()
        x: Tensor = torch.sparse.mm(chosen, model(torch.randn(WIDTH, WIDTH))).relu()
        x = torch.sparse.mm(chosen, model(x).tanh())
        return (x * x).sum()

    return loss


def curved(model: nn.Module) -> Tensor:
    """Forward over reverse mode: tangents that nobody has set are zeros without memory."""

    def value(parameters: dict[str, Any], x: Tensor) -> Tensor:
        found: Tensor = torch.func.functional_call(model, parameters, (x,))
        return found.square().sum()

    parameters: dict[str, Any] = dict(model.named_parameters())
    x = torch.randn(8, WIDTH)
    slopes = torch.func.vmap(torch.func.grad(value), in_dims=(None, 0))(parameters, x)
    loss: Tensor = value(parameters, x) + torch.func.hessian(lambda row: value(parameters, row))(x[0]).square().sum()
    for slope in slopes.values():
        loss = loss + slope.square().mean()
    return loss


def encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, 4, 64, batch_first=True), 2)


LOOPS: dict[str, Callable[[], Loop]] = {
    "gradients": lambda: Loop(nn.Embedding(100, WIDTH, sparse=True), looked_up, sparse=True),
    "nested": lambda: Loop(encoder(), encoded),
    "zeros": lambda: Loop(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4)), curved),
    **{name: (lambda name=name: Loop(nn.Linear(WIDTH, WIDTH), multiplied(name))) for name in LAYOUTS},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_with_them_leave_the_same_behind(name: str) -> None:
    squeezed(LOOPS[name], "dtr-eq" if name != "nested" else "lru", SHARES, recomputes=True)


def test_what_an_op_on_them_needs_is_brought_back_and_what_it_writes_stays() -> None:
    given = torch.randn(64, 64)
    with Budget(UNLIMITED) as budget:
        runtime = budget.runtime
        assert runtime is not None
        values, sums = given.diagonal().exp(), given.sin()
        before = sums.cos()
        sparse = torch.sparse_coo_tensor(torch.arange(64).repeat(2, 1), values, (64, 64), check_invariants=False)
        for tensor in (values, sums):
            runtime.engine.evict(runtime.storage(tensor))
        sums.add_(sparse)
        assert budget.usage.recomputations >= 2
        assert runtime.engine.fixed[runtime.storage(sums)]
        assert runtime.engine.fixed[runtime.storage(before)]
        runtime.engine.evict(runtime.storage(values))
        assert identical(sparse.to_dense(), torch.diag(given.diagonal().exp()))
    assert identical(sums, given.sin() + torch.diag(given.diagonal().exp()))
    assert identical(before, given.sin().cos())


def test_a_step_with_them_is_like_no_captured_one() -> None:
    loop = LOOPS["gradients"]()
    graph = tensortide.capture(loop, real=True)
    with Budget(UNLIMITED, graph=graph) as budget:
        losses = [loop() for _ in range(3)]
    assert budget.steps == ()
    assert all(loss.isfinite() for loss in losses)


@pytest.mark.parametrize("compiled", [False, True])
def test_nested_tensors_are_left_to_pytorch(compiled: bool) -> None:
    torch.manual_seed(0)
    first = nn.Linear(8, 32)
    layer = nn.Sequential(first, nn.GELU(), nn.LayerNorm(32))
    rows = [torch.randn(5, 8), torch.randn(9, 8)]

    def gradient() -> Tensor:
        given = torch.nested.nested_tensor(rows, layout=torch.jagged)
        return torch.autograd.grad(layer(given).values().square().mean(), first.weight)[0]

    with Budget(1 << 60, compiled=compiled):
        found = gradient()
    assert identical(found, gradient())
