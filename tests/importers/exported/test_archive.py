"""Archives: layouts and versions, and what is damaged or hostile."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError, TraceError, WorkloadError
from tests.importers.exported.archives import document, linear, macs, named, node, opened, tensor, write

MACS = 4 * 8 * 5


def test_an_archive_of_today(tmp_path: Path) -> None:
    graph = opened(write(tmp_path / "net.pt2", linear()))
    assert macs(tmp_path / "net.pt2") == MACS
    assert graph[0].module == "fc"
    assert [entry.name for entry in graph.named if entry.role == "parameter"] == ["fc.weight"]
    assert "torch.export 2.13.0" in graph.meta.framework
    assert any("last use" in note for note in graph.meta.assumptions)


def test_the_older_layout(tmp_path: Path) -> None:
    program = linear()
    program["schema_version"] = {"major": 5, "minor": 3}
    del program["torch_version"]
    for call in program["graph_module"]["graph"]["nodes"]:
        for given in call["inputs"]:
            del given["kind"]
    with zipfile.ZipFile(tmp_path / "old.pt2", "w") as archive:
        archive.writestr("version", "5.3")
        archive.writestr("serialized_exported_program.json", json.dumps(program))
        archive.writestr("serialized_state_dict.pt", b"\x80\x04 never read")
    assert macs(tmp_path / "old.pt2") == MACS
    assert any("in a pickle alone" in note for note in opened(tmp_path / "old.pt2").meta.assumptions)


@pytest.mark.parametrize("version", [{"major": 4, "minor": 2}, {"major": 9, "minor": 0}])
def test_another_schema_is_named(tmp_path: Path, version: dict[str, int]) -> None:
    path = write(tmp_path / "new.pt2", {**linear(), "schema_version": version})
    with pytest.raises(
        TraceError, match=rf"new\.pt2: a program of schema version {version['major']}\.{version['minor']}"
    ):
        opened(path)


def test_another_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="an archive of version '7'"):
        opened(write(tmp_path / "a.pt2", linear(), archive_version="7"))
    with pytest.raises(TraceError, match="of the format 'pt3'"):
        opened(write(tmp_path / "b.pt2", linear(), archive_format="pt3"))


def test_one_of_several_programs_is_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "two.pt2", linear())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("net/models/large.json", json.dumps(linear(40)))
    with pytest.raises(WorkloadError, match="programs large, model: --program NAME"):
        opened(path)
    assert macs(path, program="large") == 10 * MACS


class Planted:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("EXECUTED",)


def test_planted_pickles_and_code_do_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = pickle.dumps(Planted())
    config = {
        "config": {"fc.weight": {"path_name": "weight_0", "is_param": True, "use_pickle": True, "tensor_meta": None}}
    }
    path = write(
        tmp_path / "planted.pt2", linear(), data__weights__weight_0=bomb,
        data__constants__custom_obj_0=bomb, extra__code="import os; os.mkdir('EXECUTED')",
    )  # fmt: skip
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("net/data/weights/model_weights_config.json", json.dumps(config))
        archive.writestr("net/data/sample_inputs/model.pt", bomb)
    assert macs(path) == MACS
    assert not (tmp_path / "EXECUTED").exists()
    pickle.loads(bomb)
    assert (tmp_path / "EXECUTED").exists(), "the pickle does what it should not be asked to"


def test_names_of_ops_are_not_looked_up(tmp_path: Path) -> None:
    call = node("torch.ops.os.system.default", {"input": "x", "weight": "p_w"}, "y")
    path = write(tmp_path / "odd.pt2", document([call], linear()["graph_module"]["graph"]["tensor_values"]))
    assert [op.name for op in opened(path)] == ["os.system.default"]


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("net/models/model.json", b" " * (2 << 20))
    with pytest.raises(TraceError, match=r"claims to unpack to 2,097,152 bytes"):
        opened(path)


def test_a_flood_of_objects_is_not_built(tmp_path: Path) -> None:
    flood = b'{"schema_version": {"major": 8}, "x": [' + b"{}," * 5_000_000 + b"{}]}"
    with pytest.raises(TraceError, match="5,000,004 objects and lists"):
        opened(write(tmp_path / "flood.pt2", flood))


def bad(**changes: Any) -> dict[str, Any]:
    """The linear layer with parts of its graph replaced."""
    program = linear()
    program["graph_module"]["graph"].update(changes)
    return program


TYPES = linear()["graph_module"]["graph"]["tensor_values"]
DAMAGED: dict[str, tuple[Any, str]] = {
    "no JSON": (b"{", "truncated"),
    "a list": ([], "Expected `object`"),
    "no graph": ({"schema_version": {"major": 8}}, "graph_module"),
    "a missing tensor": (bad(nodes=[node("torch.ops.aten.relu.default", {"self": "z"}, "y")]), "'z' is no tensor"),
    "an unmade result": (bad(nodes=[]), "nothing makes the result 'y'"),
    "used before it is made": (
        bad(nodes=[node("torch.ops.aten.relu.default", {"self": "y"}, "y")]), r"y \(aten.relu.default\): nothing"),
    "negative": (bad(tensor_values={**TYPES, "y": tensor(4, -5)}), r"y has the shape \(4, -5\)"),
    "huge": (bad(tensor_values={**TYPES, "y": tensor(1 << 40, 1 << 40)}), "y has the shape"),
    "a dtype": (bad(tensor_values={**TYPES, "y": tensor(4, 5, dtype=99)}), "dtype 99"),
    "fewer inputs": (bad(inputs=[named("x")]), "1 inputs, and 2 entries"),
    "deep": (b'{"schema_version": ' + b"[" * 100_000, "recursion|nested|Expected"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_one_error_that_names_the_file(tmp_path: Path, name: str) -> None:
    program, reason = DAMAGED[name]
    path = write(tmp_path / "bad.pt2", program)
    with pytest.raises(TraceError, match=rf"bad\.pt2: .*({reason})"):
        opened(path)


@pytest.mark.parametrize("expression", ["__import__('os').mkdir('EXECUTED')", "9**9**9**9", "(" * 900, "é\0"])
def test_a_size_that_cannot_be_read_is_that_of_the_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = opened(write(tmp_path / "net.pt2", linear(expression)))
    assert graph[0].outputs[0].shape == (3, 5)
    assert any("as in its example" in note for note in graph.meta.assumptions)
    assert not (tmp_path / "EXECUTED").exists()


def test_inner_graphs_are_only_so_deep(tmp_path: Path) -> None:
    graph: dict[str, Any] = linear()["graph_module"]["graph"]
    for _ in range(100):
        inner = {"as_graph": {"name": "inner", "graph": graph}}
        call = node("torch.ops.higher_order.wrap", {"f": inner, "w": "p_w", "x": "x"}, "y")
        graph = {**graph, "nodes": [call]}
    program = linear()
    program["graph_module"]["graph"] = graph
    with pytest.raises(TraceError, match="too deeply nested"):
        opened(write(tmp_path / "deep.pt2", program))


def test_a_cut_file_is_known_and_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "net.pt2", linear(), data__weights__model_weights_config__json="{}").read_bytes()
    path = tmp_path / "cut.pt2"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TensortideError, match=r"cut\.pt2"):
        opened(path)
