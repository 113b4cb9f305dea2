"""Liveness files: golden text, round trips, the original's own digits, tables, all or nothing."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given

from tensortide.errors import MissingExtra, OutputError, TraceError
from tensortide.graph import Graph
from tensortide.importers.g10.export import write_liveness_files
from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import read_liveness, read_memory_log, read_periods_log
from tensortide.importers.imported import Imported, with_names
from tensortide.importers.inductor.importer import find_dumps
from tensortide.importers.inductor.read import read_dumps
from tensortide.timelines import liveness
from tensortide.timing.durations import Times
from tests.golden import assert_golden
from tests.graphs import graphs
from tests.importers.g10.example import write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT, trace

GOLDEN = Path(__file__).with_name("golden.txt")


def timed(made: Imported) -> Times:
    """Times that are no whole microseconds and differ."""
    return Times(tuple(1001 + 7 * index for index in range(len(made.graph))), Fraction(1, 3))


def fx_sample(reference: Path) -> Imported:
    dumps = find_dumps(reference / "g10" / "fx_sample")
    return read_dumps(dumps.forward, dumps.backward)


def test_golden_text(tmp_path: Path, reference: Path) -> None:
    """The first three kernels, tensors and lives of the sample."""
    made = fx_sample(reference)
    times = Times(tuple(1000 * (index + 1) for index in range(len(made.graph))))
    write_liveness_files(made, tmp_path / "pytorch4", times=times)
    folder = tmp_path / "pytorch4" / "statistics"
    kernels = (folder / "kernels.config").read_text().split("_" * 68 + "\n")
    lives = (folder / "liveness_analysis.config").read_text().split("_" * 77 + "\n" + "_" * 77 + "\n")
    found = [
        *("_" * 68 + "\n").join([*kernels[:3], ""]).splitlines(),
        *(folder / "tensors.config").read_text().splitlines()[:3],
        *("_" * 77 + "\n" + "_" * 77 + "\n").join([*lives[:3], *lives[46:47]]).splitlines(),
    ]
    assert_golden("\n".join([*found, ""]), GOLDEN)


@pytest.mark.parametrize("with_times", [False, True])
@pytest.mark.parametrize("texts", [(FORWARD, BACKWARD), (FORWARD, BACKWARD, WEIGHT)])
def test_what_is_written_is_what_is_read(tmp_path: Path, texts: tuple[str, ...], with_times: bool) -> None:
    assert_round_trip(tmp_path, trace(*texts), with_times)


def assert_round_trip(folder: Path, made: Imported, with_times: bool) -> None:
    times = timed(made)
    write_liveness_files(made, folder / "run", times=times, with_times=with_times)
    lives = liveness(made.graph, "compat", times.ticks)
    read = read_trace(folder / "run" / "statistics")
    assert (read.times is not None) == with_times
    assert len(read.kernels) == len(made.kernels)
    for first, second in zip(made.graph.ops, read.graph.ops, strict=True):
        assert (tuple(dict.fromkeys(first.inputs)), tuple(dict.fromkeys(first.outputs))) == (
            second.inputs,
            second.outputs,
        )
    if read.times is not None:
        assert read.times.ticks == times.durations(made.graph, "").ns
    again = liveness(read.graph, "compat")
    stated = read_liveness(folder / "run" / "statistics" / "liveness_analysis.config")
    log = read_periods_log(folder / "run_TensorPeriodLog.py")
    for life, other, told in zip(lives, again, stated, strict=True):
        assert (life.nbytes, life.birth, life.death, life.uses) == (other.nbytes, other.birth, other.death, other.uses)
        assert [(p.start, p.end, p.looped) for p in life.intervals] == [
            (p.start, p.end, p.looped) for p in other.intervals
        ]
        assert [(p.start, p.end) for p in life.intervals] == [period[:2] for period in told.periods]
        birth = -1 if life.birth is None else life.birth
        assert told.tensor.is_global or (told.birth, told.death) == (birth, -1 if life.death is None else life.death)
        for period, written in zip(life.intervals, told.periods, strict=True):
            assert written.time_us == pytest.approx(times.us(int(period.time)), rel=1e-5)
    assert list(log.sd_size) == [life.nbytes for life in lives for _ in life.intervals]
    assert log.sd_time == tuple(period.time_us for life in stated for period in life.periods)
    read_memory_log(folder / "run_NNMemConsumptionLog.py")


@given(graphs())
def test_any_graph_is_written_and_read(tmp_path_factory: pytest.TempPathFactory, graph: Graph) -> None:
    if len(graph):
        assert_round_trip(tmp_path_factory.mktemp("files"), with_names(graph), with_times=True)


@pytest.mark.parametrize("name", ["BERT_Base-256", "VIT-512"])
def test_the_logs_of_the_original_tool_come_out_byte_by_byte(tmp_path: Path, reference: Path, name: str) -> None:
    folder = reference / "g10" / name
    made = read_trace(folder)
    write_liveness_files(made, tmp_path / name)
    memory = (tmp_path / f"{name}_NNMemConsumptionLog.py").read_bytes()
    assert memory == gzip.decompress((folder / "NNMemConsumptionLog.py.gz").read_bytes())
    periods = (tmp_path / f"{name}_TensorPeriodLog.py").read_bytes()
    assert periods == gzip.decompress((folder / "TensorPeriodLog.creation_order.py.gz").read_bytes())
    write_liveness_files(made, tmp_path / name, order="time_size")
    lines = (tmp_path / f"{name}_TensorPeriodLog.py").read_text().splitlines()
    stated = gzip.decompress((folder / "TensorPeriodLog.py.gz").read_bytes()).decode().splitlines()
    assert lines[:2] == stated[:2]
    assert sorted(lines[2].split()) == sorted(stated[2].split()), "equal products may be in any order"


def test_tables(tmp_path: Path) -> None:
    made = read_trace(write_trace(tmp_path))
    paths = write_liveness_files(made, tmp_path / "out" / "run", formats=("json", "csv"))
    assert {str(path.relative_to(tmp_path / "out")) for path in paths} == {
        *(f"run/statistics/{name}.{kind}" for name in ("kernels", "tensors", "liveness_analysis") for kind in KINDS),
        *(f"run_{name}.{kind}" for name in ("TensorPeriodLog", "NNMemConsumptionLog") for kind in KINDS),
    }
    lives = json.loads((tmp_path / "out/run/statistics/liveness_analysis.json").read_text())
    assert lives[1] == {"tensor": 1, "is_global": False, "birth": 0, "death": 4, "uses": [0, 1, 3], "periods": 1}
    periods = json.loads((tmp_path / "out/run_TensorPeriodLog.json").read_text())
    assert list(periods[0].items())[:4] == [("tensor", 0), ("period", 0), ("start", 1), ("end", 4)]
    assert (periods[0]["looped"], periods[0]["nbytes"], periods[0]["time_ns"]) == (False, 8, 90_000)
    memory = json.loads((tmp_path / "out/run_NNMemConsumptionLog.json").read_text())
    assert [row["live"] for row in memory] == [12, 15, 14, 17, 11]
    assert memory[0]["input"] + memory[0]["weight"] + memory[0]["intermediate"] == memory[0]["active"] == 12
    for path in paths:
        if path.suffix == ".csv":
            rows = list(csv.DictReader(io.StringIO(path.read_text())))
            records = json.loads(path.with_suffix(".json").read_text())
            assert [list(row) for row in rows] == [list(record) for record in records]
    kernels = list(csv.DictReader(io.StringIO((tmp_path / "out/run/statistics/kernels.csv").read_text())))
    assert (kernels[3]["inputs"], kernels[3]["time_ns"]) == ("1 2", "40000")


KINDS = ("json", "csv")


def test_times_that_are_no_whole_nanoseconds(tmp_path: Path) -> None:
    made = trace(FORWARD, BACKWARD)
    write_liveness_files(made, tmp_path / "run", times=timed(made), formats=("json",))
    rows = json.loads((tmp_path / "run/statistics/kernels.json").read_text())
    assert [row["time_ns"] for row in rows[:2]] == [1001 / 3, 336]
    assert rows[1]["code"] == "y = self.linear(x)"


def test_parquet(tmp_path: Path) -> None:
    made = read_trace(write_trace(tmp_path))
    if importlib.util.find_spec("pyarrow") is None:
        with pytest.raises(MissingExtra, match=r"writing Parquet needs PyArrow: pip install 'tensortide\[parquet\]'"):
            write_liveness_files(made, tmp_path / "out" / "run", formats=("parquet",))
        assert not (tmp_path / "out").exists()
        return
    paths = write_liveness_files(made, tmp_path / "out" / "run", formats=("parquet",))
    assert all(path.read_bytes()[:4] == b"PAR1" for path in paths)


def test_the_names_of_logs_can_have_a_suffix(tmp_path: Path) -> None:
    made = read_trace(write_trace(tmp_path))
    names = {path.name for path in write_liveness_files(made, tmp_path / "out" / "run", log_suffix="-2")}
    logs = {"run-2_TensorPeriodLog.py", "run-2_NNMemConsumptionLog.py"}
    assert names == {"kernels.config", "tensors.config", "liveness_analysis.config", *logs}
    with pytest.raises(OutputError, match="'a/b' is no part of a file's name"):
        write_liveness_files(made, tmp_path / "other" / "run", log_suffix="a/b")


def test_what_cannot_be_written(tmp_path: Path) -> None:
    made = trace(FORWARD, BACKWARD)
    with pytest.raises(TraceError, match="its kernels have no times"):
        write_liveness_files(made, tmp_path / "run")
    with pytest.raises(TraceError, match="1 times for 12 kernels"):
        write_liveness_files(made, tmp_path / "run", times=Times((1,)))
    unknown = trace(FORWARD.replace("f32[2, 8]", "f32[s0, 8]"))
    with pytest.raises(TraceError, match=r"the sizes of 1 tensors are unknown \(addmm, \.\.\.\): give values"):
        write_liveness_files(unknown, tmp_path / "run", times=timed(unknown))
    with pytest.raises(OutputError, match="'/' is no name for files"):
        write_liveness_files(made, "/", times=timed(made))
    assert not list(tmp_path.iterdir())


def test_all_or_nothing(tmp_path: Path) -> None:
    """If one file cannot be written, the others are as they were, and no folder is left."""
    made = trace(FORWARD, BACKWARD)
    (tmp_path / "run_TensorPeriodLog.py").write_text("old")
    (tmp_path / "run_NNMemConsumptionLog.py").mkdir()
    with pytest.raises(OutputError, match="it is a directory"):
        write_liveness_files(made, tmp_path / "run", times=timed(made))
    assert (tmp_path / "run_TensorPeriodLog.py").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run_NNMemConsumptionLog.py", "run_TensorPeriodLog.py"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        write_liveness_files(made, tmp_path / "file" / "x" / "run", times=timed(made))
