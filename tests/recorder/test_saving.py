"""What a step on fake tensors saves: nothing, and it spoils no file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import tensortide


@pytest.mark.parametrize("options", [{}, {"device": "cuda"}])
def test_a_step_on_fake_tensors_leaves_a_checkpoint_as_it_is(tmp_path: Path, options: dict[str, Any]) -> None:
    checkpoint = tmp_path / "last.pt"
    checkpoint.write_text("of an earlier run")
    model = torch.nn.Linear(4, 4)

    def step() -> None:
        model(torch.ones(2, 4)).sum().backward()
        torch.save(model.state_dict(), checkpoint)

    graph = tensortide.capture(step, **options)
    assert checkpoint.read_text() == "of an earlier run"
    said = [text for text in graph.meta.assumptions if "torch.save wrote no file" in text]
    assert len(said) == 1
    assert "test_saving.py:22" in said[0]


def test_a_step_on_real_tensors_saves_them(tmp_path: Path) -> None:
    checkpoint = tmp_path / "last.pt"
    model = torch.nn.Linear(4, 4)
    tensortide.capture(lambda: torch.save(model(torch.ones(2, 4)).detach(), checkpoint), real=True)
    assert torch.load(checkpoint).shape == (2, 4)
