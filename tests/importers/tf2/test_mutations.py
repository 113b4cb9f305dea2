"""Damaged SavedModels end in a graph or in one error, in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import tensortide
from tensortide.errors import TensortideError
from tests.importers import truths
from tests.importers.damage import damaged

SMALL = ("cond", "while_constant", "while_from_input", "moe_topk", "embedding_train_step", "mlp")


def try_damaged(folder: Path, count: int, seconds: float = float("inf")) -> int:
    """Read damaged files until so many, or so long. Returns how many were refused."""
    random_, refused, end = random.Random(11), 0, time.monotonic() + seconds
    whole = [(truths.folder() / "savedmodel" / name / "saved_model.pb").read_bytes() for name in SMALL]
    for _ in range(count):
        if time.monotonic() > end:
            break
        (folder / "saved_model.pb").write_bytes(damaged(random_.choice(whole), random_))
        try:
            tensortide.open(folder)
        except TensortideError:
            refused += 1
    return refused


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert 10 < try_damaged(tmp_path, 60) < 60


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert try_damaged(tmp_path, 4_000, seconds=20) > 40
