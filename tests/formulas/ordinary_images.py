"""Models of images and recommendations as people write them; cases as in ``ordinary.py``."""

# the call of a module returns whatever its forward does
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.formulas.ordinary import Step, case, classify, fit, training
from tests.formulas.ordinary_models import CASES

__all__ = ["CASES"]


def _twos(s: dict[str, int]) -> None:
    s["image"] = 2 ** s["depth"] * max(1, s["image"] // 2 ** s["depth"])


@case(mend=_twos, depth=6, image=1024)
def small_unet(batch: int = 4, image: int = 64, filters: int = 16, depth: int = 3) -> Step:
    """Widths double on the way down; what was there is concatenated on the way up."""

    def pair(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU()
        )

    widths = [filters * 2**level for level in range(depth + 1)]
    down = nn.ModuleList(pair(i, o) for i, o in zip([3, *widths], widths, strict=False))
    grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
    up = nn.ModuleList(pair(2 * w, w) for w in reversed(widths[:-1]))

    def loss() -> Tensor:
        x, seen = torch.randn(batch, 3, image, image), []
        for level, layer in enumerate(down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            seen.append(x)
        for larger, layer, before in zip(grow, up, reversed(seen[:-1]), strict=True):
            x = layer(torch.cat([before, larger(x)], 1))
        return x.square().mean()

    return training([*down.parameters(), *grow.parameters(), *up.parameters()], loss)


def _divisible(width: float, by: int = 8) -> int:
    rounded = max(by, int(width + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * width else rounded


@case(blocks=6, image=512)
def rounded_resnet(batch: int = 8, image: int = 32, percent: int = 100, blocks: int = 2, classes: int = 10) -> Step:
    """Widths times percent/100, rounded to multiples of 8."""

    class Residual(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.a, self.b = (
                nn.Conv2d(inputs, width, 3, stride, 1, bias=False),
                nn.Conv2d(width, width, 3, 1, 1, bias=False),
            )
            self.norms = nn.ModuleList([nn.BatchNorm2d(width), nn.BatchNorm2d(width)])
            self.short = nn.Conv2d(inputs, width, 1, stride) if stride > 1 or inputs != width else nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return F.relu(self.norms[1](self.b(F.relu(self.norms[0](self.a(x))))) + self.short(x))

    layers: list[nn.Module] = [nn.Conv2d(3, _divisible(16 * percent / 100), 3, 1, 1)]
    inputs = _divisible(16 * percent / 100)
    for group in range(3):
        width = _divisible(16 * 2**group * percent / 100)
        for block in range(blocks):
            layers.append(Residual(inputs, width, 2 if group and not block else 1))
            inputs = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return classify(model, torch.randn(batch, 3, image, image), classes)


@case(mend=lambda s: s.update(image=4 * max(1, s["image"] // 4)), image=512)
def small_cnn(batch: int = 64, channels: int = 1, image: int = 28, width: int = 32, classes: int = 10) -> Step:
    """The first network of every tutorial."""
    model = nn.Sequential(
        nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2 * width * (image // 4) ** 2, 128), nn.ReLU(), nn.Linear(128, classes),
    )  # fmt: skip
    return classify(model, torch.randn(batch, channels, image, image), classes)


@case()
def vae(batch: int = 64, inputs: int = 784, hidden: int = 400, latent: int = 20) -> Step:
    """A variational autoencoder."""
    encoder, decoder = (
        nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 2 * latent)),
        nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, inputs)),
    )
    x = torch.rand(batch, inputs)

    def loss() -> Tensor:
        mean, log = encoder(x).chunk(2, -1)
        out = decoder(mean + torch.randn_like(log) * (log / 2).exp())
        return (
            F.binary_cross_entropy_with_logits(out, x, reduction="sum")
            - (1 + log - mean.square() - log.exp()).sum() / 2
        )

    return training([*encoder.parameters(), *decoder.parameters()], loss, adam=True)


@case()
def gan(batch: int = 32, latent: int = 64, hidden: int = 128, points: int = 2) -> Step:
    """Two networks and two optimizers in one step."""
    made = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, points))
    judge = nn.Sequential(nn.Linear(points, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))
    first, second = (torch.optim.Adam(model.parameters()) for model in (made, judge))

    def step() -> None:
        fake = made(torch.randn(batch, latent))
        second.zero_grad()
        (F.softplus(-judge(torch.randn(batch, points))).mean() + F.softplus(judge(fake.detach())).mean()).backward()
        second.step()
        first.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        first.step()

    return step


@case(features=40)
def recommender(batch: int = 128, features: int = 8, width: int = 16, rows: int = 10000) -> Step:
    """A table per feature, and products of all pairs."""
    tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(features))
    pairs = features * (features - 1) // 2
    head = nn.Sequential(nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 1))
    ids = torch.randint(rows, (batch, features))
    i, j = torch.tril_indices(features, features, -1)

    def loss() -> Tensor:
        x = torch.stack([table(ids[:, index]) for index, table in enumerate(tables)], 1)
        return head(torch.cat([x.mean(1), (x @ x.transpose(1, 2))[:, i, j]], 1)).square().mean()

    return training([*tables.parameters(), *head.parameters()], loss)


@case(blocks=8)
def upsampled(batch: int = 2, start: int = 4, width: int = 64, blocks: int = 3) -> Step:
    """Images twice as large after every block, channels half as many, 8 at least."""
    layers: list[nn.Module] = []
    for block in range(blocks):
        inputs, outputs = (max(8, width // 2**n) for n in (block, block + 1))
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
    return fit(nn.Sequential(*layers), torch.randn(batch, max(8, width), start, start))
