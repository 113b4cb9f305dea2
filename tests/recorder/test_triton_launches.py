"""Launches of Triton kernels on a pretended GPU, by stand-ins for the classes of Triton."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tensortide import capture
from tensortide.recorder.triton_launches import NOTE
from tests.recorder.steps import Step


class JITFunction:
    """A kernel, as ``triton.jit`` makes one."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Fail, as there is no GPU."""
        raise AssertionError("launched")


class Autotuner(JITFunction):
    """A kernel with a choice of settings."""


class Heuristics(JITFunction):
    """A kernel with settings that are computed."""


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Any:
    modules = {
        "triton.runtime.jit": SimpleNamespace(JITFunction=JITFunction),
        "triton.runtime.autotuner": SimpleNamespace(Autotuner=Autotuner, Heuristics=Heuristics),
    }
    for name in ("triton", "triton.runtime"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)

    def add(*args: Any) -> None:
        del args

    return Autotuner(Heuristics(JITFunction(add)))


def test_a_launch_is_one_op_that_allocates_nothing(kernel: Any) -> None:
    class Add(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(a)  # what a kernel may write can be saved all the same
            total = torch.empty_like(a)
            kernel[(1,)](a, b, total, a.numel(), BLOCK=64)
            return total

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            return gradient * ctx.saved_tensors[0], gradient

    def workload() -> Step:
        net, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")

        def step() -> None:
            Add.apply(net(x), x).sum().backward()

        return step

    graph = capture(workload, device="cuda")
    (launch,) = [op for op in graph if op.name == "triton.launch.default"]
    assert launch.arguments["kernel"] == "add"
    assert [t.shape for t in launch.inputs] == [(4, 8)] * 3
    assert not launch.outputs
    assert NOTE in graph.meta.assumptions
