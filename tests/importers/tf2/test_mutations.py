"""Damaged SavedModels end in a graph or in one error, in bounded time."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

import tensortide
from tensortide.errors import TensortideError
from tests.importers import truths

SMALL = ("cond", "while_constant", "while_from_input", "moe_topk", "embedding_train_step", "mlp")


def mutated(data: bytes, random_: random.Random) -> bytes:
    """Bytes changed, cut out, doubled or put in, at one to four places."""
    found = bytearray(data)
    kinds = random_.choice((1, 2, 5))
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(found))
        match random_.randrange(kinds):
            case 0:
                found[at] = random_.randrange(256)
            case 1:
                found[at] ^= 1 << random_.randrange(8)
            case 2:
                del found[at : at + random_.randint(1, 16)]
            case 3:
                found[at:at] = found[at : at + random_.randint(1, 64)]
            case _:
                found[at:at] = random_.choice((b"\xff" * 9, b"\x00", b"\x80\x80\x80\x80\x01"))
    return bytes(found)


def try_mutations(folder: Path, count: int, seconds: float = float("inf")) -> int:
    """Read damaged files until so many, or so long. Returns how many were refused."""
    random_, refused, end = random.Random(11), 0, time.monotonic() + seconds
    whole = [(truths.folder() / "savedmodel" / name / "saved_model.pb").read_bytes() for name in SMALL]
    for _ in range(count):
        if time.monotonic() > end:
            break
        (folder / "saved_model.pb").write_bytes(mutated(random_.choice(whole), random_))
        try:
            tensortide.open(folder)
        except TensortideError:
            refused += 1
    return refused


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert try_mutations(tmp_path, 60) > 10


@pytest.mark.slow
def test_many_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    assert try_mutations(tmp_path, 10_000, seconds=50) > 100
