"""Models with ops that few have: each is the whole step on replicas and on tensor ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensortide import capture
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of
from tests.parallelism.divided import Divided

BATCH = 4


def made(model: nn.Module, *inputs: torch.Tensor, loss: Any = F.mse_loss, target: torch.Tensor | None = None) -> Any:
    """A step of ``model`` on ``inputs`` with plain descent."""
    wanted = torch.zeros_like(model(*inputs)) if target is None else target
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(*inputs), wanted).backward()
        optimizer.step()

    return step


def images(*layers: nn.Module, channels: int = 4, size: int = 8, space: int = 2) -> Any:
    return made(nn.Sequential(*layers), torch.randn(BATCH, channels, *[size] * space))


def super_resolution() -> Any:
    return images(nn.Conv2d(4, 16, 3, padding=1), nn.PReLU(16), nn.Conv2d(16, 16, 1), nn.PixelShuffle(2), nn.PReLU())


def unshuffled() -> Any:
    return images(nn.PixelUnshuffle(2), nn.Conv2d(16, 8, 1), nn.Tanh(), nn.Conv2d(8, 4, 1))


class Products(nn.Module):
    """A product of three factors."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = nn.Linear(8, 16), nn.Linear(8, 16), nn.Bilinear(16, 16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.both(torch.tanh(self.left(x)), torch.tanh(self.right(x)))  # type: ignore[no-any-return]


def bilinear() -> Any:
    return made(Products(), torch.randn(BATCH, 3, 8))


def normalized_instances() -> Any:
    """Their norm repeats its weight for every image."""
    return images(nn.Conv2d(4, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.SiLU(), nn.Conv2d(8, 4, 1))


class Resampled(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.up, self.down, self.mode = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 1), mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.interpolate(self.up(x), scale_factor=2.0, mode=self.mode))  # type: ignore[no-any-return]


def bicubic() -> Any:
    return images(Resampled("bicubic"))


def nearest() -> Any:
    return images(Resampled("nearest"))


def volumes() -> Any:
    layers = (nn.Conv3d(2, 8, 3, padding=1), nn.MaxPool3d(2), nn.Conv3d(8, 4, 1), nn.AvgPool3d(2))
    return images(*layers, channels=2, space=3)


class Transformed(nn.Module):
    """A spatial transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.place, self.convolution = nn.Linear(4 * 16, 6), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = self.place(x.flatten(1)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.convolution(F.grid_sample(x, grid, align_corners=False))  # type: ignore[no-any-return]


def transformed() -> Any:
    return images(Transformed(), size=4)


class Patches(nn.Module):
    """Patches of an image, by a view that has those of each row apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5)
        return self.head(torch.tanh(self.embed(parts.reshape(x.shape[0], 16, 16))))  # type: ignore[no-any-return]


def patches() -> Any:
    return images(Patches())


class Recommender(nn.Module):
    """Bags of rows of a table, and a loss whose gradient divides by the number of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.dense, self.out = nn.EmbeddingBag(8, 8, mode="sum"), nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return self.out(self.dense(x) * self.table(rows))  # type: ignore[no-any-return]


def recommender() -> Any:
    given = torch.randn(BATCH, 4), torch.randint(0, 8, (BATCH, 3))
    return made(Recommender(), *given, loss=F.binary_cross_entropy_with_logits, target=torch.rand(BATCH, 1))


def absolute_errors() -> Any:
    return made(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8)), torch.randn(BATCH, 8), loss=F.l1_loss)


def weight_norm() -> Any:
    first = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))
    return made(nn.Sequential(first, nn.Softshrink(), nn.Linear(16, 8)), torch.randn(BATCH, 8))


def shuffled_channels() -> Any:
    return images(nn.Conv2d(4, 8, 1), nn.ChannelShuffle(2), nn.Tanh(), nn.Conv2d(8, 4, 1))


def transcribed() -> Any:
    targets, lengths = torch.randint(1, 8, (BATCH, 3)), (torch.full((BATCH,), 12), torch.full((BATCH,), 3))

    def loss(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        return F.ctc_loss(scores.log_softmax(-1).transpose(0, 1), wanted, *lengths)

    return made(nn.Linear(8, 10), torch.randn(BATCH, 12, 8), loss=loss, target=targets)


MODELS: list[Callable[[], Any]] = [
    *(super_resolution, unshuffled, bilinear, normalized_instances, bicubic, nearest, volumes, transformed, patches),
    *(recommender, absolute_errors, weight_norm, shuffled_channels, transcribed),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
@pytest.mark.parametrize("degrees", [{"data": 2}, {"tensor": 2}], ids=["data", "tensor"])
def test_every_model_is_the_whole_step(model: Callable[[], Any], degrees: dict[str, int]) -> None:
    lengths = {"lengths[0]": torch.full((BATCH,), 12), "lengths[1]": torch.full((BATCH,), 3)}
    given = {**lengths, "wanted": torch.randint(1, 8, (BATCH, 3))} if model is transcribed else {}
    Divided(capture(model, real=True), given, **degrees).assert_equal()


@pytest.mark.parametrize("model", [super_resolution, bilinear], ids=["pixels", "bilinear"])
def test_products_beside_them_are_divided(model: Callable[[], Any]) -> None:
    ranks = per_rank(capture(model, real=True), Degrees(tensor=2))
    assert "aten._trilinear.default" not in {each.op for each in ranks.replicated}
    assert "aten.convolution.default" not in {each.op for each in ranks.replicated}


def test_nodes_of_a_graph_are_no_batch() -> None:
    """More inputs have them than samples, but products sum over them."""

    class Convolved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            return self.second(edges @ torch.relu(edges @ self.first(x)))  # type: ignore[no-any-return]

    graph = capture(lambda: made(Convolved(), torch.randn(BATCH, 6, 8), torch.rand(BATCH, 6, 6)), real=True)
    assert batch_of(analyzed(graph)).dimension == 0
    Divided(graph, data=2).assert_equal()
