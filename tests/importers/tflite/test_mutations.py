"""Damaged flat buffers end in a graph or in one error, in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import tensortide
from tensortide.cost import count
from tensortide.errors import TensortideError
from tests.importers import truths
from tests.importers.damage import damaged


def try_damaged(folder: Path, number: int, seconds: float = float("inf")) -> int:
    """Read damaged files until so many, or so long. Returns how many were refused."""
    random_, refused, end = random.Random(7), 0, time.monotonic() + seconds
    whole = [(truths.folder() / f"{name}.tflite").read_bytes() for name in truths.named("tflite")]
    tables = [data for data in whole for _ in range(2)] + [data[:500] + data[-4000:] for data in whole]
    file = folder / "model.tflite"
    for _ in range(number):
        if time.monotonic() > end:
            break
        data = random_.choice(tables)
        # the tables lie at both ends, and are what damage is to reach
        file.write_bytes(damaged(data[:400], random_) + data[400:-5000] + damaged(data[-5000:], random_))
        try:
            assert count(tensortide.open(file).graph).total.macs >= 0
        except TensortideError:
            refused += 1
    return refused


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert 20 < try_damaged(tmp_path, 200) < 200


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert try_damaged(tmp_path, 4_000, seconds=20) > 400
