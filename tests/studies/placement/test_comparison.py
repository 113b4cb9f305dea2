"""Comparisons of searches, side by side and resumed; predictions against measurements."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tensortide.errors import PlacementError
from tensortide.executors import LOCAL, Where
from tensortide.placements.search import Budget
from tensortide.reports.sections.placement_comparison import document, validation_document
from tensortide.studies.placement.comparison import PlaceCompareRequest, Task, answer, compare, contenders
from tensortide.studies.placement.config import read_config
from tensortide.studies.placement.configured import run_config
from tensortide.studies.placement.measured import validated
from tensortide.studies.placement.placed_net import NetSubject
from tensortide.version import VERSION
from tests.placements.cases import EXPRIMO, PUBLISHED, cluster, net

SUBJECT = NetSubject(
    net("mnist"), cluster("cluster2-reduced-mnist"), replace(PUBLISHED, memory_penalization_factor=1.0)
)
THREADS = Where(workers=2, kind="threads")


def tasks(names: tuple[str, ...] = ("best", "genetic"), seeds: int = 2) -> list[Task]:
    return [Task("mnist", SUBJECT.problem, one, 150, seed) for one in contenders(names) for seed in range(seeds)]


def test_every_algorithm_has_a_line_with_all_seeds() -> None:
    lines = compare(tasks(), THREADS)
    assert [(line.problem, line.algorithm, len(line.outcomes)) for line in lines] == [
        ("mnist", "best", 2),
        ("mnist", "genetic", 2),
    ]
    shown = document(lines)["comparison"].table("algorithms")
    scores = [[one.score_ms for one in line.outcomes] for line in lines]
    assert shown["median_ns"] == tuple(round(statistics.median(each) * 1e6) for each in scores)
    assert min(shown["against_change"]) == 0  # type: ignore[type-var] # all are numbers


def test_a_configuration_is_compared_without_the_single_devices_that_it_excludes() -> None:
    path = EXPRIMO / "configs" / "experiments" / "e3" / "e3_hc-resnet50.json"
    alone = run_config(read_config(path), budget=Budget(300))
    for names in (None, "random-hill"):
        line, *_ = answer(PlaceCompareRequest(problems=(str(path),), algorithms=names, seeds=1, budget=300))
        assert line.outcomes[0].score_ms > 2 * 203.405
        if names is None:
            assert line.outcomes[0].score_ms == alone.placed.search.score_ms
    task = next(PlaceCompareRequest(problems=(str(path),), seeds=1, budget=300).tasks())
    given, *_ = compare([replace(task, singles=True)], THREADS)
    assert given.outcomes[0].score_ms < 203.406


def test_configurations_that_differ_have_a_line_each(tmp_path: Path) -> None:
    path = EXPRIMO / "configs" / "ga-malvik-alexnet.json"
    first = json.loads(path.read_text())
    for key in ("net_path", "device_graph_path"):
        first[key] = str(EXPRIMO / first[key])

    def written(name: str, **arguments: object) -> str:
        made = {**first, "optimizer_args": first["optimizer_args"] | arguments}
        (tmp_path / name).write_text(json.dumps(made))
        return str(tmp_path / name)

    one = written("1.json", mutation_rate=0.5, mutation_sharding_rate=0.25)
    other = written("2.json", mutation_rate=0.5, mutation_sharding_rate=0)
    limited = written("3.json", device_memory_utilization=0.5, mutation_sharding_rate=0)
    asked = PlaceCompareRequest(problems=(one, other, one, limited), seeds=1, budget=20)
    found = [(task.name, task.contender.label) for task in asked.tasks()]
    assert [label for _, label in found] == ["genetic sharing_rate=0.25", "genetic sharing_rate=0", "genetic"]
    assert found[0][0] == found[1][0] != found[2][0]
    assert found[2][0].endswith("(" + limited + ")")
    assert len(answer(asked)) == 3


def test_searches_of_what_does_not_fit_have_no_gap() -> None:
    subject = replace(SUBJECT, settings=replace(SUBJECT.settings, batch_size=40960))
    line, *_ = compare([Task("mnist", subject.problem, contenders(["random"])[0], 20, 0)], THREADS)
    assert (line.outcomes[0].fits, line.gap_share) == (False, None)
    assert document([line]).subtitle == ("1 seed each, 20 placements",)


def test_finished_searches_are_not_repeated_and_a_cut_line_is(tmp_path: Path) -> None:
    saved = tmp_path / "runs.jsonl"
    first = compare(tasks(seeds=1), THREADS, saved=saved)
    saved.write_bytes(saved.read_bytes()[:-30])
    told: list[tuple[int, int]] = []
    again = compare(tasks(), THREADS, saved=saved, watch=lambda done, total: told.append((done, total)))
    assert told == [(2, 4), (3, 4), (4, 4)]
    assert [line.outcomes[0].score_ms for line in again] == [line.outcomes[0].score_ms for line in first]
    assert len(saved.read_text().splitlines()) == 5, "a head, and a line for each search"


def test_a_file_of_something_else_or_with_a_damaged_line_is_refused(tmp_path: Path) -> None:
    saved = tmp_path / "runs.jsonl"
    saved.write_text('{"format": "tensortide remat runs", "version": 1}\n')
    with pytest.raises(PlacementError, match=r"runs.jsonl does not hold finished searches"):
        compare(tasks(seeds=1), THREADS, saved=saved)
    saved.write_text('{"format": "tensortide placement searches", "version": 9, "tensortide": "9.1"}\n')
    with pytest.raises(
        PlacementError, match=r"searches format 9 of tensortide 9\.1; this release reads 1: give --save"
    ):
        compare(tasks(seeds=1), THREADS, saved=saved)
    saved.write_text('{"format": "tensortide placement searches", "version": 1}\n{"key": 1}\n')
    with pytest.raises(PlacementError, match="damaged in line 2: "):
        compare(tasks(seeds=1), THREADS, saved=saved)


def test_searches_of_another_release_are_read_where_they_have_all_and_else_repeated(tmp_path: Path) -> None:
    saved = tmp_path / "runs.jsonl"
    first = compare(tasks(seeds=1), THREADS, saved=saved)
    head, *lines = map(json.loads, saved.read_text().splitlines())
    assert head["tensortide"] == VERSION
    del lines[0]["search"]["bound_ms"]

    def write(version: str) -> None:
        heads = {**head, "tensortide": version} if version else {key: head[key] for key in ("format", "version")}
        saved.write_text("".join(json.dumps(line) + "\n" for line in (heads, *lines)))

    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    for version in ("0.0.1", ""):
        write(version)
        again = compare(tasks(seeds=1), THREADS, saved=saved, watch=tell)
        assert told == [(2, 2)], "one is repeated"
        assert [line.outcomes[0].score_ms for line in again] == [line.outcomes[0].score_ms for line in first]
        told.clear()
        compare(tasks(seeds=1), THREADS, saved=saved, watch=tell)
        assert told == []
        now, *kept = map(json.loads, saved.read_text().splitlines())
        assert now == head, "the file is one of this release"
        assert lines[0] not in kept
        assert lines[1:] == kept[: len(lines) - 1]
    write(VERSION)
    with pytest.raises(PlacementError, match=r"damaged in line 2: .*bound_ms"):
        compare(tasks(seeds=1), THREADS, saved=saved)


@pytest.mark.slow
@pytest.mark.parametrize("where", [Where(workers=2), Where(workers=2, cluster=LOCAL)])
def test_processes_and_a_cluster_give_the_results_of_threads(where: Where) -> None:
    here, there = compare(tasks(), THREADS), compare(tasks(), where)
    assert [[one.score_ms for one in line.outcomes] for line in here] == [
        [one.score_ms for one in line.outcomes] for line in there
    ]


def test_a_grid_has_every_combination_of_values() -> None:
    found = contenders(["genetic"], ["population=10,20", "elite=1,2,3"])
    assert [one.label for one in found][:2] == [
        "genetic population=10 elite=1",
        "genetic population=10 elite=2",
    ]
    assert len(found) == 6
    assert [one.label for one in contenders(["genetic", "genetic"], ["elite=1,2,2"])] == [
        "genetic elite=1",
        "genetic elite=2",
    ]
    with pytest.raises(PlacementError, match="has no option 'popultion'; it has: population"):
        contenders(["genetic"], ["popultion=10"])
    with pytest.raises(PlacementError, match="cannot be 'x'"):
        contenders(["genetic"], ["population=x"])


def test_correlations_and_the_line_are_those_of_the_measurements() -> None:
    rng = np.random.default_rng(1)
    predicted = rng.uniform(1, 10, 20)
    measured = 3 * predicted + 2
    measured[4] += 9
    names = [f"p{number}" for number in range(20)]
    rows = [*zip(names, predicted.tolist(), measured.tolist(), strict=True), ("big", 1.0, None)]
    found = validated(rows)
    assert found.worst[0].placement == "p4"
    assert found.out_of_memory == ("big",)
    assert 0.7 < found.rank < 1
    exact = validated([row for row in rows if row[0] != "p4"])
    assert (exact.slope, exact.offset_ms, exact.pearson, exact.rank) == pytest.approx((3, 2, 1, 1))
    assert validation_document("t", found)["validation"].fact("placements") == 20


def test_too_few_or_equal_measurements_are_refused() -> None:
    with pytest.raises(PlacementError, match="2 measured placements"):
        validated([("a", 1.0, 2.0), ("b", 2.0, 3.0), ("c", 3.0, None)])
    with pytest.raises(PlacementError, match="same time"):
        validated([("a", 1.0, 2.0), ("b", 1.0, 3.0), ("c", 1.0, 4.0)])
    for wrong in (float("nan"), float("inf"), 0.0, -1.0, "5", [1.0]):
        with pytest.raises(PlacementError, match="a positive number of milliseconds"):
            validated([("a", 1.0, 2.0), ("b", 2.0, wrong), ("c", 3.0, 4.0)])  # type: ignore[list-item]
