"""The graph file: what is saved is what is loaded; anything else is one clear error."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest

from tensortide import capture, save
from tensortide.errors import GraphError, GraphFileError, OutputError
from tensortide.graph import (
    TENSOR,
    Branch,
    Call,
    Const,
    Graph,
    Meta,
    Named,
    Op,
    Phase,
    Role,
    Storage,
    Tensor,
    load,
    validate,
)
from tests.recorder.workloads import ALL


def tiny() -> Graph:
    """One op of each argument kind on one storage."""
    values = (TENSOR, (1, (2.5, None)), True, "text", Const("dtype", "float32"), 1 << 70, 2 + 3j, float("-inf"))
    call = Call("aten.f.default", tuple((f"a{i}", v) for i, v in enumerate(values)), 3, (0,), (TENSOR, None), ("t",))
    return Graph(
        ops=(Op(0, (0,), (0,), Phase.FORWARD), Op(0, (0,), (0,), Phase.BACKWARD)),
        calls=(call,),
        tensors=(Tensor(0, "float32", (2, 3), (3, 1)),),
        storages=(Storage(24, "cpu", Role.PARAMETER, None, None, "w"),),
        named=(Named("w", Role.PARAMETER, 0, True),),
        meta=Meta(workload="tiny", hyperparameters={"batch": 2, "lr": 0.5, "kind": "a", "x": None}),
    )


def test_every_kind_of_argument_survives(tmp_path: Path) -> None:
    save(tiny(), tmp_path / "g.tide")
    again = load(tmp_path / "g.tide")
    assert again == tiny()
    assert [type(v) for _, v in again.calls[0].arguments] == [type(v) for _, v in tiny().calls[0].arguments]


@pytest.mark.parametrize("name", ["adamw", "checkpoint", "attention", "scaler"])
def test_captured_graphs_survive(name: str, tmp_path: Path) -> None:
    workload, settings = ALL[name]
    graph = capture(workload, hyperparameters=settings)
    save(graph, tmp_path / "g.tide")
    assert load(tmp_path / "g.tide") == graph


def test_saving_is_deterministic(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(capture(ALL["adamw"][0]), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("cut", [0, 5, 21, 22, 60, -1])
def test_a_truncated_file_is_one_clear_error(cut: int, tmp_path: Path) -> None:
    save(tiny(), tmp_path / "g.tide")
    data = (tmp_path / "g.tide").read_bytes()
    (tmp_path / "g.tide").write_bytes(data[:cut])
    with pytest.raises(GraphFileError, match=r"damaged|not a tensortide graph"):
        load(tmp_path / "g.tide")


def test_any_changed_byte_is_found(tmp_path: Path) -> None:
    save(tiny(), tmp_path / "g.tide")
    data = bytearray((tmp_path / "g.tide").read_bytes())
    for at in range(len(data)):
        changed = bytes(data[:at]) + bytes([data[at] ^ 0x55]) + bytes(data[at + 1 :])
        (tmp_path / "bad.tide").write_bytes(changed)
        with pytest.raises(GraphFileError):
            load(tmp_path / "bad.tide")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else", b"\x80\x04K\x01."])
def test_a_foreign_file_is_one_clear_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(GraphFileError, match="not a tensortide graph"):
        load(tmp_path / "x")


def test_another_version_says_so(tmp_path: Path) -> None:
    save(tiny(), tmp_path / "g.tide")
    data = bytearray((tmp_path / "g.tide").read_bytes())
    data[8:10] = struct.pack(">H", 99)
    (tmp_path / "g.tide").write_bytes(data)
    with pytest.raises(GraphFileError, match="format 99"):
        load(tmp_path / "g.tide")


def test_a_file_that_claims_to_be_huge_is_refused(tmp_path: Path) -> None:
    packed = zlib.compress(bytes(1 << 20))
    header = struct.pack(">8sHIQ", b"TIDEGRPH", 1, 0, 1 << 40)
    (tmp_path / "g.tide").write_bytes(header + packed)
    with pytest.raises(GraphFileError, match="damaged"):
        load(tmp_path / "g.tide")


@pytest.mark.parametrize("filling", [b"\0", b"\x90"])
def test_a_small_file_cannot_take_much_memory(filling: bytes, tmp_path: Path) -> None:
    packed = filling * (96 << 20)
    header = struct.pack(">8sHIQ", b"TIDEGRPH", 2, zlib.crc32(packed), len(packed))
    (tmp_path / "g.tide").write_bytes(header + zlib.compress(packed, 9))
    del packed
    assert (tmp_path / "g.tide").stat().st_size < 150_000
    tracemalloc.start()
    with pytest.raises(GraphFileError, match="damaged"):
        load(tmp_path / "g.tide")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_graph_that_packs_extremely_well_is_read_back(tmp_path: Path) -> None:
    graph = tiny()
    many = msgspec.structs.replace(graph, ops=graph.ops[:1] * 100_000)
    save(many, tmp_path / "g.tide")
    assert load(tmp_path / "g.tide") == many


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(GraphFileError, match="No such file"):
        load(tmp_path / "none.tide")


def test_an_unwritable_output_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        save(tiny(), tmp_path / "none" / "g.tide")
    with pytest.raises(OutputError, match="it is a directory"):
        save(tiny(), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops": (Op(7, (0,), (0,), Phase.FORWARD),)}, "makes call 7 of 1"),
        ({"ops": (Op(0, (9,), (0,), Phase.FORWARD),)}, "uses tensor 9 of 1"),
        ({"ops": (Op(0, (), (0,), Phase.FORWARD),)}, "does not fill the holes"),
        ({"ops": (Op(0, (0,), (0,), Phase.FORWARD, module=3),)}, "not there"),
        ({"storages": (Storage(24, "cpu", Role.INPUT, 1, None),)}, "uses storage 0, which lives from op 1"),
        ({"storages": (Storage(24, "cpu", Role.INPUT, None, 1),)}, "op 1 .* uses storage 0"),
        ({"storages": (Storage(-1, "cpu", Role.INPUT, None, None),)}, "has -1 bytes"),
        ({"tensors": (Tensor(4, "float32", (), ()),)}, "views storage 4 of 1"),
        ({"tensors": (Tensor(0, "float33", (), ()),)}, "unknown dtype 'float33'"),
        ({"tensors": (Tensor(0, "float32", (2,), ()),)}, "has shape"),
        ({"branches": (Branch(0, 0, 0),)}, "branch 0 lies in branch 0"),
        ({"named": (Named("w", Role.PARAMETER, 5),)}, "refers to tensor 5"),
    ],
)
def test_validation_names_what_is_wrong(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    validate(tiny())
    wrong = msgspec.structs.replace(tiny(), **changes)
    with pytest.raises(GraphError, match=message):
        validate(wrong)
    save(wrong, tmp_path / "g.tide")
    with pytest.raises(GraphFileError, match=message):
        load(tmp_path / "g.tide")
