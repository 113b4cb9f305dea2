"""Classification of images, by the scripts that measured it, and the networks that the package has no example of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Step = Callable[[], Any]


def script(model: nn.Module, batch: int, optimizer: str = "adam", classes: int = 1000, side: int = 224) -> Step:
    """The loop of a tutorial: variables of the step before live until they are bound again."""
    model = model.cuda()
    images, labels = torch.randn(batch, 3, side, side), torch.randint(classes, (batch,))
    if optimizer == "adam":
        update: torch.optim.Optimizer = torch.optim.Adam(model.parameters())
    else:
        update = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    held: dict[str, Tensor] = {}

    def step() -> None:
        held.update(inputs=images.cuda(), labels=labels.cuda())
        update.zero_grad()
        held["outputs"] = model(held["inputs"])
        held["loss"] = F.cross_entropy(held["outputs"], held["labels"])
        held["loss"].backward()
        update.step()

    return step


def example(name: str, **settings: Any) -> nn.Module:
    """The model of a built-in workload."""
    from tensortide.examples import find

    (model, _, _) = vars(find(name).load())["__wrapped__"](batch=2, **settings)
    return model  # type: ignore[no-any-return]


class Residual(nn.Module):
    """A body and its input, or a projection of that, added; ``into`` what the body returns, and activated."""

    def __init__(self, body: nn.Module, shortcut: nn.Module | None = None, *, into: bool = False) -> None:
        super().__init__()
        self.body, self.shortcut, self.into = body, shortcut or nn.Identity(), into

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        if not self.into:
            return out + self.shortcut(x)
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


def conv(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> nn.Module:
    """Convolution, batch norm, activation; ``act`` None for none."""
    made = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(made, nn.BatchNorm2d(outputs), *([act(inplace=True)] if act else ()))


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000)]


def resnet(*blocks: int, bottleneck: bool = True, groups: int = 1, width: int = 64) -> nn.Module:
    """ResNet, ResNeXt (``groups`` of ``width``) and wide ResNet (``width`` 128)."""
    layers, inputs = [conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride, base = 2 if stage and not index else 1, 64 << stage
            inner, outputs = (base * width // 64 * groups, 4 * base) if bottleneck else (base, base)
            if bottleneck:
                parts = [conv(inputs, inner), conv(inner, inner, 3, stride, groups), conv(inner, outputs, act=None)]
            else:
                parts = [conv(inputs, inner, 3, stride), conv(inner, outputs, 3, act=None)]
            same = stride == 1 and inputs == outputs
            shortcut = None if same else conv(inputs, outputs, 1, stride, act=None)
            layers.append(Residual(nn.Sequential(*parts), shortcut, into=True))
            inputs = outputs
    return nn.Sequential(*layers, *_head(inputs))


class Gate(nn.Module):
    """Squeeze and excitation: channels scaled by a gate computed from their means."""

    def __init__(self, width: int, inner: int, gate: nn.Module) -> None:
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1), gate

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.up(F.relu(self.down(mean), inplace=True)))


def regnet_y(widths: tuple[int, ...], depths: tuple[int, ...], group: int) -> nn.Module:
    """RegNetY: grouped bottlenecks with gates."""
    layers, inputs = [conv(3, 32, 3, 2)], 32
    for width, depth in zip(widths, depths, strict=True):
        for index in range(depth):
            stride = 1 if index else 2
            gate = Gate(width, inputs // 4, nn.Sigmoid())
            body = nn.Sequential(
                conv(inputs, width), conv(width, width, 3, stride, width // group), gate, conv(width, width, act=None)
            )
            shortcut = None if index else conv(inputs, width, 1, stride, act=None)
            layers += [Residual(body, shortcut), nn.ReLU(inplace=True)]
            inputs = width
    return nn.Sequential(*layers, *_head(inputs))


_V3 = (
    (3, 16, 16, 0, nn.ReLU, 1), (3, 64, 24, 0, nn.ReLU, 2), (3, 72, 24, 0, nn.ReLU, 1), (5, 72, 40, 24, nn.ReLU, 2),
    (5, 120, 40, 32, nn.ReLU, 1), (5, 120, 40, 32, nn.ReLU, 1), (3, 240, 80, 0, nn.Hardswish, 2),
    (3, 200, 80, 0, nn.Hardswish, 1), (3, 184, 80, 0, nn.Hardswish, 1), (3, 184, 80, 0, nn.Hardswish, 1),
    (3, 480, 112, 120, nn.Hardswish, 1), (3, 672, 112, 168, nn.Hardswish, 1), (5, 672, 160, 168, nn.Hardswish, 2),
    (5, 960, 160, 240, nn.Hardswish, 1), (5, 960, 160, 240, nn.Hardswish, 1),
)  # fmt: skip
"""Kernel, expanded and output channels, channels of the gate, activation, stride."""


def mobilenet_v3() -> nn.Module:
    """MobileNetV3 large."""
    layers, inputs = [conv(3, 16, 3, 2, act=nn.Hardswish)], 16
    for kernel, inner, outputs, gate, act, stride in _V3:
        body = [conv(inputs, inner, act=act)] if inner != inputs else []
        body.append(conv(inner, inner, kernel, stride, inner, act))
        body += [Gate(inner, gate, nn.Hardsigmoid())] if gate else []
        body.append(conv(inner, outputs, act=None))
        block = nn.Sequential(*body)
        layers.append(Residual(block) if stride == 1 and inputs == outputs else block)
        inputs = outputs
    last = [conv(160, 960, act=nn.Hardswish), nn.AdaptiveAvgPool2d(1), nn.Conv2d(960, 1280, 1), nn.Hardswish(True)]
    return nn.Sequential(*layers, *last, nn.Flatten(), nn.Linear(1280, 1000))


class Mixed(nn.Module):
    """ConvNeXt's block: a depthwise convolution, then two linear layers on channels that lie last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mlp = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        out = self.mlp(self.spread(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return out.mul(self.scale.reshape(1, -1, 1, 1)) + x


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of an image."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(*depths: int) -> nn.Module:
    """ConvNeXt tiny and small."""
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for stage, depth in enumerate(depths):
        width = 96 << stage
        if stage:
            layers += [ChannelNorm(width // 2), nn.Conv2d(width // 2, width, 2, 2)]
        layers += [Mixed(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(768), nn.Linear(768, 1000))


class Across(nn.Module):
    """Two linear layers over dimension 1 of what a norm returns."""

    def __init__(self, norm: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm, self.mlp = norm, mlp

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x).transpose(1, 2)).transpose(1, 2)


class Patches(nn.Conv2d):
    """Patches of an image as a sequence."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).flatten(2).transpose(1, 2)


class Mean(nn.Module):
    """The mean over dimension 1."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def mixer() -> nn.Module:
    """MLP-Mixer B/16."""

    def mlp(width: int, inner: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    layers: list[nn.Module] = [Patches(3, 768, 16, 16)]
    for _ in range(12):
        layers.append(Residual(Across(nn.LayerNorm(768), mlp(196, 384))))
        layers.append(Residual(nn.Sequential(nn.LayerNorm(768), mlp(768, 3072))))
    return nn.Sequential(*layers, nn.LayerNorm(768), Mean(), nn.Linear(768, 1000))


def _vit(width: int, heads: int) -> nn.Module:
    return example("vit", hidden=width, heads=heads, intermediate=4 * width)


NETS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "gmn-vgg16": (lambda: example("vgg"), "adam"),
    "gmn-resnet50": (lambda: resnet(3, 4, 6, 3), "adam"),
    "gmn-mobilenet_v2": (lambda: example("mobilenet_v2"), "adam"),
    "gmnt-resnet18": (lambda: resnet(2, 2, 2, 2, bottleneck=False), "sgd"),
    "gmnt-resnet34": (lambda: resnet(3, 4, 6, 3, bottleneck=False), "sgd"),
    "gmnt-resnet50": (lambda: resnet(3, 4, 6, 3), "sgd"),
    "gmnt-resnet101": (lambda: resnet(3, 4, 23, 3), "sgd"),
    "gmnt-resnext50_32x4d": (lambda: resnet(3, 4, 6, 3, groups=32, width=4), "sgd"),
    "gmnt-wide_resnet50_2": (lambda: resnet(3, 4, 6, 3, width=128), "sgd"),
    "gmnt-mobilenetv2_100": (lambda: example("mobilenet_v2"), "sgd"),
    "gmnt-mobilenetv3_large_100": (mobilenet_v3, "sgd"),
    "gmnt-regnety_016": (lambda: regnet_y((48, 120, 336, 888), (2, 6, 17, 2), 24), "sgd"),
    "gmnt-regnety_040": (lambda: regnet_y((128, 192, 512, 1088), (2, 6, 12, 2), 64), "sgd"),
    "gmnt-convnext_tiny": (lambda: convnext(3, 3, 9, 3), "sgd"),
    "gmnt-convnext_small": (lambda: convnext(3, 3, 27, 3), "sgd"),
    "gmnt-vit_tiny_patch16_224": (lambda: _vit(192, 3), "sgd"),
    "gmnt-vit_small_patch16_224": (lambda: _vit(384, 6), "sgd"),
    "gmnt-vit_base_patch16_224": (lambda: _vit(768, 12), "sgd"),
    "gmnt-mixer_b16_224": (mixer, "sgd"),
}
"""Nets of GPUMemNet's rows and the optimizer of its script, or the default of timm's, by the row without its batch."""
