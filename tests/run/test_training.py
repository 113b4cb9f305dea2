"""Training loops of every kind leave the same behind under a budget."""

from __future__ import annotations

import os

import pytest

from tests.marks import some_slow
from tests.run.layers import QUICK
from tests.run.same import squeezed
from tests.run.training import OPTIMIZERS, Training

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # PyTorch's own, in its jvp

POLICIES = ("dtr-eq", "dtr", "dtr-eq+sqrt", "lru", "msps", "random")
SEEDS = range(200 if os.environ.get("TENSORTIDE_LIVE") else len(POLICIES))
SHARES = (0.8, 0.9, 0.95)
"""With less, some policies run many thousand ops again, which shows nothing else."""


@pytest.mark.parametrize("place", some_slow(range(12), range(6, 12)))
def test_layers_leave_the_same_behind(place: int) -> None:
    """Three at a time."""
    names = ["residual", *QUICK[place::12]]
    squeezed(lambda: Training(place, names), POLICIES[place % len(POLICIES)], SHARES, steps=1)


@pytest.mark.slow
def test_a_layer_in_forward_mode_leaves_the_same_behind() -> None:
    squeezed(lambda: Training(3, ["residual", "forward-mode", "rnn"]), "lru", SHARES, steps=1)


@pytest.mark.parametrize("name", some_slow(sorted(OPTIMIZERS), sorted(OPTIMIZERS)[1::2]))
def test_optimizers_leave_the_same_behind(name: str) -> None:
    squeezed(lambda: Training(1, ["residual", "dropout"], name), "dtr-eq", SHARES, steps=1)


@pytest.mark.parametrize("seed", some_slow(SEEDS, {0, 3, 5}))
def test_random_loops_leave_the_same_behind(seed: int) -> None:
    squeezed(lambda: Training(seed), POLICIES[seed % len(POLICIES)], SHARES, steps=3)
