"""The models of the recorded figures, with the module names that their layer tables have."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tensortide import capture
from tensortide.graph import Graph
from tensortide.measures.deeplite import TorchProfiler
from tensortide.recorder.short_cuts import as_for_a_tracer


def small_test_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())


def nested_sequential() -> nn.Module:
    def pair() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU())

    return nn.Sequential(pair(), pair(), nn.Sequential(nn.Linear(64, 64)))


class _Basic(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.short = nn.Sequential()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> Any:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.short(x))


class ResNet18(nn.Module):
    def __init__(self, classes: int = 100) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        pairs = itertools.pairwise(widths)
        self.layers = nn.Sequential(*(_Basic(a, b, 1 if a == b else 2) for a, b in pairs))
        self.fc = nn.Linear(512, classes)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(F.avg_pool2d(x, 4), 1))


class _Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        outer = 4 * width
        self.conv1 = nn.Conv2d(inner, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outer, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inner = 64
        for place, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
            layers = []
            for block in range(blocks):
                layers.append(_Bottleneck(inner, width, 2 if place > 1 and not block else 1))
                inner = 4 * width
            setattr(self, f"layer{place}", nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for place in range(1, 5):
            x = getattr(self, f"layer{place}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class _Encoder(nn.Module):
    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.dropout = nn.Dropout(0.0)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, inner), nn.GELU(), nn.Dropout(0.0), nn.Linear(inner, width), nn.Dropout(0.0)
        )

    def forward(self, x: torch.Tensor) -> Any:
        y = self.ln_1(x)
        y, _ = self.self_attention(y, y, y, need_weights=False)
        x = self.dropout(y) + x
        return x + self.mlp(self.ln_2(x))


class _Blocks(nn.Module):
    def __init__(self, tokens: int, layers: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens, width))
        self.dropout = nn.Dropout(0.0)
        blocks = ((f"encoder_layer_{i}", _Encoder(width, heads, inner)) for i in range(layers))
        self.layers = nn.Sequential(OrderedDict(blocks))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: torch.Tensor) -> Any:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.zeros(1, 1, 768))
        self.conv_proj = nn.Conv2d(3, 768, 16, 16)
        self.encoder = _Blocks(197, 12, 768, 12, 3072)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(768, 1000)))

    def forward(self, x: torch.Tensor) -> Any:
        n, _, h, w = x.shape
        x = self.conv_proj(x).reshape(n, 768, (h // 16) * (w // 16)).permute(0, 2, 1)
        x = self.encoder(torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1))
        return self.heads(x[:, 0])


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(256, 512, 2, batch_first=True)
        self.fc = nn.Linear(512, 10)

    def forward(self, x: torch.Tensor) -> Any:
        return self.fc(self.rnn(x)[0][:, -1])


class SmallNetwork(nn.Module):
    """The network that ResNet-18 is compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        self.conv2 = nn.Conv2d(32, 64, 3, 2, 1, bias=False)
        self.fc = nn.Linear(64, 100)

    def forward(self, x: torch.Tensor) -> Any:
        x = F.relu(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(x.mean((2, 3)))


def bert_base() -> nn.Module:
    import transformers

    return transformers.BertModel(transformers.BertConfig())


def gpt2() -> nn.Module:
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))


def _image(size: int) -> Callable[[int], torch.Tensor]:
    return lambda batch: torch.zeros(batch, 3, size, size)


def _tokens(batch: int) -> torch.Tensor:
    return torch.ones(batch, 128, dtype=torch.int64)


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "small_test_net": (small_test_net, _image(32)),
    "nested_sequential": (nested_sequential, lambda batch: torch.zeros(batch, 64)),
    "resnet18_cifar100": (ResNet18, _image(32)),
    "resnet50": (ResNet50, _image(224)),
    "tv_vit_b16": (VisionTransformer, _image(224)),
    "bert_base": (bert_base, _tokens),
    "gpt2_s128": (gpt2, _tokens),
    "lstm": (Recurrent, lambda batch: torch.zeros(batch, 100, 256)),
    "small_network": (SmallNetwork, _image(32)),
}
"""Every model, and its input at a batch size."""


@cache
def forward_graph(name: str, batch: int = 1) -> Graph:
    """The inference forward of a model, built without memory."""
    build, inputs = MODELS[name]

    def workload() -> Callable[[], Any]:
        model, x = build().eval(), inputs(batch)

        def forward() -> Any:
            with torch.no_grad():
                return model(x)

        return forward

    with as_for_a_tracer():
        return capture(workload)


class Batches:
    """A loader that is no DataLoader: six images, the last batch smaller."""

    batch_size = 4

    def __init__(self, classes: int = 8192) -> None:
        torch.manual_seed(0)
        self.images, self.labels = torch.rand(6, 3, 32, 32), torch.randint(0, classes, (6,))

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self.images.split(4), self.labels.split(4), strict=True)

    def __len__(self) -> int:
        return 2


def profiler_of(model: nn.Module, name: str = "Original Model") -> TorchProfiler:
    data = TorchProfiler.enable_forward_pass_data_splits({"train": Batches(), "test": Batches()})
    return TorchProfiler(model, data, name=name)
