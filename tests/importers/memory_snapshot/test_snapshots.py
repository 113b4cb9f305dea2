"""Memory snapshots: read without running their pickle, and the memory of the run as they recorded it."""

from __future__ import annotations

import gzip
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.cli import main
from tensortide.errors import TraceError
from tensortide.graph import Graph, Phase, Role
from tensortide.importers.door import open as opened
from tensortide.importers.memory_snapshot.graph import graph_of
from tensortide.importers.memory_snapshot.importer import IMPORTER
from tensortide.importers.memory_snapshot.plain_pickle import read_plain
from tensortide.importers.memory_snapshot.records import read_snapshot
from tensortide.importers.memory_snapshot.state import peak_reserved, state_at
from tensortide.reports.sections import Step
from tensortide.reports.sections.recording import section
from tensortide.reports.snapshot import render_snapshot
from tensortide.timelines import timeline
from tests.cli.command import fails, run
from tests.importers.refusal import refused_in_one_line
from tests.reports.graphs import tower

DATA = Path(__file__).parents[2] / "data/snapshots"
FRAMES = [
    {"name": "at::_ops::relu::call(at::Tensor const&)", "filename": "??", "line": 0},
    {"name": "forward", "filename": "/home/user/net.py", "line": 7},
]


def recording(*events: tuple[str, int, int], segments: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A snapshot with events ``(action, address, size)`` on device 0, one a microsecond."""
    trace = [
        {"action": action, "addr": address, "size": size, "time_us": at, "stream": 0, "frames": FRAMES}
        for at, (action, address, size) in enumerate(events)
    ]
    return {"segments": segments or [], "device_traces": [trace], "external_annotations": []}


def written(path: Path, found: object, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(found, protocol))
    return path


@pytest.fixture
def graph() -> Graph:
    return tower()


def test_a_predicted_snapshot_reads_as_the_memory_it_was_made_of(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(render_snapshot(graph))
    assert timeline(opened(path).graph).peak_bytes == timeline(graph).peak_bytes


def test_a_recorded_training_step_has_the_peak_of_the_counters() -> None:
    """GPT-2 of 4 layers on an H200, two steps: ``max_memory_allocated`` and ``max_memory_reserved`` of the run."""
    path = DATA / "gpt2.pickle.gz"
    found = opened(path)
    allocated, reserved = 1_712_809_984, 2_109_734_912
    assert peak_reserved(read_snapshot(path), 0) == reserved
    peak = timeline(found.graph).peak_bytes
    assert 0.99 * allocated < peak <= allocated  # blocks that are not split count whole in the counter
    line = timeline(found.graph)
    at_peak = {str(role): int(series[line.peak_op]) for role, series in line.by_role.items()}
    parameters = 4 * (50257 * 768 + 1024 * 768 + 4 * 12 * 768**2)
    assert parameters < at_peak["parameter"] < 1.02 * parameters + (1 << 20)
    assert at_peak["optimizer_state"] == pytest.approx(2 * at_peak["parameter"], rel=1e-3)
    assert {op.phase for op in found.graph.ops} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert found.durations is not None
    assert sum(found.durations.ns) > 10**9


def test_where_memory_ran_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(run(capsys, "memory", DATA / "gpt2_oom.pickle.gz").split())
    assert "The allocator where memory ran out" in text
    assert "Asked for 9.00 MiB by training.py:118 step, optimizer" in text
    assert "training.py:118 step" in text
    assert "pieces of at most 2.49 MiB: fragmentation" in text


def test_a_recording_that_memory_ended_is_a_lower_bound_without_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["fit", str(DATA / "gpt2_oom.pickle.gz"), "--memory", "16GiB"])
    text = " ".join(capsys.readouterr().out.split())
    assert stopped.value.code == 4
    assert "unsure in 16.00 GiB: needs at least 1.24 GiB: at most 14.76 GiB to spare" in text
    assert "The recording ends where memory ran out" in text
    assert "a step takes" not in text


def test_a_prediction_stands_beside_a_recording(
    tmp_path: Path, graph: Graph, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensortide.graph import save

    seen, step = tmp_path / "seen.pickle", tmp_path / "step.tide"
    seen.write_bytes(render_snapshot(graph))
    save(graph, step)
    assert "Beside the prediction" in run(capsys, "memory", seen, "--against", step)
    assert "is no memory snapshot" in fails(capsys, "memory", step, "--against", step)


def test_free_pieces_are_those_between_blocks(tmp_path: Path) -> None:
    """A segment of 4096 bytes: blocks at 0 and 1024, freed in between at 512 and at the end; 3072 are asked for."""
    segment = {"device": 0, "address": 4096, "total_size": 4096, "blocks": []}
    found = recording(
        ("segment_alloc", 4096, 4096), ("alloc", 4096, 500), ("alloc", 4608, 512), ("alloc", 5120, 512),
        ("free_requested", 4608, 512), ("free_completed", 4608, 512), ("oom", 0, 2800), segments=[segment],
    )  # fmt: skip
    snapshot = read_snapshot(written(tmp_path / "x", found))
    state = state_at(snapshot, 3)
    assert (state.reserved_bytes, state.allocated_bytes, state.gaps) == (4096, 1024, (2560, 512))
    assert state.fragmentation_share == pytest.approx(1 - 2560 / 3072)
    graph, _ = graph_of(snapshot)
    assert [storage.death for storage in graph.storages] == [None, 3, None]
    shown = section(Step(graph), snapshot)
    assert "fragmentation" in next(block.text for block in shown.blocks if hasattr(block, "text"))


def test_blocks_without_an_allocation_were_there_before(tmp_path: Path) -> None:
    block = {"address": 8192, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": FRAMES}
    segment = {"device": 0, "address": 8192, "total_size": 2048, "blocks": [block]}
    found = recording(("alloc", 64, 8), ("free_completed", 512, 100), ("alloc", 64, 16), segments=[segment])
    graph = opened(written(tmp_path / "x", found)).graph
    before = {storage.nbytes: storage.death for storage in graph.storages if storage.birth is None}
    assert before == {1000: None, 100: 1}
    assert [s.death for s in graph.storages if s.birth is not None] == [1, None]
    assert graph[0].name == "memory.relu"
    assert graph.sources[graph.ops[0].source].line == 7
    assert graph.storages[0].role in (Role.INPUT, Role.PARAMETER)


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch executed",)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_of_a_pickle_runs(protocol: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = {**recording(("alloc", 1, 1)), "device_traces": [[Hostile()]]}
    path = written(tmp_path / "x", found, protocol)
    assert IMPORTER.recognizes(path)
    with pytest.raises(TraceError, match=r"byte \d+ of the pickle is (GLOBAL|STACK_GLOBAL|REDUCE).*nothing was run"):
        opened(path)
    assert not (tmp_path / "executed").exists()


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from([0, 1, 2, 3, 4, 5]))
def test_plain_data_read_as_pickle_reads_them(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    if b"_codecs" not in data and b"bytes\n" not in data and b"__builtin__" not in data:  # bytes before protocol 3
        assert read_plain(data, "x") == value


def test_shared_parts_take_no_more_memory(tmp_path: Path) -> None:
    """Twenty levels of lists that name the one below ten times: 10**20 items if they were copied."""
    nest: list[Any] = []
    for _ in range(20):
        nest = [nest] * 10
    with pytest.raises(TraceError, match=r"no memory snapshot|not a list|not a dict"):
        read_snapshot(written(tmp_path / "x", {"segments": nest, "device_traces": []}))


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"segments": []}, "no memory snapshot"),
        ({"segments": [], "device_traces": [[]]}, "has no allocations: call torch.cuda.memory._record_memory_history"),
        ({"segments": {}, "device_traces": []}, "segments is a dict, not a list"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "size": -1}]]}, "size is '-1', not a number in range"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "frames": 3}]]}, "frames is a int, not a list"),
    ],
)
def test_what_is_no_snapshot_is_one_error(found: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=message):
        opened_snapshot(written(tmp_path / "x", found))


def opened_snapshot(path: Path) -> Graph:
    return graph_of(read_snapshot(path))[0]


def mutated(count: int, tmp_path: Path) -> None:
    """Read ``count`` damaged copies of a snapshot: each is one error, or a graph."""
    data = pickle.dumps(recording(*((("alloc", "free_completed")[i % 2], 512 * (i // 2), 8) for i in range(40))), 4)
    generator = random.Random(0)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(2, len(damaged))
            kind = generator.randrange(3)
            if kind == 0:
                damaged[at] = generator.randrange(256)
            elif kind == 1:
                del damaged[at : at + generator.randint(1, 40)]
            else:
                damaged[at:at] = generator.randbytes(generator.randint(1, 8))
        path = tmp_path / "x"
        path.write_bytes(damaged)
        with refused_in_one_line(str(path)):
            opened_snapshot(path)


def test_damaged_snapshots_are_refused(tmp_path: Path) -> None:
    mutated(200, tmp_path)


@pytest.mark.slow
def test_thousands_of_damaged_snapshots_are_refused(tmp_path: Path) -> None:
    mutated(4_000, tmp_path)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes((DATA / "gpt2.pickle.gz").read_bytes()[:9000])
    with pytest.raises(TraceError, match="damaged"):
        read_snapshot(path)
    path.write_bytes(gzip.decompress((DATA / "gpt2.pickle.gz").read_bytes())[:9000])
    with pytest.raises(TraceError, match=r"damaged|cut off"):
        read_snapshot(path)
