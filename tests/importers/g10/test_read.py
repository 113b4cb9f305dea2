"""Traces by hand: the worked example, what a reader is to put up with, and how the Graph looks."""

from __future__ import annotations

import gzip
import random
from fractions import Fraction
from pathlib import Path

import pytest

from tensortide.graph import Phase, Role, validate
from tensortide.importers.g10.analysis import series_of
from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import read_liveness, read_profile
from tensortide.importers.imported import Imported
from tensortide.timelines import NEVER_READ, liveness, timeline
from tests.importers.g10.example import INTERVALS, KERNELS, SIZES, kernels_config, tensors_config, write_trace

TICKS_PER_US = 1200


def told(trace: Imported) -> dict[str, tuple[int | None, int | None, list[tuple[int, int, bool, float]]]]:
    """Birth, death and periods in us of each tensor of the worked example."""
    assert trace.times is not None
    lives = liveness(trace.graph, "compat", trace.times.ticks)
    return {
        name: (
            life.birth,
            life.death,
            [(p.start, p.end, p.looped, trace.times.us(int(p.time))) for p in life.intervals],
        )
        for name, life in zip(SIZES, lives, strict=True)
    }


def test_the_worked_example(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path))
    validate(trace.graph)
    assert told(trace) == {
        "W": (None, None, [(1, 4, False, 90.0)]),
        "A": (0, 4, [(2, 3, False, 30.0)]),
        "B": (1, 4, []),
        "S": (1, NEVER_READ, []),
        "G": (3, 5, []),
    }
    assert trace.times is not None
    assert trace.times.total_ns == 150_000
    series = series_of(trace.graph, liveness(trace.graph, "compat"))
    assert series.active == (12, 7, 2, 9, 11)
    assert series.live == (12, 15, 14, 17, 11)
    assert series.total == tuple(live + SIZES["W"] for live in series.live)
    assert series.active_breakdown == ((4, 8, 0), (0, 0, 7), (0, 0, 2), (0, 0, 9), (0, 8, 3))
    assert (series.global_weight, series.input_size) == (8, 8)


def test_a_weight_used_once_is_idle_around_the_step(tmp_path: Path) -> None:
    trace = read_trace(write_trace(tmp_path, (*KERNELS[:4], ("G", ""))))
    assert told(trace)["W"] == (None, None, [(1, 0, True, 140.0)])


def test_what_the_graph_says(tmp_path: Path) -> None:
    graph = read_trace(write_trace(tmp_path)).graph
    assert [storage.role for storage in graph.storages] == [
        Role.PARAMETER,
        Role.ACTIVATION,
        Role.ACTIVATION,
        Role.TEMPORARY,
        Role.ACTIVATION,
    ]
    assert [op.phase for op in graph.ops] == [Phase.FORWARD] * 3 + [Phase.BACKWARD] * 2
    assert [graph[index].module for index in range(5)] == ["0", "1", "2", "0", "1"]
    assert graph[0].name == "g10.Some_Forward"
    assert graph[2].written_storages == {2}
    assert [int(value) for value in timeline(graph).before][:2] == [8, 12]


def test_what_a_reader_puts_up_with(tmp_path: Path) -> None:
    """Any order of operands and facts, several lines of dimensions, Windows line ends, gzip, blank lines at the end."""
    plain = read_trace(write_trace(tmp_path))
    shuffled: list[str] = []
    block: list[str] = []
    for line in kernels_config().splitlines():
        if line.startswith("tensor"):
            block.append(line)
            continue
        random.Random(len(shuffled)).shuffle(block)
        shuffled += [*block, line]
        block = []
        if line.startswith("Execution"):
            shuffled[-2:] = ["(512, 3)", shuffled[-1], shuffled[-2], "(1,2,3)"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "kernels.config.gz").write_bytes(gzip.compress(("\r\n".join(shuffled) + "\r\n\r\n").encode()))
    read = read_trace(other)  # without tensors.config
    assert told(read) == told(plain)
    assert read.graph.storages == plain.graph.storages
    assert read_trace(other / "kernels.config.gz").graph.ops == read.graph.ops


def test_durations_of_whole_nanoseconds_drift_by_less_than_one(tmp_path: Path) -> None:
    text = kernels_config()
    for index in range(5):
        text = text.replace(f"Execution Time: {(index + 1) * 12_000}\n", f"Execution Time: {index + 7}\n")
    (tmp_path / "kernels.config").write_text(text)
    trace = read_trace(tmp_path)
    assert trace.times is not None
    durations = trace.times.durations(trace.graph, "test")
    durations.check(trace.graph)
    for start in range(5):
        for end in range(start, 6):
            exact = sum(trace.times.ticks[start:end]) * Fraction(5, 6)
            assert abs(sum(durations.ns[start:end]) - exact) <= 1


def test_intervals(tmp_path: Path) -> None:
    path = tmp_path / "interval.config"
    path.write_text(INTERVALS)
    weight, a, b = read_liveness(path)
    assert (weight.birth, weight.death, weight.periods) == (None, None, ((1, 4, 90.0),))
    assert (a.birth, a.death, a.periods) == (0, 4, ((2, 3, 30.0),))
    assert b.periods == ()


@pytest.mark.parametrize(("text", "values"), [("0000 0.5 ms\n0001 1 ms\n", (600_000, 1_200_000)), ("0 7 B\n", (7,))])
def test_profiles(tmp_path: Path, text: str, values: tuple[int, ...]) -> None:
    path = tmp_path / "profile.txt"
    path.write_text(text)
    assert read_profile(path) == values


def test_unused_tensors_are_never_alive(tmp_path: Path) -> None:
    write_trace(tmp_path)
    extra = "tensor5 Is weight (global)?: {}, Size in byte: 16, Range:10--26\n"
    for weight in (0, 1):
        (tmp_path / "tensors.config").write_text(tensors_config() + extra.format(weight))
        graph = read_trace(tmp_path).graph
        validate(graph)
        life = liveness(graph, "compat")[5]
        assert (life.birth, life.death, life.uses, life.intervals) == (None, None, (), ())
        series = series_of(graph, liveness(graph, "compat"))
        assert series.global_weight == 8 + 16 * weight
        assert max(series.live) == 17 + 16 * weight


def test_a_tensor_of_unknown_dimensions_has_its_bytes(tmp_path: Path) -> None:
    line = "tensor0, Name: a, Is global?: 0: Size in byte: 24, Dimensions: f32[s0, 3]"
    lines = ["Kernel ID: 0, Name: x", "Input Tensors:", "Output Tensors:", line, "_" * 68]
    (tmp_path / "kernels.config").write_text("\n".join(lines))
    (tensor,) = read_trace(tmp_path).graph.tensors
    assert (tensor.dtype, tensor.shape) == ("uint8", (24,))
