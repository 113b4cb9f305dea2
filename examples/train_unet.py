"""A small U-Net that learns to mark disks in noisy images; the same losses with and without a memory budget.

python examples/train_unet.py
python examples/train_unet.py --budget 24MiB
"""

from __future__ import annotations

import argparse
import contextlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tensortide


def twice(inputs: int, outputs: int) -> nn.Sequential:
    """Two convolutions, each with batch norm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Halves the image ``levels`` times and doubles it again, with a path across at every size."""

    def __init__(self, filters: int, levels: int) -> None:
        super().__init__()
        wide = [filters << level for level in range(levels + 1)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([1, *wide[:-1]], wide, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, stride=2) for a in reversed(wide[:-1]))
        self.join = nn.ModuleList(twice(2 * a, a) for a in reversed(wide[:-1]))
        self.last = nn.Conv2d(filters, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        across = []
        for stage in self.down:
            across.append(stage(F.max_pool2d(across[-1], 2) if across else x))
        x = across.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([across.pop(), up(x)], 1))
        return self.last(x)


def disks(batch: int, size: int) -> tuple[Tensor, Tensor]:
    """Noisy images of a disk each, and where the disks are."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    middle, radius = torch.rand(batch, 2, 1, 1) * size, torch.rand(batch, 1, 1) * size / 3 + 2
    inside = ((rows - middle[:, 0]) ** 2 + (columns - middle[:, 1]) ** 2 < radius**2).float().unsqueeze(1)
    return inside + torch.randn_like(inside), inside


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="most memory for tensors, such as 24MiB; without it there is no limit")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--filters", type=int, default=8)
    parser.add_argument("--levels", type=int, default=3)
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    model = UNet(options.filters, options.levels)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    with tensortide.budget(options.budget) if options.budget else contextlib.nullcontext():
        for step in range(options.steps):
            images, masks = disks(options.batch, options.size)
            loss = F.binary_cross_entropy_with_logits(model(images), masks)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            print(step, loss.item().hex(), f"{loss.item():.4f}")


if __name__ == "__main__":
    main()
