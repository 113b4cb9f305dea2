"""Many runs: on threads and processes, saved, resumed; the same whatever the way."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tensortide.errors import OutputError, PlanError, PlanFileError
from tensortide.executors import LOCAL, SERIAL, Where
from tensortide.plans.remat.schedule import Recording
from tensortide.replays.remat.budgets import budgets
from tensortide.studies.finished import FinishedFile
from tensortide.studies.remat.designs import ablation, conduct, contest
from tensortide.studies.remat.grid import finished_runs, play_all
from tensortide.studies.remat.linear import linear_network
from tensortide.studies.remat.results import Cell, Row, Run, Study
from tensortide.studies.remat.subject import Subject, program_files
from tensortide.version import VERSION

POLICIES = ("dtr", "dtr-eq", "lru", "random", "dtr-local+sqrt", "size+large")


def small(n: int = 24, *, compat: bool = False) -> Subject:
    return Subject("chain", linear_network(n), compat=compat)


def sweep(saved: FinishedFile[Run] | None = None, where: Where = SERIAL, subjects: Sequence[Subject] = ()) -> Study:
    lines = contest(POLICIES, trials=3)
    play = partial(play_all, saved=saved, where=where)
    return conduct("sweep", subjects or [small(), small(40)], lines, budgets("1.0:0.2:0.2"), play=play)


@pytest.fixture(scope="module")
def alone() -> Study:
    return sweep()


class Counting(Subject):
    """Knows how often it was played."""

    played = 0

    def play(self, cell: Cell) -> Run:
        type(self).played += 1
        return super().play(cell)


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    """With several, the policies that are sampled are played in processes, the others in threads."""
    assert sweep(where=Where(2), subjects=[small()]) == sweep(subjects=[small()])


class Killing(Subject):
    """Kills the process that plays it in its fifth run, unless that is ``parent``, or has happened before."""

    plays = 0

    def __init__(self, *arguments: Any, folder: Path, parent: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.folder, self.parent = folder, parent

    def __reduce__(self) -> tuple[Callable[..., Subject], tuple[str, Recording]]:
        made_by: dict[str, Any] = {"folder": self.folder, "parent": self.parent}
        make = partial(type(self), **made_by, compat=self.compat, device=self.device)
        return make, (self.name, self.recording)

    def play(self, cell: Cell) -> Run:
        type(self).plays += 1
        if self.plays == 5 and os.getpid() != self.parent:
            with contextlib.suppress(FileExistsError):
                (self.folder / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().play(cell)


@pytest.mark.slow
@pytest.mark.parametrize("cluster", [None, LOCAL])
def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path, alone: Study, cluster: str | None) -> None:
    """Of two: on a local Ray both engines play in them, else the plain one alone."""
    subjects = [Killing("chain", linear_network(n), folder=tmp_path, parent=os.getpid()) for n in (24, 40)]
    with finished_runs(tmp_path / "runs.jsonl") as saved:
        found = sweep(saved, Where(2, cluster=cluster), subjects)
    assert (tmp_path / "killed").exists()
    with finished_runs(tmp_path / "runs.jsonl") as saved:
        assert sweep(saved, SERIAL, subjects) == found == alone


def test_rows_and_trials_are_where_they_belong(alone: Study) -> None:
    curves = alone.curves(1)
    assert list(curves) == list(POLICIES)
    assert {curve: {len(row.runs) for row in rows} for curve, rows in curves.items() if curve != "random"} == {
        name: {1} for name in POLICIES if name != "random"
    }
    assert all([row.at for row in rows] == [1.0, 0.8, 0.6, 0.4, 0.2] for rows in curves.values())
    simulator = small(40).simulator()
    trials = [trial for trial in alone.trials if trial.panel == 1]
    assert {trial.cell.policy for trial in trials if trial.curve == "random"} == {"random:0", "random:1", "random:2"}
    for trial in trials:
        again = simulator.run(trial.cell.policy, trial.cell.budget_bytes, overhead_limit=2.0)
        found = (trial.run.status, trial.run.clock_ns, trial.run.eviction_hash)
        assert found == (again.status, again.clock_ns, again.eviction_hash)
    played = [run for rows in curves.values() for row in rows for run in row.runs]
    assert played == [trial.run for trial in trials]


def test_a_row_fails_with_any_of_its_runs() -> None:
    runs = [small().play(Cell("dtr", budget, 2.0)) for budget in (24, 1)]
    both = Row(1.0, 24, tuple(runs), None)
    assert (both.status, both.failed) == ("oom", 1)


def test_saved_runs_are_not_made_again(tmp_path: Path, alone: Study) -> None:
    path = tmp_path / "runs.jsonl"
    with finished_runs(path) as saved:
        assert sweep(saved) == alone
    size = path.stat().st_size
    with finished_runs(path) as saved:
        assert sweep(saved) == alone
    assert path.stat().st_size == size

    subject = Counting("chain", linear_network(24))
    jobs = [(subject, Cell("dtr", nbytes, 2.0)) for nbytes in (20, 10, 20)]
    with finished_runs(tmp_path / "few.jsonl") as saved:
        first = play_all(jobs, saved=saved, where=SERIAL)
        assert Counting.played == 2
    with finished_runs(tmp_path / "few.jsonl") as saved:
        assert play_all([*jobs, (subject, Cell("dtr", 9, 2.0))], saved=saved, where=SERIAL)[:3] == first
        assert Counting.played == 3


def test_a_file_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    jobs = [(small(), Cell("dtr", nbytes, 2.0)) for nbytes in (20, 10)]
    with finished_runs(path) as saved:
        runs = play_all(jobs, saved=saved, where=SERIAL)
    whole = path.read_bytes()
    for length in (0, 5, len(whole) - 1, len(whole) - 30):
        path.write_bytes(whole[:length])
        with finished_runs(path) as saved:
            assert len(saved.results) < 2
            assert play_all(jobs, saved=saved, where=SERIAL) == runs
        assert path.read_bytes() == whole


def test_two_at_once_share_a_file_without_duplicates(tmp_path: Path) -> None:
    """Whoever ends a run first adds it; a file that the other has replaced meanwhile is found again."""
    path = tmp_path / "runs.jsonl"
    with finished_runs(path) as first, finished_runs(path) as second:
        (run,) = play_all([(small(), Cell("dtr", 20, 2.0))], where=SERIAL)
        first.add("a", run)
        second.add("a", run)
        second.add("b", run)
        path.write_bytes(path.read_bytes() + b'{"key": "cut off')
        with finished_runs(path) as third:
            assert set(third.results) == {"a", "b"}
        first.add("c", run)
        first.add("b", run)
    with finished_runs(path) as last:
        assert set(last.results) == {"a", "b", "c"}
    assert path.read_bytes().count(b'"key"') == 3


def slow_write(file: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> int:
    time.sleep(0.001)
    return write(file, data)


def add_all(path: Path, run: Run, barrier: Barrier) -> None:
    with finished_runs(path) as saved, mock.patch("os.write", slow_write):
        for number in range(200):
            barrier.wait(60)
            saved.add(str(number), run)


def test_two_processes_add_each_result_once(tmp_path: Path) -> None:
    """Both add the same result at the same moment, 200 times, to a slow disk."""
    path, fork = tmp_path / "runs.jsonl", multiprocessing.get_context("fork")
    (run,) = play_all([(small(), Cell("dtr", 20, 2.0))], where=SERIAL)
    barrier = fork.Barrier(2)
    both = [fork.Process(target=add_all, args=(path, run, barrier)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    keys = [json.loads(line)["key"] for line in path.read_bytes().splitlines()[1:]]
    assert sorted(keys, key=int) == [*map(str, range(200))]


def test_a_file_that_is_deleted_or_replaced_gets_all_results_again(tmp_path: Path) -> None:
    path, other = tmp_path / "runs.jsonl", tmp_path / "other.jsonl"
    (run,) = play_all([(small(), Cell("dtr", 20, 2.0))], where=SERIAL)
    with finished_runs(path) as first, finished_runs(path) as second, finished_runs(other) as third:
        first.add("a", run)
        second.add("b", run)
        path.unlink()
        first.add("c", run)
        assert {line.partition(b",")[0] for line in path.read_bytes().splitlines()[1:]} == {
            b'{"key":"a"',
            b'{"key":"c"',
        }
        second.add("d", run)
        third.add("e", run)
        other.replace(path)
        first.add("f", run)
    with finished_runs(path) as last:
        assert last.results == dict.fromkeys("acef", run)


def test_a_result_replaces_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    (run,) = play_all([(small(), Cell("dtr", 20, 2.0))], where=SERIAL)
    with finished_runs(path) as saved:
        saved.add("a", run)
        with path.open("ab") as file:
            file.write(b'{"key": "cut off')
        saved.add("b", run)
    with finished_runs(path) as last:
        assert last.results == {"a": run, "b": run}


def test_a_file_in_whose_place_is_a_folder_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    (run,) = play_all([(small(), Cell("dtr", 20, 2.0))], where=SERIAL)
    with finished_runs(path) as saved:
        saved.add("a", run)
        path.unlink()
        path.mkdir()
        with pytest.raises(OutputError, match=r"^cannot write .*: Is a directory"):
            saved.add("b", run)
        path.rmdir()
        saved.add("c", run)
    with finished_runs(path) as last:
        assert last.results == dict.fromkeys("abc", run)


def test_a_foreign_or_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    for content in ("hello\n", "hello", '{"format":"something else","version":1}\n', "[]\n", "\x00\n"):
        path.write_text(content)
        with pytest.raises(PlanFileError, match="does not hold runs"):
            finished_runs(path)
        assert path.read_text() == content
    path.write_text('{"format":"tensortide remat runs","version":2}\n')
    with pytest.raises(PlanFileError, match="has runs format 2"):
        finished_runs(path)
    head = f'{{"format":"tensortide remat runs","version":1,"tensortide":"{VERSION}"}}'
    path.write_text(head + '\n{"key":"a","run":{"status":"ok"}}\n')
    with pytest.raises(PlanFileError, match="damaged in line 2"):
        finished_runs(path)
    with pytest.raises(OutputError):
        finished_runs(tmp_path)


def test_a_file_of_another_release_becomes_one_of_this_release(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with finished_runs(path) as saved:
        runs = play_all([(small(), Cell("dtr", 20, 2.0))], saved=saved, where=SERIAL)
    ours = path.read_bytes()
    damaged = b'{"key":"a","run":{"status":"ok"}}\n'
    older = ours.replace(f'"tensortide":"{VERSION}"'.encode(), b'"tensortide":"0.0.9"')
    assert older != ours
    for content in (older, older + damaged):
        path.write_bytes(content)
        with finished_runs(path) as saved:
            assert [*saved.results.values()] == runs
        assert path.read_bytes() == ours
    path.write_bytes(ours + damaged)
    with pytest.raises(PlanFileError, match="damaged in line 3"):
        finished_runs(path)


def test_a_key_tells_apart_whatever_decides_a_run() -> None:
    cell = Cell("dtr", 10, 2.0)
    changed = [Cell("lru", 10, 2.0), Cell("dtr", 11, 2.0), Cell("dtr", 10, 3.0), Cell("dtr", 10, 2.0, "none")]
    keys = [small().key(each) for each in (cell, *changed, Cell("dtr", 10, 2.0, exhaustive=True))]
    keys += [small(25).key(cell), small(compat=True).key(cell)]
    assert len(set(keys)) == len(keys)
    assert small().key(cell) == keys[0]


def test_a_key_covers_the_sources_of_policies_and_engines() -> None:
    covered = {path.name for path in program_files()}
    assert {"policies.py", "schedule.py", "engine.py", "kernel.py", "contenders.py"} <= covered


def test_what_makes_no_sense_is_refused() -> None:
    for limit in (0.5, float("inf"), float("nan")):
        with pytest.raises(PlanError, match="overhead limit"):
            conduct("sweep", [small()], contest(["lru"]), budgets("0.5"), overhead_limit=limit)
    for names in (["lru", "lru"], [], ["best"]):
        with pytest.raises(PlanError):
            contest(names)


def test_the_ablation_has_sixteen_cells() -> None:
    names = [line.name for line in ablation()]
    assert len(names) == len(set(names)) == 16
    assert [name.split("-")[0] for name in names] == ["e"] * 4 + ["eq"] * 4 + ["local"] * 4 + ["one"] * 3 + ["random"]
