"""Durations, whose they are, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import GraphError, GraphFileError, OutputError
from tensortide.graph import Graph, Role
from tensortide.timing import Durations, Measurement, Sample, beside, identity, load_durations, save_durations
from tests.graphs import Builder, graphs


def chain(sizes: tuple[int, ...] = (8, 16, 4), name: str = "test.op.default") -> Graph:
    builder = Builder()
    tensor = builder.storage(sizes[0], Role.INPUT)
    for index, size in enumerate(sizes[1:]):
        result = builder.storage(size, birth=index)
        builder.op([tensor], [result], name=name)
        tensor = result
    return builder.graph()


def of(graph: Graph, unknown: int = 0) -> Durations:
    ns = tuple(100 + i for i in range(len(graph)))
    return Durations(ns, "recorded in step.log", "recorded", unknown, identity(graph))


def test_durations_are_of_their_graph_only() -> None:
    graph = chain()
    of(graph).check(graph)
    with pytest.raises(GraphError, match="another graph"):
        of(graph).check(chain((8, 16, 5)))
    with pytest.raises(GraphError, match="another graph"):
        of(graph).check(chain(name="test.other.default"))
    with pytest.raises(GraphError, match=r"2 ops \(recorded in step.log\) do not fit a graph of 3"):
        of(graph).check(chain((8, 16, 4, 4)))


def test_what_no_duration_depends_on_does_not_matter() -> None:
    graph = chain()
    storages = tuple(msgspec.structs.replace(s, device="cuda:0", death=9, name="x") for s in graph.storages)
    ops = tuple(msgspec.structs.replace(op, source=3, label="x") for op in graph.ops)
    of(graph).check(msgspec.structs.replace(graph, storages=storages, ops=ops))


@given(graphs(), graphs())
def test_graphs_have_one_identity_only_if_their_ops_are_alike(one: Graph, other: Graph) -> None:
    def ops(graph: Graph) -> list[object]:
        return [
            (op.name, [(t.dtype, t.shape) for t in op.inputs], [(t.dtype, t.shape) for t in op.outputs]) for op in graph
        ]

    assert (identity(one) == identity(other)) == (ops(one) == ops(other))


@given(graphs(), st.data())
def test_a_file_gives_back_what_was_saved(
    tmp_path_factory: pytest.TempPathFactory, graph: Graph, data: st.DataObject
) -> None:
    count = len(graph)
    ns = data.draw(st.lists(st.integers(0, 2**50), min_size=count, max_size=count))
    unknown = data.draw(st.integers(0, count))
    saved = Durations(tuple(ns), data.draw(st.text(max_size=20)), "measured", unknown, identity(graph))
    path = tmp_path_factory.mktemp("durations") / "d.json"
    assert load_durations(save_durations(saved, path), graph) == saved


def test_the_file_says_what_it_is(tmp_path: Path) -> None:
    written = json.loads(save_durations(of(chain()), tmp_path / "d.json").read_text())
    assert (written["format"], written["version"]) == ("tensortide durations", 5)
    assert written["durations"]["ns"] == [100, 101]


def changed(tmp_path: Path, **changes: object) -> Path:
    path = save_durations(of(chain()), tmp_path / "d.json")
    content = json.loads(path.read_text())
    content["durations"].update({k: v for k, v in changes.items() if k != "version"})
    content.update({k: v for k, v in changes.items() if k == "version"})
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 4}, "has durations format 4; this release reads 5"),
        ({"kind": "guessed"}, r"does not hold valid durations: .*guessed"),
        ({"ns": [100, -1]}, "does not hold valid durations"),
        ({"ns": [100, 1.5]}, "does not hold valid durations"),
        ({"ns": [100]}, "durations of 1 ops"),
        ({"unknown": 3}, "more ops unknown than there are"),
        ({"graph": "00"}, "of another graph"),
    ],
)
def test_a_file_that_is_not_right_is_one_clear_error(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(GraphFileError, match=message) as caught:
        load_durations(changed(tmp_path, **changes), chain())
    assert "d.json" in str(caught.value)


def test_how_they_were_measured_is_kept(tmp_path: Path) -> None:
    found = Measurement(
        how="isolated", clock="thread", min_ns=(1, 2), p90_ns=(3, 4), samples=(9, 0), stand_ins={1: "x"}
    )
    saved = msgspec.structs.replace(of(chain(), unknown=1), measurement=found)
    path = save_durations(saved, tmp_path / "d.json")
    assert load_durations(path, chain()) == saved
    for wrong in ({"samples": (9,)}, {"stand_ins": {2: "x"}}):
        other = msgspec.structs.replace(saved, measurement=msgspec.structs.replace(found, **wrong))
        with pytest.raises(GraphFileError, match="not of one entry per op"):
            load_durations(save_durations(other, path))


@pytest.mark.parametrize("number", [1 << 63, 1 << 64, 10**30, -1, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("table", ["min_ns", "p90_ns", "wall_ns", "thread_ns", "median"])
def test_a_time_that_no_step_has_is_one_clear_error(tmp_path: Path, table: str, number: float) -> None:
    ns = (1, 2)
    found = Measurement(
        how="isolated",
        clock="thread",
        min_ns=ns,
        p90_ns=ns,
        samples=ns,
        wall_ns=ns,
        thread_ns=ns,
        step=Sample(3, 3, 3, 1),
    )
    path = save_durations(msgspec.structs.replace(of(chain()), measurement=found), tmp_path / "d.json")
    content = json.loads(path.read_text())
    kept = content["durations"]["measurement"]
    if table == "median":
        kept["step"]["median_ns"] = number
    else:
        kept[table][1] = number
    path.write_text(json.dumps(content))
    with pytest.raises(GraphFileError, match=r"d.json (is damaged|does not hold (valid )?durations)"):
        load_durations(path)


def test_the_file_beside_a_graph_has_its_name() -> None:
    assert beside("a/x.tide") == Path("a/x.durations.json")


@pytest.mark.parametrize("content", [b"", b"[1, 2]", b'{"format": "tensortide plan"}', b"\xff\xfe", b"{"])
def test_a_foreign_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(GraphFileError, match=r"x.json does not hold durations"):
        load_durations(path)


def test_a_cut_file_is_damaged(tmp_path: Path) -> None:
    path = save_durations(of(chain()), tmp_path / "d.json")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(GraphFileError, match=r"d.json is damaged"):
        load_durations(path)


def test_a_missing_file_and_a_missing_directory_are_said(tmp_path: Path) -> None:
    with pytest.raises(GraphFileError, match="cannot read"):
        load_durations(tmp_path / "none.json")
    with pytest.raises(OutputError, match="does not exist"):
        save_durations(of(chain()), tmp_path / "none" / "d.json")


def test_they_show_what_they_are() -> None:
    assert (
        repr(of(chain(), unknown=1)) == "<Durations of 2 ops, 1 of them without a rule: 201 ns, recorded in step.log>"
    )
