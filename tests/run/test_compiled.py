"""Functions that are compiled, scripted, traced or transformed: right to the last bit, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from tensortide.errors import RunError
from tensortide.run.budget import Budget
from tests.run.same import identical
from tests.run.test_budget import KIB, room


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def body(x: Tensor) -> Tensor:
    for _ in range(6):
        x = x.sin().cos()
    return x


def branches(x: Tensor) -> Tensor:
    one, other = torch.jit.fork(body, x), torch.jit.fork(body, x * 2)
    return torch.jit.wait(one) + torch.jit.wait(other)  # type: ignore[no-any-return]


def scripted(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        return torch.jit.script(function)(x)  # type: ignore[no-any-return]

    return run


def _dropped(x: Tensor) -> Tensor:
    return body(nn.functional.dropout(body(x)))


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "scripted": scripted(body),
    "branches": scripted(branches),
    "parallel": nn.DataParallel(nn.Linear(64, 64)),
    "checkpoint": lambda x: checkpoint(_dropped, x, use_reentrant=False),
    "reentrant": lambda x: checkpoint(_dropped, x, use_reentrant=True),
    "grad": lambda x: torch.func.grad(lambda t: body(t).sum())(x) + torch.func.vmap(body)(x),
    "jvp": lambda x: torch.func.jvp(body, (x,), (torch.ones_like(x),))[1],
}


def gradient(function: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 4096).view(64, 64).requires_grad_()
    y = function(x)
    y.square().sum().backward()
    assert x.grad is not None
    if isinstance(function, nn.Module):
        function.zero_grad()  # while tensors are left, objects of later tests are not hidden (conftest)
    return y.detach(), x.grad


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_transformed_functions(name: str) -> None:
    want = gradient(FUNCTIONS[name])
    with Budget(room(150 * KIB)) as budget:
        found = gradient(FUNCTIONS[name])
        assert budget.usage.evictions > 0 or name == "parallel"
    assert all(map(identical, found, want))


@pytest.mark.parametrize("early", [True, False])
def test_compiled_functions_are_refused(early: bool) -> None:
    """Compiled before, and inside; eagerly they take part."""
    compiled = torch.compile(body, backend="eager")
    want = gradient(compiled if early else body)
    with Budget(room(150 * KIB)) as budget:
        with pytest.raises(RunError) as caught:
            gradient(compiled)
        assert "torch.compile" in str(caught.value)
        assert "\n" not in str(caught.value)
        with torch.compiler.set_stance("force_eager"):
            assert all(map(identical, gradient(compiled), want))
        assert budget.usage.evictions > 0
        assert all(map(identical, gradient(body), want))
    assert all(map(identical, gradient(compiled), want))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_backward_pass_of_compiled_code_is_refused() -> None:
    compiled = torch.compile(body)
    x = torch.linspace(0, 1, 4096).requires_grad_()
    loss = compiled(x).sum()
    with Budget(room(150 * KIB)), pytest.raises(RunError, match=r"torch\.compile"):
        loss.backward(retain_graph=True)
    loss.backward()
    assert x.grad is not None


TRACES: dict[str, Callable[[Tensor], Any]] = {
    "real": make_fx(body),
    "fake": make_fx(body, tracing_mode="fake"),
    "symbolic": make_fx(body, tracing_mode="symbolic"),
    "export": lambda x: torch.export.export(nn.Sequential(nn.Linear(64, 64), nn.Tanh()), (x,)).module(),
}


@pytest.mark.parametrize("name", TRACES)
def test_traces(name: str) -> None:
    x = torch.randn(64, 64)
    with Budget(room(200 * KIB)):
        torch.manual_seed(0)
        traced = TRACES[name](x.cos())
        made = [x.sin() for _ in range(12)]
        found = traced(made[0])
    torch.manual_seed(0)
    assert identical(found.detach(), TRACES[name](x.cos())(x.sin()).detach())


def test_fake_tensors_take_no_memory() -> None:
    with Budget(room(64 * KIB)) as budget, FakeTensorMode():
        before = budget.resident_bytes
        large = torch.ones(1 << 20, 1 << 20)
        assert (large @ large).sum().shape == ()
        assert budget.resident_bytes == before
