"""Stored measurements: the same call takes its measured time, and nothing else does; damaged stores are not used."""

from __future__ import annotations

import csv
import functools
import gzip
import io
import math
from pathlib import Path

import msgspec
import pytest

import tensortide
from tensortide.errors import GraphFileError
from tensortide.graph import Graph
from tensortide.timing import Durations, Measurement, Platform, device, estimate, identity
from tensortide.timing.estimates import Provenance
from tensortide.timing.intervals import FLOOR_MEASURED
from tensortide.timing.samples import ALONE, SUFFIX, Row, Stored, _stored, key_of, known, read_rows, recall, remember
from tensortide.timing.store import path_of, same_threads, software_of

T4 = device("T4")
TORCH = "torch 2.13"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return tensortide.capture("mlp", hyperparameters={"batch": 4})


@functools.cache
def vgg() -> Graph:
    return tensortide.capture("vgg", hyperparameters={"batch": 1})


def measured(graph: Graph, *, count: int = 9, how: str = "step", version: str = "2.13.0+cpu") -> Durations:
    """Every op took 1000 ns times its number, plus one."""
    ns = tuple(1000 * (i + 1) for i in range(len(graph)))
    machine = Platform(device="cuda", name="Tesla T4", versions={"torch": version})
    samples = (count,) * len(graph)
    found = Measurement(how=how, clock="kernel", min_ns=ns, p90_ns=ns, samples=samples, machine=machine)  # type: ignore[arg-type]
    return Durations(ns, "test", "measured", 0, identity(graph), found)


def provenances(found: Durations) -> list[Provenance]:
    assert found.forecast is not None
    return [found.forecast.rows[row].provenance for row in found.forecast.index]


def test_the_same_calls_take_their_measured_times(graph: Graph, tmp_path: Path) -> None:
    remember(graph, measured(graph), T4.name, store=tmp_path)
    found = recall(graph, estimate(graph, T4), T4.name, TORCH, store=tmp_path)
    by_call: dict[object, list[int]] = {}
    for op in graph:
        by_call.setdefault(key_of(op), []).append(1000 * (op.index + 1))
    for op, ns, kind in zip(graph, found.ns, provenances(found), strict=True):
        if not op.is_view:
            times = by_call[key_of(op)]
            assert min(times) <= ns <= max(times)
            assert ns == times[0] or len(times) > 1
            assert kind is Provenance.MEASURED
        else:
            assert kind is not Provenance.MEASURED
    found.check(graph)
    assert "by stored measurements" in found.source


def test_another_size_or_another_device_is_predicted_as_before(graph: Graph, tmp_path: Path) -> None:
    remember(graph, measured(graph), T4.name, store=tmp_path)
    other = tensortide.capture("mlp", hyperparameters={"batch": 5})
    predicted = estimate(other, T4)
    found = recall(other, predicted, T4.name, TORCH, store=tmp_path)
    sized = [op.index for op in other if any(4 in t.shape for t in op.inputs) or any(5 in t.shape for t in op.inputs)]
    assert [found.ns[i] for i in sized] == [predicted.ns[i] for i in sized]
    l4 = device("L4")
    assert recall(graph, estimate(graph, l4), l4.name, TORCH, store=tmp_path) == estimate(graph, l4)


@pytest.mark.parametrize(
    ("software", "count", "how", "kind", "half"),
    [
        (TORCH, 9, "step", Provenance.MEASURED, 0.03),
        (TORCH, 2, "step", Provenance.INTERPOLATED, 0.06),
        ("torch 2.14", 9, "step", Provenance.INTERPOLATED, 0.06),
        (None, 9, "step", Provenance.INTERPOLATED, 0.06),
        (TORCH, 9, "isolated", Provenance.INTERPOLATED, ALONE),
    ],
)
def test_other_software_few_samples_and_calls_alone_are_less_sure(
    software: str | None, count: int, how: str, kind: Provenance, half: float, tmp_path: Path
) -> None:
    graph = vgg()
    remember(graph, measured(graph, count=count, how=how), T4.name, store=tmp_path)
    found = recall(graph, estimate(graph, T4), T4.name, software, store=tmp_path)
    convolution = next(op.index for op in graph if op.name == "aten.convolution.default")
    assert provenances(found)[convolution] is kind
    assert found.forecast is not None
    assert found.forecast.rows[found.forecast.index[convolution]].below == half


