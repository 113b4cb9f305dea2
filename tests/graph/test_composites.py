"""The table of composite calls: what is not consistent is refused, and files without one are still read."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from tensortide.errors import GraphError
from tensortide.graph import OUTSIDE, TENSOR, Call, Composite, Composites, Graph, load, save, validate
from tests.graphs import Builder


def graph() -> Graph:
    """Three ops, of which one call runs the first two, and one inside it the second."""
    made = Builder()
    tensor = made.storage(4)
    for _ in range(3):
        made.op([tensor], [tensor])
    call = Call("test.whole.default", (("x", TENSOR),), 1)
    runs = (Composite(0, (tensor,), (tensor,), 0, 2), Composite(0, (tensor,), (OUTSIDE,), 1, 2, 0))
    return replace(made.graph(), composites=Composites((call,), runs))


def test_calls_inside_calls_are_valid() -> None:
    table = graph().composites
    assert table is not None
    validate(graph())
    assert table.outermost == (0,)
    assert [run.inputs for run in table.numbered(lambda tensor: tensor + 7).runs] == [(7,), (7,)]


@pytest.mark.parametrize(
    ("run", "change", "message"),
    [
        (0, {"call": 1}, "makes call 1 of 1"),
        (0, {"inputs": ()}, "does not fill the holes"),
        (0, {"outputs": (9,)}, "uses a tensor that is not there"),
        (0, {"module": 0}, "refers to module 0 of 0"),
        (1, {"parent": 1}, "which does not come before it"),
        (0, {"stop": 4}, "runs ops 0 to 4"),
        (1, {"stop": 3}, "runs ops 1 to 3"),
        (1, {"parent": OUTSIDE}, "runs ops 1 to 2"),
    ],
)
def test_what_is_not_consistent_is_refused(run: int, change: dict[str, object], message: str) -> None:
    good = graph()
    assert good.composites is not None
    runs = list(good.composites.runs)
    runs[run] = replace(runs[run], **change)
    with pytest.raises(GraphError, match=message):
        validate(replace(good, composites=replace(good.composites, runs=tuple(runs))))


def test_a_file_of_the_version_before_them_says_that_none_were_recorded(tmp_path: Path) -> None:
    save(graph(), tmp_path / "new.tide")
    data = (tmp_path / "new.tide").read_bytes()
    tables = msgspec.msgpack.decode(zlib.decompress(data[22:]))
    packed = msgspec.msgpack.encode(tables[:-1])
    head = struct.pack(">8sHIQ", b"TIDEGRPH", 2, zlib.crc32(packed), len(packed))
    (tmp_path / "old.tide").write_bytes(head + zlib.compress(packed))
    assert load(tmp_path / "new.tide") == graph()
    assert load(tmp_path / "old.tide") == replace(graph(), composites=None)
