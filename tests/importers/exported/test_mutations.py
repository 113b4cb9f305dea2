"""Damaged archives: each is one error that names the file, or a valid graph, in bounded time and memory."""

from __future__ import annotations

import random
import time
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.errors import TensortideError
from tensortide.graph import validate
from tests.importers.exported.archives import opened
from tests.importers.mutations import PIECES

LONGEST_S, LARGEST = 5.0, 256 << 20
"""Seconds of this process, and bytes, that reading a file may take."""


def mutated(data: bytes, draw: random.Random) -> bytes:
    """``data`` after a change of bytes, or of the text of one of its parts, which is packed again."""
    if draw.random() < 0.3:
        return changed(data, draw)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    texts = [name for name in parts if name.endswith(".json") and len(parts[name]) > 20]
    name = draw.choice(texts)
    for _ in range(draw.randint(1, 3)):
        parts[name] = changed_text(parts[name], draw)
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for each, part in parts.items():
            archive.writestr(each, part)
    return packed.getvalue()


def changed(data: bytes, draw: random.Random) -> bytes:
    """``data`` cut, or with bytes flipped, doubled or left out."""
    at = draw.randrange(len(data))
    length = draw.choice((1, 2, 4, 64, 4096))
    match draw.randrange(5):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + draw.randbytes(length) + data[at + length :]
        case 2:
            return data[:at] + data[at + length :]
        case 3:
            return data[: at + length] + data[at:]
    flipped = bytearray(data)
    for _ in range(length):
        flipped[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(flipped)


def changed_text(data: bytes, draw: random.Random) -> bytes:
    """``data`` with one value, by commas and colons, replaced: by another of it, or by something odd."""
    ends = [at for at, byte in enumerate(data) if byte in b",:{}[]"]
    if len(ends) < 3:
        return data + b"}"
    at = draw.randrange(len(ends) - 1)
    other = draw.randrange(len(ends) - 1)
    odd = draw.choice((data[ends[other] + 1 : ends[other + 1]], draw.choice(PIECES).encode(), b"null", b"-1", b"1e400",
                       b"4611686018427387904", b'"s0*s1"', b"[]", b"{}", b"true"))  # fmt: skip
    return data[: ends[at] + 1] + odd + data[ends[at + 1] :]


def assert_refused_or_read(path: Path) -> bool:
    """Open a file. Returns True if it was read."""
    started, graph, refusal = time.process_time(), None, ""
    try:
        graph = opened(path)
    except TensortideError as error:
        refusal = str(error)
    assert time.process_time() - started < LONGEST_S
    if graph is None:
        assert path.name in refusal
        return False
    validate(graph)
    count(graph)
    return True


def run(files: list[Path], path: Path, seed: int, tries: int) -> int:
    """Try so many mutations. Returns how many were read."""
    draw, read = random.Random(seed), 0
    data = [file.read_bytes() for file in files]
    for _ in range(tries):
        path.write_bytes(mutated(draw.choice(data), draw))
        read += assert_refused_or_read(path)
    return read


def small(reference: Path) -> list[Path]:
    return [reference / "importers" / "pt2" / f"{name}.pt2" for name in ("cond", "mlp", "moe_topk", "embedding_loss")]


def test_mutations(reference: Path, tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        read = run(small(reference), tmp_path / "mutated.pt2", 1, 15)
        assert tracemalloc.get_traced_memory()[1] < LARGEST
    finally:
        tracemalloc.stop()
    assert 0 < read < 15


@pytest.mark.slow
def test_many_mutations(reference: Path, tmp_path: Path) -> None:
    files = sorted((reference / "importers" / "pt2").glob("*.pt2"))
    read = run(files, tmp_path / "mutated.pt2", 2, 250)
    assert 0 < read < 250
