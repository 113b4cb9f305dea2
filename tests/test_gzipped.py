"""Files compressed with gzip are read like plain ones, unless they unpack to more than is plausible."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tensortide import gzipped
from tensortide.errors import TensortideError
from tensortide.gzipped import MOST_RATIO, SMALL_BYTES, GzipError, open_gzip, read_gzip, unpack_gzip
from tensortide.importers.chakra.files import read_chakra
from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.memory_snapshot.records import read_snapshot
from tensortide.importers.tensorflow.reading import raw
from tensortide.importers.textfile import read_text
from tensortide.timing.json_stream import members
from tensortide.timing.kineto import read_trace
from tensortide.timing.listed import from_list
from tensortide.timing.samples import read_rows
from tests.cli.command import fails
from tests.graphs import Builder

MIB = 1 << 20
TEXT = b"".join(b"op %d\n" % number for number in range(3000))


def blanks(mebibytes: int, unit: bytes = b" ") -> bytes:
    """Compressed blanks, a thousandth of their size, made at once: each member of the file is the same."""
    return gzip.compress(unit * (MIB // len(unit))) * mebibytes


@pytest.mark.parametrize("data", [TEXT, gzip.compress(TEXT), gzip.compress(TEXT[:7]) + gzip.compress(TEXT[7:])])
def test_a_file_reads_the_same_plain_and_compressed(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert read_gzip(path) == unpack_gzip(data) == TEXT
    with open_gzip(path) as file:
        assert file.readline() == b"op 0\n"
        assert file.read() == TEXT[5:]


def test_a_file_that_is_cut_off_anywhere_is_damaged(tmp_path: Path) -> None:
    path, data = tmp_path / "file.gz", gzip.compress(b"a trace")
    for length in range(2, len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(GzipError, match=r"is damaged \(gzip\)"):
            read_gzip(path)


def mixed(ratio: float, nbytes: int) -> bytes:
    """Compressed data that unpack to ``nbytes``, ``ratio`` times as many as they are: noise among blanks."""
    draw, piece = random.Random(0), MIB // 4
    noise = int(piece / ratio - piece / 1030)
    return gzip.compress(b"".join(draw.randbytes(noise) + bytes(piece - noise) for _ in range(nbytes // piece)))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes to which a file may unpack in any case: an eighth of what they are, since random bytes take long."""
    monkeypatch.setattr(gzipped, "SMALL_BYTES", SMALL_BYTES // 8)
    return SMALL_BYTES // 8


def test_the_limit_is_where_it_is_said_to_be(small: int) -> None:
    below, above = mixed(0.98 * MOST_RATIO, 2 * small), mixed(1.2 * MOST_RATIO, 2 * small)
    ratios = [2 * small / MOST_RATIO / len(packed) for packed in (below, above)]
    assert 0.85 < ratios[0] < 1 < ratios[1] < 1.15, ratios
    assert len(unpack_gzip(below)) == 2 * small
    with pytest.raises(GzipError, match=f"unpacks to more than {MOST_RATIO} times its size"):
        unpack_gzip(above)
    assert len(unpack_gzip(blanks(small // MIB))) == small


def test_the_most_regular_trace_is_below_the_limit(small: int) -> None:
    stack = "; ".join(f"/opt/python3.11/site-packages/torch/nn/modules/module_{n}.py: _call_impl" for n in range(60))
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "dur": 7, "args": {"Call stack": stack}}
    text = json.dumps([{**event, "ts": 10 * number} for number in range(700)], indent=2).encode()
    packed = gzip.compress(text)
    assert len(text) > small
    assert 80 < len(text) / len(packed) < MOST_RATIO
    assert unpack_gzip(packed) == text


def test_what_unpacks_to_gigabytes_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(blanks(3000))
    assert path.stat().st_size < 4 * MIB
    tracemalloc.start()
    try:
        with open_gzip(path) as file, pytest.raises(GzipError):
            any(not file.read(MIB) for _ in range(3000))
        with pytest.raises(GzipError):
            read_gzip(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * SMALL_BYTES
    finally:
        tracemalloc.stop()


def test_a_file_is_refused_above_the_most_bytes_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file.gz"
    path.write_bytes(blanks(3))
    assert len(read_gzip(path, most_bytes=3 * MIB)) == 3 * MIB
    with pytest.raises(GzipError, match="unpacks to more than 2 MiB"):
        read_gzip(path, most_bytes=2 * MIB)


def listed(path: Path) -> object:
    return from_list(Builder().graph(), path)


READERS: dict[str, tuple[Callable[[Path], object], bytes]] = {
    "trace": (read_trace, b'{"schemaVersion": 1, "traceEvents": ['),
    "execution trace": (lambda path: [*members(path, "nodes", "trace")], b'{"schema": "1.1.0", "nodes": ['),
    "list of times": (listed, b"op,ns\n"),
    "Chakra": (read_chakra, b""),
    "text": (read_text, b""),
    "log": (read_recording, b'{"INSTRUCTION":"ANNOTATE","ANNOTATION":"START"}\n'),
    "snapshot": (read_snapshot, b"\x80\x04"),
    "MetaGraph": (raw.load, b""),
    "measured times": (read_rows, b""),
}


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_what_unpacks_to_far_more(name: str, tmp_path: Path) -> None:
    read, head = READERS[name]
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(head) + blanks(64))
    with pytest.raises(TensortideError, match=r"bomb\.gz.* unpacks to more than 200 times its size") as refused:
        read(path)
    assert "\n" not in str(refused.value)


def test_blank_lines_without_end_are_no_log(tmp_path: Path) -> None:
    path = tmp_path / "bomb.log.gz"
    path.write_bytes(gzip.compress(READERS["log"][1]) + blanks(2, b"\n"))
    with pytest.raises(TensortideError, match=r"bomb\.log\.gz, line 1000002: more than 1,000,000 blank lines"):
        read_recording(path)


def test_the_command_line_says_so_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(
        gzip.compress(READERS["trace"][1] + b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 1},')
        + blanks(64)
    )
    said = fails(capsys, "count", path)
    assert said == (
        f"error: {path} unpacks to more than 200 times its size: if that is intended, decompress it with gunzip first\n"
    )
