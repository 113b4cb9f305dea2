"""Formulas of a step that reads values: whether its ops depend on them is tried once, not at every setting."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tensortide import symbolic
from tensortide.recorder import tested_assumptions
from tests.recorder.steps import Step


def reading(batch: int = 8, width: int = 16) -> Step:
    model, x = torch.nn.Linear(width, 4), torch.randn(batch, width)

    def step() -> None:
        loss = model(x).pow(2).mean()
        loss.backward()
        if torch.isnan(loss):
            x.view(x.shape[0] if batch < 7777 else 1, -1).sum(1)
        loss.item()

    return step


def test_values_are_tried_once_for_all_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    trials: list[Any] = []
    run: Any = tested_assumptions._try

    def counted(*args: Any, **most: Any) -> Any:
        trials.append(args)
        return run(*args, **most)

    monkeypatch.setattr(tested_assumptions, "_try", counted)
    found = symbolic(reading, over=["batch", "width"])
    assert 4 <= len(trials) < 10
    (nan, loss) = found.formulas.assumptions
    assert "torch.isnan(loss) taken as False" in nan
    assert "the ops of the step depend on it: with True, " in nan
    assert loss.endswith("no other value that was tried changes the ops of the step")
    assert "7777" not in repr(found.formulas)  # a comparison that only a trial has reached
