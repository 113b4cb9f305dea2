"""Small PyTorch models, and the ONNX files that PyTorch's exporter writes of them."""

from __future__ import annotations

import functools
import io
import warnings
from collections.abc import Callable
from typing import Any

import onnx
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tensortide
from tensortide.graph import Graph


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Tensor) -> Any:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.short is None else self.short(x)))


class ResNet(nn.Module):
    """A network of such blocks, as ResNet-18 is."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Any:
        y = self.blocks(self.pool(F.relu(self.norm(self.stem(x)))))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(y, 1), 1))


class Layer(nn.Module):
    """A block of a decoder."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("mask", torch.full((16, 16), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Any:
        batch, seq, hidden = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (p.reshape(batch, seq, self.heads, hidden // self.heads).transpose(1, 2) for p in parts)
        scores = torch.softmax(q @ k.transpose(-1, -2) / (hidden // self.heads) ** 0.5 + self.mask, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """Two of them, with a tied embedding: GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(61, 32)
        self.places = nn.Parameter(torch.zeros(16, 32))
        self.layers = nn.Sequential(Layer(32, 4), Layer(32, 4))
        self.norm = nn.LayerNorm(32)

    def forward(self, ids: Tensor) -> Any:
        return self.norm(self.layers(self.table(ids) + self.places)) @ self.table.weight.t()


class Recurrent(nn.Module):
    """A two-layer LSTM and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(16, 20, 2), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.lstm(x)[0])


class Convolutions(nn.Module):
    """Plain, transposed and grouped."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 4, 2, 1)
        self.up = nn.ConvTranspose2d(8, 6, 4, 2, 1, groups=2)
        self.grouped = nn.Conv2d(6, 12, 3, padding=1, groups=3)

    def forward(self, x: Tensor) -> Any:
        return self.grouped(F.silu(self.up(F.leaky_relu(self.down(x)))))


def mlp() -> nn.Module:
    """Three linear layers."""
    return nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU(), nn.Linear(64, 10))


TWINS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (mlp, lambda: torch.rand(4, 48)),
    "resnet": (ResNet, lambda: torch.rand(2, 3, 64, 64)),
    "decoder": (Decoder, lambda: torch.randint(0, 61, (2, 16))),
    "recurrent": (Recurrent, lambda: torch.rand(12, 3, 16)),
    "convolutions": (Convolutions, lambda: torch.rand(2, 3, 16, 16)),
}
"""By name: the model, and its input."""


@functools.cache
def exported(name: str, **options: Any) -> Any:
    """Return the ModelProto of a model."""
    make, inputs = TWINS[name]
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"dynamo": False, "opset_version": 20, "do_constant_folding": name == "recurrent", **options}
        export: Any = torch.onnx.export
        export(make().train(), (inputs(),), buffer, training=torch.onnx.TrainingMode.TRAINING, **given)
    return onnx.ModelProto.FromString(buffer.getvalue())


def captured(name: str) -> Graph:
    """Return the training step of a model as PyTorch runs it, with AdamW; its loss is the sum of the outputs."""
    make, inputs = TWINS[name]

    def workload() -> Callable[[], None]:
        model, x = make().train(), inputs()
        optimizer = torch.optim.AdamW(model.parameters())

        def step() -> None:
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return tensortide.capture(workload)