def test_measurements_are_appended_and_their_median_counts(tmp_path: Path) -> None:
    graph = vgg()
    first = measured(graph)
    for factor in (1, 3, 2):
        ns = tuple(factor * t for t in first.ns)
        assert first.measurement is not None
        times = msgspec.structs.replace(first.measurement, min_ns=ns, p90_ns=ns)
        remember(graph, msgspec.structs.replace(first, ns=ns, measurement=times), T4.name, store=tmp_path)
    path = path_of(T4.name, TORCH, SUFFIX, tmp_path)
    assert len(read_rows(path)) % 3 == 0
    found = recall(graph, estimate(graph, T4), T4.name, TORCH, store=tmp_path)
    convolution = next(op.index for op in graph if op.name == "aten.convolution.default")
    assert found.ns[convolution] == 2 * first.ns[convolution]


def test_the_version_counts_to_its_minor_number_and_threads_on_a_cpu() -> None:
    assert software_of(Platform(device="cuda", name="x", versions={"torch": "2.13.1+cu126"})) == TORCH
    assert (
        software_of(Platform(device="cpu", name="x", threads=2, versions={"torch": "2.9.0"})) == "torch 2.9 2 threads"
    )
    assert software_of(Platform(device="cuda", name="x")) == ""


@pytest.mark.parametrize(
    "content",
    [b"", b"junk", gzip.compress(b"a,b\n", mtime=0), gzip.compress(b"\xff", mtime=0)],
    ids=["empty", "junk", "no fields", "not text"],
)
def test_a_damaged_store_is_one_error_and_replaces_nothing(graph: Graph, content: bytes, tmp_path: Path) -> None:
    path = path_of(T4.name, TORCH, SUFFIX, tmp_path)
    remember(graph, measured(graph), T4.name, store=tmp_path)
    cut = gzip.compress(gzip.decompress(path.read_bytes())[:-9])
    for data in (content, cut):
        path.write_bytes(data)
        with pytest.raises(GraphFileError, match="store of measured times"):
            recall(graph, estimate(graph, T4), T4.name, TORCH, store=tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"t_med_ns": "9" * 5000},
        {"t_med_ns": "9" * 30, "t_p90_ns": "9" * 30},
        {"t_med_ns": "0", "t_min_ns": "0"},
        {"t_min_ns": "2000000", "t_p90_ns": "2000000"},
        {"t_p90_ns": "0"},
        {"n": "0"},
        {"t_med_ns": "-5"},
        {"t_med_ns": "1e6"},
        {"t_med_ns": ""},
    ],
    ids=lambda changed: " ".join(f"{name} {value[:9]}" for name, value in changed.items()),
)
def test_numbers_that_no_measurement_gives_are_damage(graph: Graph, changed: dict[str, str], tmp_path: Path) -> None:
    path = path_of(T4.name, TORCH, SUFFIX, tmp_path)
    remember(graph, measured(graph), T4.name, store=tmp_path)
    table = list(csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines()))
    table[0] |= {"t_med_ns": "1000000", "t_min_ns": "900000", "t_p90_ns": "1100000"} | changed
    text = io.StringIO()
    writer = csv.DictWriter(text, list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    with pytest.raises(GraphFileError, match="line 2: a damaged store of measured times"):
        recall(graph, estimate(graph, T4), T4.name, TORCH, store=tmp_path)


def test_times_of_other_threads_do_not_count_and_scatter_widens(tmp_path: Path) -> None:
    own, others = software_of(cpu(2)), software_of(cpu(1))
    assert same_threads(path_of("cpu", own, SUFFIX, tmp_path).name, own)
    assert not same_threads(path_of("cpu", others, SUFFIX, tmp_path).name, own)
    assert same_threads(path_of("a card", "torch 2.13", SUFFIX, tmp_path).name, "torch 2.12")
    row = Row("aten.mm", "default", "f", "", "", "", "", "1", "1", "1", 100, 90, 150, 9, "wall", "step", "eager", "")
    assert _stored([row], same=True) == Stored(100, math.log(1.5), Provenance.MEASURED)
    assert _stored([row._replace(t_p90_ns=900)], same=True).half == math.log(2)
    assert _stored([row._replace(t_p90_ns=100)], same=True).half == FLOOR_MEASURED


def cpu(threads: int) -> Platform:
    return Platform(device="cpu", name="cpu", threads=threads, versions={"torch": "2.13.0"})


def test_a_cpu_takes_no_times_of_other_threads(tmp_path: Path) -> None:
    graph = tensortide.capture("mlp", hyperparameters={"batch": 4})
    timed = measured(graph)
    assert timed.measurement is not None
    for threads in (1, 2):
        found = msgspec.structs.replace(timed.measurement, machine=cpu(threads))
        remember(graph, msgspec.structs.replace(timed, measurement=found), "cpu", store=tmp_path)
        stored = known("cpu", software_of(cpu(2)), tmp_path)
        assert bool(stored) == (threads == 2)
