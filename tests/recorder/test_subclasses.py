"""Classes that a program gives to its parameters: a pretended GPU keeps them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tensortide.recorder import capture


class Quantized(nn.Parameter):
    """A weight of one byte each, from the move to a GPU on, as quantizing libraries make them."""

    scale: torch.Tensor | None

    def __new__(cls, data: torch.Tensor, requires_grad: bool = False) -> Quantized:
        made = torch.Tensor._make_subclass(cls, data, requires_grad)
        made.scale = None
        made.data = data
        return made

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Quantize at the first move."""
        if self.scale is not None:
            return super().to(*args, **kwargs)
        weight = self.data.to(*args, **kwargs)
        self.scale = weight.abs().amax()
        self.data = (weight / self.scale * 127).to(torch.int8)
        return self


class Named(nn.Parameter):
    """A parameter with a label, made by the constructor of its base class."""

    label: str

    def __new__(cls, data: torch.Tensor, label: str) -> Named:
        made = super().__new__(cls, data, True)
        made.label = label
        return made


class Layer(nn.Module):
    """A frozen quantized weight, and an adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Quantized(torch.randn(32, 32))
        self.adapter = Named(torch.randn(32, 32), "adapter")

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """The product with both."""
        assert isinstance(self.weight, Quantized)
        assert isinstance(self.adapter, Named)
        assert self.adapter.label == "adapter"
        assert self.weight.scale is not None
        product: torch.Tensor = value @ (self.weight.to(value.dtype) * self.weight.scale) + value @ self.adapter
        return product


def quantized_step() -> None:
    """Train an adapter."""
    layer = Layer().to("cuda")
    layer(torch.randn(4, 32, device="cuda")).square().mean().backward()
    assert layer.adapter.grad is not None
    assert layer.weight.grad is None


def test_a_weight_quantized_by_its_class_as_it_moves_is_stored_in_bytes() -> None:
    graph = capture(quantized_step, device="cuda")
    products = [op for op in graph if op.name.startswith("aten.mm")]
    assert len(products) == 3  # two forward, the gradient of the adapter
    assert any(result.dtype == "int8" for op in graph for result in op.outputs)
