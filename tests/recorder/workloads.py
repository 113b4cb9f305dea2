"""Small workloads, one for each thing that a training step can do to a capture."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tensortide import capture
from tensortide.graph import Graph

Step = Callable[[], Any]


class Net(nn.Module):
    """Linear, batch norm, ReLU, dropout, linear; counts its calls and remembers its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(16, 4)
        self.calls = 0
        self.seen: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen = x
        y: torch.Tensor = self.last(self.drop(torch.relu(self.norm(self.first(x)))))
        return y


def classifier(
    batch: int = 4, optimizer: str = "AdamW", amp: bool = False, accumulate: int = 1, clip: bool = False, **options: Any
) -> Step:
    model = Net()
    update = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3, **options)
    x, labels = torch.randn(batch, 8), torch.randint(0, 4, (batch,))

    def step() -> Any:
        loss: Any = None
        for _ in range(accumulate):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(model(x), labels)
            loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update.step()
        update.zero_grad()
        return loss

    return step


def checkpointed(reentrant: bool = False) -> Step:
    model = Net()
    x = torch.randn(4, 8, requires_grad=True)

    def step() -> Any:
        loss = checkpoint(model, x, use_reentrant=reentrant).sum()
        loss.backward()
        model.zero_grad()
        x.grad = None
        return loss

    return step


def recurrent(kind: str = "GRU") -> Step:
    layer = getattr(nn, kind)(5, 8, num_layers=2, bidirectional=True)
    x = torch.randn(4, 3, 5)

    def step() -> Any:
        loss = layer(x)[0].sum()
        loss.backward()
        layer.zero_grad()
        return loss

    return step


def second_order() -> Step:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    update = torch.optim.Adam(model.parameters())
    x = torch.randn(3, 4, requires_grad=True)

    def step() -> Any:
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        loss = (slope.norm() - 1) ** 2
        loss.backward()
        update.step()
        update.zero_grad()
        x.grad = None
        return loss

    return step


class Square(torch.autograd.Function):
    """x squared, with its own backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 2 * x


def custom_function() -> Step:
    weight = torch.randn(4, 4, requires_grad=True)
    update = torch.optim.SGD([weight], lr=0.1)

    def step() -> Any:
        loss = Square.apply(weight @ weight).sum()
        loss.backward()
        update.step()
        update.zero_grad()
        return loss

    return step


def tied() -> Step:
    embed, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embed.weight
    model = nn.Sequential(embed, head)
    update = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 10, (3,))

    def step() -> Any:
        loss = model(ids).logsumexp(-1).sum()
        loss.backward()
        update.step()
        update.zero_grad()
        return loss

    return step


def flat_views() -> Step:
    flat = torch.randn(20, requires_grad=True)

    def step() -> Any:
        weight, bias = flat[:16].view(4, 4), flat[16:]
        loss = (torch.ones(2, 4) @ weight + bias).sum()
        loss.backward()
        flat.grad = None
        return loss

    return step


def attention(causal: bool = True) -> Step:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)

    def step() -> Any:
        loss = F.scaled_dot_product_attention(q, q, q, is_causal=causal).sum()
        loss.backward()
        q.grad = None
        return loss

    return step


def scaled() -> Step:
    model = nn.Linear(4, 4)
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    x = torch.randn(2, 4)

    def step() -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(x).sum()
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        update.zero_grad()
        return loss.detach()

    return step


def inference(mode: str = "no_grad") -> Step:
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    context = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "grad": torch.enable_grad}[mode]

    def step() -> Any:
        with context():
            y: torch.Tensor = model(x)
        return y

    return step


ALL: dict[str, tuple[Callable[..., Step], dict[str, Any]]] = {
    "adamw": (classifier, {}),
    "adamw-foreach": (classifier, {"foreach": True}),
    "adamw-fused": (classifier, {"fused": True}),
    "sgd-momentum": (classifier, {"optimizer": "SGD", "momentum": 0.9}),
    "autocast": (classifier, {"amp": True}),
    "accumulation": (classifier, {"accumulate": 3}),
    "clipping": (classifier, {"clip": True}),
    "checkpoint": (checkpointed, {}),
    "checkpoint-reentrant": (checkpointed, {"reentrant": True}),
    "gru": (recurrent, {}),
    "second-order": (second_order, {}),
    "custom-function": (custom_function, {}),
    "tied": (tied, {}),
    "flat-views": (flat_views, {}),
    "attention": (attention, {}),
    "scaler": (scaled, {}),
    "no-grad": (inference, {}),
    "inference-mode": (inference, {"mode": "inference_mode"}),
    "eval-grad": (inference, {"mode": "grad"}),
}


@functools.cache
def captured(name: str) -> Graph:
    """The step on fake tensors, captured once for all tests."""
    workload, settings = ALL[name]
    return capture(workload, hyperparameters=settings)
