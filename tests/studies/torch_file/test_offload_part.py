"""The part of written files that moves saved tensors, on programs that save one storage several times."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tensortide.recorder.torch_file import offload
from tensortide.recorder.torch_file.applied import Applied

SIDE = 16


class Branches(nn.Module):
    """Saves ``h`` for a branch that nothing differentiates, changes it if told to, and saves it again."""

    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.changes, self.linear = changes, nn.Linear(SIDE, SIDE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        square = h.square()
        if self.changes:
            h = h.mul_(0.5)
        self.logged = square.detach().mean()
        del square
        total: torch.Tensor = h.sin().sum()
        return total


def gradients(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(x).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("changes", [False, True])
def test_a_storage_that_is_saved_twice_comes_back_as_it_was_each_time(
    changes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = Branches(changes), torch.randn(SIDE, SIDE)
    plain = gradients(model, x)
    nbytes = 4 * SIDE * SIDE
    keys = [("", number) for number in range(4)]
    monkeypatch.setattr(offload, "POOL_BYTES", nbytes)
    monkeypatch.setattr(offload, "PLACES", ((0, nbytes),))
    made: list[offload.Offload] = []
    init = offload.Offload.__init__

    def remembered(self: offload.Offload, device: torch.device) -> None:
        init(self, device)
        made.append(self)

    monkeypatch.setattr(offload.Offload, "__init__", remembered)
    monkeypatch.setattr(offload, "MOVED", dict.fromkeys(keys, 0))
    applied = Applied()
    offload.offload_saved(model, "", applied)
    for _ in range(2):
        moved = gradients(model, x)
        assert all(torch.equal(one, other) for one, other in zip(plain, moved, strict=True))
        assert made[0].places[0].fetched is None
        assert made[0].places[0].tensors <= 0
    applied.remove()
