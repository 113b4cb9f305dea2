"""The facts that a live run knows of an op agree with those that a Graph knows of its call."""

from __future__ import annotations

import pytest
import torch

from tensortide.graph import TENSOR, Call
from tensortide.graph.effects import NORMALISATIONS, STATISTICS, blind_slots
from tensortide.run.operators import Operator, written_by

NAMES = [name.partition(".")[2] for name in NORMALISATIONS if hasattr(torch.ops.aten, name.partition(".")[2])]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_statistics_that_training_updates(name: str, training: bool) -> None:
    func = getattr(torch.ops.aten, name).default
    given = {a.name: training if a.name == "training" else a.name for a in func._schema.arguments}
    updated = set(STATISTICS) if training or "training" not in given else set()
    _, blind = written_by(Operator(func), list(given.values()), {})
    assert set(blind) == updated
    holes = [key for key in given if key in ("input", *STATISTICS)]
    arguments = tuple((key, TENSOR if key in holes else training) for key in given)
    slots = blind_slots(Call(f"aten.{name}.default", arguments, len(arguments)))
    assert {holes[slot] for slot in slots} == updated
