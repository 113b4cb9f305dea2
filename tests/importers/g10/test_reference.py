"""The traces that the original tool analysed: what it found, found again."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from tensortide.graph import Phase, validate
from tensortide.importers.g10.analysis import series_of
from tensortide.importers.g10.compare import compare
from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import (
    read_active,
    read_clock,
    read_liveness,
    read_memory_log,
    read_periods_log,
    read_profile,
)
from tensortide.importers.imported import Imported
from tensortide.timelines import Life, liveness

TRACES = {
    # kernels, of them forward; tensors, globals, periods, looped, never read; peak bytes and the kernel of the peak
    "BERT_Base-128": (1369, 477, 1463, 156, 1269, 155, 0, 25_859_059_712, 486),
    "BERT_Base-256": (1369, 477, 1463, 156, 1269, 155, 0, 51_282_243_584, 486),
    "VIT-512": (1489, 509, 1563, 157, 1437, 156, 2, 24_705_273_856, 542),
    "Inceptionv3-512": (929, 314, 2171, 378, 1358, 377, 846, 47_995_326_464, 321),
}


@pytest.fixture(scope="module", params=TRACES)
def case(request: pytest.FixtureRequest, reference: Path) -> tuple[Path, Imported, tuple[Life, ...]]:
    folder = reference / "g10" / request.param
    trace = read_trace(folder)
    assert trace.times is not None
    return folder, trace, liveness(trace.graph, "compat", trace.times.ticks)


Case = tuple[Path, Imported, tuple[Life, ...]]


def test_every_tensor(case: Case) -> None:
    folder, trace, lives = case
    assert trace.times is not None
    for stated, life in zip(read_liveness(folder / "interval.config.gz"), lives, strict=True):
        assert (stated.birth, stated.death) == (life.birth, life.death)
        assert (stated.tensor.is_global, stated.tensor.nbytes) == (life.persistent, life.nbytes)
        assert [period[:2] for period in stated.periods] == [(p.start, p.end) for p in life.intervals]
        times = [trace.times.us(int(p.time)) for p in life.intervals]
        assert times == pytest.approx([period.time_us for period in stated.periods], rel=1e-5)


def test_every_series(case: Case) -> None:
    folder, trace, lives = case
    series, stated = series_of(trace.graph, lives), read_memory_log(folder / "NNMemConsumptionLog.py.gz")
    assert series.active == stated.active == read_active(folder / "real_mem.config.gz")
    assert series.active_breakdown == stated.active_breakdown
    assert series.total == stated.total
    assert (series.global_weight, series.input_size) == (stated.global_weight, stated.input_size)


def test_periods_in_both_orders(case: Case) -> None:
    folder, trace, lives = case
    assert trace.times is not None
    found = [(life.nbytes, int(p.time), p.start) for life in lives for p in life.intervals]
    orders = {
        "TensorPeriodLog.creation_order.py.gz": found,
        "TensorPeriodLog.py.gz": sorted(found, key=lambda row: -row[0] * row[1]),
    }
    for name, rows in orders.items():
        if not (folder / name).exists():
            assert name != "TensorPeriodLog.py.gz"
            continue
        log = read_periods_log(folder / name)
        assert sorted(zip(log.sd_size, log.starts, strict=True)) == sorted((row[0], row[2]) for row in rows)
        weighed = [trace.times.us(row[0] * row[1]) for row in rows]
        products = [nbytes * time for nbytes, time in zip(log.sd_size, log.sd_time, strict=True)]
        assert products == pytest.approx(weighed, rel=1e-5), "in this order"


def test_times(case: Case) -> None:
    folder, trace, _ = case
    assert trace.times is not None
    rows = json.loads((folder.parent / "results.json").read_text())
    assert {row["ideal_cycles"] for row in rows if row["workload"] == folder.name} == {sum(trace.times.ticks)}
    assert trace.times.total_ns == Fraction(sum(trace.times.ticks) * 1000, 1200)
    clock = read_clock(folder / "kernel_time_table.config.gz")
    assert list(clock) == pytest.approx(
        [trace.times.us(sum(trace.times.ticks[:index])) for index in range(len(clock))], rel=1e-5
    )
    profile = read_profile(folder / "profile" / "T11.txt.gz")
    assert profile == trace.times.ticks
    assert len(read_profile(folder / "profile" / "workspace.txt.gz")) == len(profile)


def test_what_is_in_it(case: Case) -> None:
    folder, trace, lives = case
    validate(trace.graph)
    series = series_of(trace.graph, lives)
    periods = [period for life in lives for period in life.intervals]
    assert TRACES[folder.name] == (
        len(trace.graph),
        sum(op.phase is Phase.FORWARD for op in trace.graph.ops),
        len(trace.tensors),
        sum(life.persistent for life in lives),
        len(periods),
        sum(period.looped for period in periods),
        sum(life.death == -1 for life in lives),
        max(series.live),
        series.live.index(max(series.live)),
    )


def test_the_comparison_says_the_same(case: Case) -> None:
    folder, trace, _ = case
    found = compare(trace, folder)
    assert found.differences == ()
    assert len(found.files) == 5
