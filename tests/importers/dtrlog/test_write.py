"""Logs written again as they were read, and logs of any other graph."""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tensortide
from tensortide.errors import OutputError
from tensortide.graph import TENSOR, Call, Graph, Op, Phase, unrolled, validate
from tensortide.graph.model import Value
from tensortide.importers.dtrlog.read import read_recording
from tensortide.importers.dtrlog.write import write_log
from tensortide.plans.remat.schedule import Recording, recorded
from tests.graph.test_loops import looped
from tests.graphs import Builder, graphs, stored
from tests.importers.dtrlog.logs import MODELS, SYNTHETIC, WORKED, logs
from tests.marks import some_slow
from tests.reference import dtr_log


def assert_same(one: Recording, other: Recording) -> None:
    assert np.array_equal(one.kinds, other.kinds)
    assert np.array_equal(one.indexes, other.indexes)
    assert one.durations_ns == other.durations_ns
    assert one.graph.storages == other.graph.storages
    assert one.graph.tensors == other.graph.tensors
    assert one.graph.ops == other.graph.ops
    assert one.graph.calls == other.graph.calls


def assert_kept(path: Path, folder: Path) -> None:
    """Read in either way and written, a log is read as before in both."""
    originals = {copy_on_write: read_recording(path, copy_on_write=copy_on_write) for copy_on_write in (False, True)}
    for original in originals.values():
        write_log(original, None, folder / "again.log")
        for copy_on_write, expected in originals.items():
            assert_same(read_recording(folder / "again.log", copy_on_write=copy_on_write), expected)


def test_the_worked_example_comes_out_as_it_was(tmp_path: Path) -> None:
    for copy_on_write in (False, True):
        write_log(read_recording(WORKED, copy_on_write=copy_on_write), None, tmp_path / "again.log")
        assert (tmp_path / "again.log").read_bytes() == WORKED.read_bytes()


@given(logs())
def test_random_logs_come_out_as_they_were(tmp_path_factory: Any, text: str) -> None:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "random.log").write_text(text)
    assert_kept(folder / "random.log", folder)


@pytest.mark.parametrize("log", SYNTHETIC)
def test_synthetic_logs_come_out_as_they_were(reference: Path, tmp_path: Path, log: str) -> None:
    assert_kept(dtr_log(reference, log), tmp_path)


@pytest.mark.parametrize("model", some_slow(MODELS, {"transformer-10", "unroll_gan-512", "lstm-128"}))
def test_recorded_models_come_out_as_they_were(reference: Path, tmp_path: Path, model: str) -> None:
    assert_kept(dtr_log(reference, model), tmp_path)


# -- any graph --------------------------------------------------------------------------------------


def exported(graph: Graph, folder: Path, durations: list[int] | None = None) -> Recording:
    """``graph``, written and read."""
    write_log(graph, durations or list(range(len(graph))), folder / "graph.log")
    recording = read_recording(folder / "graph.log")
    validate(recording.graph)
    return recording


def lives(graph: Graph, first: int = 0, ops: list[int] | None = None) -> list[tuple[int, int | None, int | None]]:
    """Bytes, birth and death of all storages that are ever alive; of those there before the step with the birth -1.
    ``ops``, in their order, are the ops of the graph that count, ``first`` is the first that belongs to the step."""

    def moved(at: int | None) -> int | None:
        return at if at is None or ops is None else bisect_left(ops, at)

    found = []
    for storage in graph.storages:
        if storage.birth is None and storage.death == 0:
            continue
        born = -1 if storage.birth is None or storage.birth < first else moved(storage.birth)
        found.append((int(storage.nbytes), born, moved(storage.death)))
    return sorted(found, key=str)


def assert_same_memory(recording: Recording, graph: Graph) -> None:
    """The same storages with the same lives, in ops of ``graph``."""
    read = recording.graph
    constants = sum("constant" in read.calls[op.call].tags for op in read.ops)
    ops = [i for i, op in enumerate(read.ops) if i >= constants and not op.label.endswith(".write")]
    alone = [i for i, op in enumerate(read.ops) if i >= constants and op.label.endswith(".write")]
    assert len(ops) == len(graph)
    assert all(recording.durations_ns[i] == 0 for i in alone)
    assert lives(read, constants, ops) == lives(graph)


@given(graphs(devices=("cpu", "cuda")))
def test_random_graphs_keep_ops_and_lives(tmp_path_factory: Any, graph: Graph) -> None:
    if not len(graph):
        return
    recording = exported(graph, tmp_path_factory.mktemp("logs"))
    assert sum(recording.durations_ns) == sum(range(len(graph)))
    assert_same_memory(recording, graph)
    pure = [op for op in recording.graph.ops if "constant" not in recording.graph.calls[op.call].tags]
    wanted = [graph.calls[op.call].op for op in graph.ops]
    assert [op.label for op in pure if not op.label.endswith(".write")] == wanted


@pytest.mark.parametrize("name", ["mlp", "lstm", "conv"])
def test_captured_steps(tmp_path: Path, name: str) -> None:
    graph = stored(name)
    recording = exported(graph, tmp_path)
    assert_same_memory(recording, graph)
    devices = tensortide.timeline(graph, workspace=False).devices
    assert len(devices) == 1
    line, (expected,) = tensortide.timeline(recording.graph), devices.values()
    assert (line.peak_bytes, line.end_bytes) == (expected.peak_bytes, expected.end_bytes)
    backward = [op.phase for op in recording.graph.ops].index(Phase.BACKWARD)
    constants = len(recording.graph) - len(graph)
    assert backward == constants + [op.phase for op in graph.ops].index(Phase.BACKWARD)
    calls = [recording.graph.calls[op.call] for op in recording.graph.ops]
    mutating = {op.label for op, call in zip(recording.graph.ops, calls, strict=True) if call.mutated}
    assert mutating
    assert not any("batch_norm" in label for label in mutating)


