"""All stages of a job: a row for each rank that does something of its own, their memory and the time of all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from tensortide.errors import CaptureError, Doubtful, ExitStatus
from tensortide.graph.model import Graph
from tensortide.parallelism import Degrees, per_rank
from tensortide.recorder.script import ScriptOptions
from tensortide.studies import job
from tensortide.studies.job import job_from, job_of
from tensortide.targets.requests import CaptureRequest
from tensortide.timelines import timeline
from tensortide.timing.cards import of_bytes
from tensortide.timing.collectives import Nodes, nodes_of
from tests.cli.command import fails
from tests.graphs.files import path_of, stored

LAUNCH = ("--ranks", "2", "--", "python", "train.py")
NODES = nodes_of("H100-SXM-80GB", devices_per_node=4)


@pytest.fixture(scope="module")
def stages() -> dict[int, Graph]:
    return dict(enumerate(per_rank(stored("gpt2"), Degrees(pipeline=2)).graphs))


def test_a_rank_of_each_stage_has_its_memory_and_its_time(stages: dict[int, Graph]) -> None:
    found = job_from("train.py", 2, stages, NODES)
    assert [(row.rank, row.ranks) for row in found.rows] == [(0, 1), (1, 1)]
    assert [row.peak_bytes for row in found.rows] == [timeline(graph).peak_bytes for graph in stages.values()]
    assert found.step_time is not None
    assert max(row.end_ns or 0 for row in found.rows) <= found.step_time.time_ns
    assert found.status is ExitStatus.HOLDS
    assert all(row.most_bytes is not None and row.most_bytes >= row.reserved_bytes for row in found.rows)
    said = found.document()["job"]
    assert [said.fact(f"step{end}_ns") for end in ("_low", "", "_high")] == [
        round(ns) for ns in (found.step_time.low_ns, found.step_time.time_ns, found.step_time.high_ns)
    ]
    waited = {row.rank: sum(each.time_ns for each in found.waits if each.rank == row.rank) for row in found.rows}
    assert waited == {row.rank: row.waiting_ns for row in found.rows}
    assert all(each.others == str(1 - each.rank) for each in found.waits)
    assert found.joined is not None
    messages = [(each.ranks, each.groups) for each in found.joined.exchanged if each.kind == "send_recv"]
    assert messages == [(2, 2)]  # activations one way, gradients the other


def test_the_last_rank_is_a_row_if_its_step_is_another(stages: dict[int, Graph]) -> None:
    groups = {name: tuple(rank + 2 for rank in ranks) for name, ranks in stages[1].meta.groups.items()}
    last = structs.replace(stages[1], meta=structs.replace(stages[1].meta, groups=groups))
    same = job_from("train.py", 4, {**stages, 3: last}, NODES)
    assert [(row.rank, row.ranks) for row in same.rows] == [(0, 2), (1, 2)]
    storages = last.storages
    smaller = structs.replace(last, storages=(*storages[:-1], structs.replace(storages[-1], nbytes=1 << 30)))
    other = job_from("train.py", 4, {**stages, 3: smaller}, NODES)
    assert [(row.rank, row.ranks, row.end_ns is None) for row in other.rows] == [
        (0, 2, False),
        (1, 2, False),
        (3, 2, True),
    ]


def test_a_last_rank_that_does_more_makes_the_others_wait() -> None:
    short, long = stored("mlp"), stored("gpt2")
    alone = job_from("train.py", 2, {0: short}, NODES).step_time
    last = job_from("train.py", 2, {0: long}, NODES).step_time
    both = job_from("train.py", 2, {0: short, 1: long}, NODES)
    assert alone is not None
    assert last is not None
    assert both.step_time is not None
    assert both.step_time.time_ns == last.time_ns > alone.time_ns
    assert [row.end_ns is None for row in both.rows] == [False, False]


@pytest.mark.parametrize("nodes", [NODES, None])
def test_collectives_of_the_last_rank_that_do_not_match_are_an_error(nodes: Nodes | None) -> None:
    (graph,) = per_rank(stored("gpt2"), Degrees(data=2)).graphs
    with pytest.raises(CaptureError, match="for rank 1, which has no more of them"):
        job_from("train.py", 2, {0: graph, 1: stored("gpt2")}, nodes)


def test_of_many_ranks_that_one_waits_for_a_few_are_named_and_all_counted() -> None:
    (graph,) = per_rank(stored("gpt2"), Degrees(data=2)).graphs
    groups = {name: tuple(range(64)) for name in graph.meta.groups}
    wide = structs.replace(graph, meta=structs.replace(graph.meta, groups=groups))
    found = job_from("train.py", 64, {0: wide}, nodes_of("H100-SXM-80GB", nodes=8, devices_per_node=8))
    assert {each.others for each in found.waits} == {"1, 2, 3, 4, ... (63)"}


def test_ranks_that_ran_only_for_what_they_send_to_the_last_are_no_rows(stages: dict[int, Graph]) -> None:
    found = job_from("train.py", 4, {**stages, 2: stages[0], 3: stages[1]}, NODES)
    assert [(row.rank, row.ranks) for row in found.rows] == [(0, 2), (1, 2)]


def test_a_job_fits_if_every_rank_does_and_a_size_has_no_time(stages: dict[int, Graph]) -> None:
    least = min(timeline(graph).peak_bytes for graph in stages.values())
    found = job_from("train.py", 2, stages, None, of_bytes(least // 2))
    assert found.status is ExitStatus.FAILS
    assert found.step_time is None
    assert all(row.end_ns is None for row in found.rows)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("time", str(path_of("mlp")), "--all-stages"), "--all-stages goes with a script"),
        (("time", "--all-stages", "--", "python", "train.py"), "--all-stages goes with the launch of several ranks"),
        (
            ("count", "--all-stages", "--ranks", "2", "--", "python", "train.py"),
            "goes with time, memory, fit and report",
        ),
        (
            ("report", "--memory-viz", "v.pickle", "--all-stages", "--ranks", "2", "--", "python", "train.py"),
            "--all-stages goes without --memory-viz",
        ),
        (
            ("time", "-o", "step.json", "--launch", "graph", "--all-stages", "--", "python", "train.py"),
            "--all-stages goes without --output, --launch",
        ),
        (
            ("fit", "--all-stages", "--machine", "4xh100-sxm", "--ranks", "8", "--", "python", "train.py"),
            "has 4 devices, and the launch has 8 ranks",
        ),
        (
            ("fit", "--all-stages", "--machine", "t4", "--machine", "l4", *LAUNCH),
            "--all-stages takes a single --machine",
        ),
        (("memory", "--all-stages", "--idle", *LAUNCH), "--all-stages goes without --idle"),
        (("memory", "--all-stages", "--allocator", "cpu", *LAUNCH), "--all-stages goes without --allocator"),
        (("report", "--all-stages", "--full", *LAUNCH), "--all-stages goes without --full"),
        (("time", "--all-stages", "--top", "3", *LAUNCH), "--all-stages goes without --top"),
        (("time", "--all-stages", "--durations", "a.json", *LAUNCH), "--all-stages goes without --durations"),
        (("time", "--all-stages", "--rules", "rules.toml", *LAUNCH), "--all-stages and --rules exclude each other"),
        (("time", "--all-stages", "--trace", "a.json", *LAUNCH), "--all-stages goes without --trace"),
        (("time", "--all-stages", "--figure", "a.png", *LAUNCH), "--all-stages goes without --figure"),
    ],
)
def test_what_is_no_launch_is_an_error_in_one_line(
    typed: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    assert said in fails(capsys, *typed)


@pytest.mark.parametrize(
    ("change", "error"),
    [({"untested": ("train.py:3 reads 1",)}, Doubtful), ({"decisive": ("train.py:3 reads 1",)}, Doubtful), ({}, None)],
)
def test_a_job_is_strict_about_what_its_steps_assume(
    change: dict[str, tuple[str, ...]], error: type[Exception] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ScriptOptions] = []
    graph = structs.replace(stored("mlp"), meta=structs.replace(stored("mlp").meta, **change))

    @contextlib.contextmanager
    def ranks(script: object, options: ScriptOptions, **_: object) -> Iterator[object]:
        asked.append(options)
        yield lambda rank, messages: graph

    (tmp_path / "train.py").write_text("")
    monkeypatch.setattr(job, "script_ranks", ranks)
    target, capture = f"-- torchrun --nproc_per_node 2 {tmp_path / 'train.py'}", CaptureRequest(all_stages=True)
    assert job_of(target, capture).ranks == 2
    with pytest.raises(error) if error is not None else contextlib.nullcontext():
        job_of(target, capture, strict=True)
    assert [options.compare for options in asked] == [False, True]
