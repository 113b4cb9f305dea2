"""Models and data by name, for scripts written for deeplite-profiler: put this file beside the script, and import from
it what came from the package of models. Data are those that torchvision finds under the folder, else random.

python examples/deeplite_zoo.py
python examples/deeplite_zoo.py --model mobilenet_v2 --dataset imagenet     # with torchvision
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tensortide.measures import deeplite

try:
    import torchvision
except ImportError:
    torchvision = None


class Images(NamedTuple):
    """A data set: sizes of an image, classes, and its name in torchvision."""

    shape: tuple[int, int, int]
    classes: int
    name: str


DATASETS = {
    "cifar10": Images((3, 32, 32), 10, "CIFAR10"),
    "cifar100": Images((3, 32, 32), 100, "CIFAR100"),
    "mnist": Images((1, 28, 28), 10, "MNIST"),
    "imagenet": Images((3, 224, 224), 1000, ""),
}


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride == 2:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, 2, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet-18 for small images: a 3x3 stem, and no pooling before the last."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 64, 128, 128, 256, 256, 512, 512)
        self.blocks = nn.Sequential(*(Block(a, b) for a, b in itertools.pairwise(widths)))
        self.linear = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.relu(self.bn1(self.conv1(x))))
        return self.linear(F.adaptive_avg_pool2d(y, 1).flatten(1))


def get_model_by_name(
    model_name: str, dataset_name: str, pretrained: bool = False, progress: bool = False
) -> nn.Module:
    """Make a model with random weights, whatever ``pretrained`` asks for."""
    del pretrained, progress
    images = images_of(dataset_name)
    if model_name == "resnet18" and images.shape[1] < 64:
        return ResNet18(images.shape[0], images.classes)
    if torchvision is None:
        raise SystemExit(f"{model_name!r} for {dataset_name!r} comes from torchvision: pip install torchvision")
    return torchvision.models.get_model(model_name, num_classes=images.classes)


def get_data_splits_by_name(
    data_root: str = "",
    dataset_name: str = "cifar100",
    model_name: str = "",
    batch_size: int = 128,
    num_workers: int = 0,
    samples: int = 128,
) -> dict[str, DataLoader[Any]]:
    """Load the splits ``train`` and ``test``; ``samples`` random images each where the data are not there."""
    del model_name
    images = images_of(dataset_name)
    return {
        split: DataLoader(
            stored(images, data_root, split) or made(images, samples), batch_size, num_workers=num_workers
        )
        for split in ("train", "test")
    }


def images_of(name: str) -> Images:
    if name not in DATASETS:
        raise SystemExit(f"there is no data set {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]


def stored(images: Images, root: str, split: str) -> Dataset[Any] | None:
    """The data set under a folder; None without torchvision, or where it is not there."""
    if torchvision is None or not images.name:
        return None
    try:
        load = getattr(torchvision.datasets, images.name)
        return load(root or ".", train=split == "train", transform=torchvision.transforms.ToTensor())
    except RuntimeError:  # it was not downloaded
        return None


def made(images: Images, samples: int) -> Dataset[Any]:
    return TensorDataset(torch.rand(samples, *images.shape), torch.randint(0, images.classes, (samples,)))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--dataset", default="cifar100", choices=DATASETS)
    parser.add_argument("--batch", type=int, default=32)
    given = parser.parse_args(arguments)
    data = get_data_splits_by_name("", given.dataset, given.model, given.batch, samples=given.batch)
    splits = deeplite.TorchProfiler.enable_forward_pass_data_splits(data)
    model = get_model_by_name(given.model, given.dataset)
    profiler = deeplite.TorchProfiler(model, splits, name="Original Model")
    profiler.register_profiler_function(deeplite.ComputeComplexity())
    profiler.register_profiler_function(deeplite.ComputeExecutionTime())
    profiler.register_profiler_function(deeplite.ComputeEvalMetric(deeplite.get_accuracy, "accuracy", unit_name="%"))
    profiler.compute_network_status(batch_size=1, short_print=False, include_weights=True, print_mode="info")


if __name__ == "__main__":
    main()