def test_in_place_ops_keep_the_name(tmp_path: Path) -> None:
    """One that also makes something is two lines; what it returns of its argument is that argument."""
    b = Builder()
    x = b.storage(8, name="x")
    y = b.storage(4, birth=0, name="x")
    v = b.view(x, 6)
    b.op([x], [y, v], mutated=[0], name="test.both_.default")
    b.op([v, v], [v], mutated=[1], name="test.more_.default")
    hidden = b.storage(2, birth=2, death=3)
    b.op([y], [], name="test.saves.default")
    b.op([y], [b.view(x, 3)], name="test.elsewhere.default")
    write_log(b.graph(), [1, 2, 3, 4], tmp_path / "graph.log")
    lines = [json.loads(line) for line in (tmp_path / "graph.log").read_text().splitlines()]
    said = [line for line in lines if line["INSTRUCTION"] in ("CALL", "MUTATE")]
    assert [
        (line["INSTRUCTION"], line["NAME"], line["ARGS"], line.get("RESULT", line.get("MUTATE")), line["TIME"])
        for line in said
    ] == [
        ("CALL", "test.both_.default", ["x"], ["x.2"], "1"),
        ("MUTATE", "test.both_.default.write", ["x"], [0], "0"),
        ("MUTATE", "test.more_.default", ["x", "x"], [1], "2"),
        ("CALL", "test.saves.default", ["x.2"], [f"s{hidden - 1}"], "3"),
        ("CALL", "test.elsewhere.default", ["x.2", "x"], ["t4"], "4"),
    ]
    assert {"INSTRUCTION": "ALIAS", "NAME": "t4", "ALIAS": "1"} in lines
    assert_same_memory(read_recording(tmp_path / "graph.log"), b.graph())


def test_two_outputs_in_one_new_storage_are_one_result(tmp_path: Path) -> None:
    b = Builder()
    y = b.storage(8, birth=0)
    v = b.view(y, 3)
    b.op([], [v, y])
    b.op([v, y], [])
    recording = exported(b.graph(), tmp_path)
    assert [(op.inputs, op.outputs) for op in recording.graph.ops] == [((), (0,)), ((0, 0), ())]
    assert recording.graph.storages[0].nbytes == 8


def test_running_statistics_are_not_written(tmp_path: Path) -> None:
    names = ["input", "weight", "bias", "running_mean", "running_var"]
    arguments: tuple[tuple[str, Value], ...] = (*((name, TENSOR) for name in names), ("training", True))
    call = Call("aten.native_batch_norm.default", arguments, len(arguments), (3, 4), TENSOR)
    b = Builder()
    inputs = [b.storage(8) for _ in names]
    y = b.storage(8, birth=0)
    graph = Graph((Op(0, tuple(inputs), (y,), Phase.FORWARD),), (call,), tuple(b.tensors), tuple(b.storages))
    recording = exported(graph, tmp_path)
    assert not any(call.mutated for call in recording.graph.calls)


def test_loops_are_written_out(tmp_path: Path) -> None:
    graph = looped()
    durations = [10**i for i in range(len(graph))]
    recording = exported(graph, tmp_path, durations)
    flat = unrolled(graph)
    assert sum(recording.durations_ns) == sum(ns * graph.trips(i) for i, ns in enumerate(durations))
    assert_same_memory(recording, flat)


def test_a_log_that_was_saved_as_a_graph(tmp_path: Path) -> None:
    """Without its events it has the same ops and lives."""
    log = read_recording(WORKED)
    tensortide.save(log.graph, tmp_path / "log.tide")
    again = exported(tensortide.open(tmp_path / "log.tide").graph, tmp_path, list(log.durations_ns))
    assert again.durations_ns == log.durations_ns
    assert [op.label for op in again.graph.ops] == [op.label for op in log.graph.ops]
    assert [storage.death for storage in again.graph.storages] == [storage.death for storage in log.graph.storages]


def test_names_do_not_decide_where_the_backward_starts(tmp_path: Path) -> None:
    b = Builder()
    b.op([], [b.storage(8, birth=0)], name="test.relu_backward.default")
    assert exported(b.graph(), tmp_path).graph.ops[0].phase is Phase.FORWARD


def test_recordings_bring_their_durations(tmp_path: Path) -> None:
    b = Builder()
    b.op([], [b.storage(8, birth=0)])
    recording = recorded(b.graph(), [5])
    write_log(recording, None, tmp_path / "a.log")
    assert read_recording(tmp_path / "a.log").durations_ns == (5,)
    write_log(recording, [6], tmp_path / "a.log.gz")
    assert (tmp_path / "a.log.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert read_recording(tmp_path / "a.log.gz").durations_ns == (6,)


@settings(max_examples=10)
@given(st.integers(0, 5))
def test_durations_that_do_not_fit(tmp_path_factory: Any, count: int) -> None:
    path = tmp_path_factory.mktemp("logs") / "a.log"
    with pytest.raises(OutputError, match=f"{count} durations for 11 ops"):
        write_log(read_recording(WORKED), [1] * count, path)
    assert not path.exists()


def test_what_cannot_be_written(tmp_path: Path) -> None:
    log = read_recording(WORKED)
    with pytest.raises(OutputError, match="0 durations for 11 ops"):
        write_log(log.graph, None, tmp_path / "a.log")
    with pytest.raises(OutputError, match="an op lasts -1 ns"):
        write_log(log, [-1] * 11, tmp_path / "a.log")
    with pytest.raises(OutputError, match="does not exist"):
        write_log(log, None, tmp_path / "none" / "a.log")
    assert list(tmp_path.iterdir()) == []
