"""Tensors whose shapes come late: lazy modules, and nested tensors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

from tensortide import capture
from tests.recorder.steps import Step, trained
from tests.recorder.test_fake_mode import difference

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:.*prototype stage")


def lazy() -> Step:
    """A net without shapes, which a first batch sets."""
    net = nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))
    net = net.to("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(4, 3, 8, 8, device=next(net.parameters()).device)
    net(x)
    return trained(net, lambda: net(x).square().mean())


def eager() -> Step:
    """The same net with its shapes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    net = nn.Sequential(*layers).to(device)
    x = torch.randn(4, 3, 8, 8, device=device)
    return trained(net, lambda: net(x).square().mean())


def test_lazy_modules_take_their_shapes_on_fake_tensors() -> None:
    assert difference(capture(lazy, real=False), capture(lazy, real=True)) == ""
    late, early = capture(lazy, device="cuda"), capture(eager, device="cuda")
    assert [op.name for op in late] == [op.name for op in early]
    assert sorted(s.nbytes for s in late.storages) == sorted(s.nbytes for s in early.storages)


def ragged() -> Step:
    """Sequences of several lengths, one after the other."""
    layer = nn.Linear(8, 8)

    def step() -> Any:
        rows = [torch.ones(n, 8) for n in (2, 3, 5)]
        found = layer(torch.nested.nested_tensor(rows, layout=torch.jagged)).relu()
        found.values().square().mean().backward()

    return step


def test_nested_tensors_of_the_jagged_layout() -> None:
    with warnings.catch_warnings(action="ignore"):
        fake, real = (capture(ragged, real=real) for real in (False, True))
    assert difference(fake, real) == ""


def test_nested_tensors_of_the_jagged_layout_on_a_pretended_gpu() -> None:
    with warnings.catch_warnings(action="ignore"):
        there, here = (capture(ragged, device=device) for device in ("cuda", "cpu"))
    assert there.index.main_device == "cuda:0"
    assert [op.name for op in there if "mm" in op.name] == [op.name for op in here if "mm" in op.name]


def test_nested_tensors_of_the_strided_layout_are_recorded_on_real_tensors() -> None:
    layer = nn.Linear(8, 8)

    def step() -> None:
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
            layer(torch.nested.nested_tensor([torch.ones(2, 8), torch.ones(3, 8)]))

    assert "aten.linear.default" in {op.name for op in capture(step, real=True)}
