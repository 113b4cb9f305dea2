"""Loops whose trips nobody knows, and arms that exclude each other: said with every total, an error where asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.cost import count
from tensortide.errors import UnknownCost, WorkloadError
from tensortide.formulas.request import formulas_of_graph
from tensortide.graph import Graph, GraphBuilder, guessed_trips, load, save, unrolled, with_trips
from tensortide.importers.door import open as opened
from tensortide.timing import device, estimate
from tests.cli.command import fails, run


def searching(known: int | None = None) -> Graph:
    """A product in a loop of unknown length, its gradient loop, and two arms: two products, and one."""
    b = GraphBuilder("search")
    x, w = b.input("x", (8, 8)), b.parameter("w", (8, 8))
    with b.loop("while_3", known) as carry:
        carry(x, b.op("aten.mm", x, w, out=x))
    with b.phase("backward"), b.loop("grad", known, gradient_of=carry):
        b.op("aten.mm", x, w, out=x)
    arm = b.conditional()
    for which, products in enumerate((2, 1)):
        with arm(which):
            for _ in range(products):
                b.op("aten.mm", x, w, out=x)
    return b.build()


MACS = 8**3


@pytest.mark.parametrize("flat", [False, True])
def test_a_total_with_a_guess_says_so(flat: bool) -> None:
    graph = unrolled(searching()) if flat else searching()
    counted = count(graph)
    assert counted.total.macs == 4 * MACS
    assert "counted once: loop `while_3` runs an unknown number of times (--set trips.while_3=N)" in (
        counted.coverage.line()
    )
    assert "FLOPs ~4.10 k" in counted.coverage.line()
    assert "of 1 conditional with unknown outcome the dearest arm counts, the cheapest makes it 3.07 k" in (
        counted.coverage.line()
    )
    with pytest.raises(UnknownCost, match="while_3"):
        count(graph, strict=True)


def test_a_trip_count_can_be_given() -> None:
    graph = with_trips(searching(), {"while_3": 10})
    assert not guessed_trips(graph)
    assert count(graph, strict=True).total.macs == 22 * MACS
    assert guessed_trips(unrolled(graph)) == {}
    assert "unknown number" not in count(graph).coverage.line()


def test_a_name_that_no_loop_has_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="no loop 'while_2'; 'while_3' is meant"):
        with_trips(searching(), {"while_2": 10})
    with pytest.raises(WorkloadError, match="runs 5 times: that is known"):
        with_trips(searching(5), {"while_3": 10})


def test_any_file_takes_trip_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "search.tide"
    save(unrolled(searching()), path)
    assert guessed_trips(load(path)) == {"while_3": 1}
    save(searching(), path)
    assert opened(path, hyperparameters={"trips.while_3": 0}).graph.loops[1].trips == 0
    with pytest.raises(WorkloadError, match="number of trips"):
        opened(path, hyperparameters={"trips.while_3": 2.5})
    text = run(capsys, "count", path, "--set", "trips.while_3=10", "--strict")
    assert "unknown number" not in text
    assert f"{2 * 22 * MACS:,}" in text


@pytest.mark.parametrize("verb", ["count", "report"])
def test_strict_refuses_a_guess(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(searching(), tmp_path / "search.tide")
    assert "loop `while_3` runs an unknown number of times" in " ".join(run(capsys, verb, "search.tide").split())
    refused = fails(capsys, verb, "search.tide", "--strict", status=3)
    assert "loop `while_3` runs an unknown number of times" in " ".join(refused.split())


def test_formulas_say_what_is_guessed() -> None:
    b = GraphBuilder()
    n = b.symbol("n", 4)
    x = b.input("x", (n, n))
    with b.loop("outer/while", None):
        b.op("aten.mm", x, x, out=x)
    found = formulas_of_graph(b.build(), {"n": 4})
    assert "loop `outer/while` runs an unknown number of times" in found.assumptions[-1]


def test_an_estimate_has_the_time_of_one_arm() -> None:
    durations = estimate(unrolled(searching()), device("H100-SXM-80GB"))
    assert [ns > 0 for ns in durations.ns] == [True, True, True, True, False]
    assert "dearest arm" in durations.source


def test_sizes_that_depend_on_a_trip_count_change_with_it() -> None:
    b = GraphBuilder("stacked")
    trips = b.symbol("trips.while", 1)
    with b.loop("while", trips, assumed=True):
        row = b.op("aten.relu", b.input("x", (8,)), out=(8,))
    b.op("aten.relu", b.op("mine.stack", row, out=(trips, 8)), out=(trips, 8))
    given = with_trips(b.build(), {"while": 10})
    assert given.tensors[-1].shape == (10, 8)
    assert count(given).total.cost.elementwise_flops == 10 * 8 + 10 * 8
