"""Experiments run: what is finished is not repeated, one failure ends nothing, one folder has one runner."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tensortide.errors import CaptureError, ExitStatus, OutputError, status_of
from tensortide.studies.experiment import runner
from tensortide.studies.experiment.comparison import compared
from tensortide.studies.experiment.grammar import Experiment, experiment_of
from tensortide.studies.experiment.results import RESULTS, Outcome, Repetition, ResultFile, read_results
from tensortide.studies.experiment.runner import Conducted, conduct, notify
from tensortide.studies.experiment.supervise import Supervisor
from tensortide.studies.experiment.trials import Trial
from tensortide.studies.experiment.ways import Asked
from tensortide.timing.lock import only_one

RUNS = {"workload": "mlp", "policy": ["lru", "dtr"], "budget": [0.8, 0.5]}


class Fakes:
    """Trials that count their runs; those by a policy in ``failing`` fail, the baseline's peak is 1000 bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[Asked] = []
        self.failing: dict[str, str] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(Supervisor, "run", functools.partialmethod(self))

    def __call__(
        self, supervisor: Supervisor, asked: Asked, log: Path, folder: Path, beat: Callable[[], None]
    ) -> Outcome:
        self.asked.append(asked)
        supervisor.running[log.stem] = 0
        beat()
        self.meanwhile()
        supervisor.running.pop(log.stem)
        assert log.parent.is_dir()
        assert folder == Path.cwd()
        status = self.failing.get(asked.trial.policy, "ok")
        ends = {"ok": 0, "infeasible": 1}.get(status, 3)
        repetitions = (Repetition(times_ns=(10,), peak_bytes=1000),) if not ends else ()
        return Outcome(
            trial=asked.trial,
            status=status,  # type: ignore[arg-type]
            reason=status if ends else "",
            exit_status=ends,
            repetitions=repetitions,
        )

    @property
    def policies(self) -> list[str]:
        """The policies of the trials that ran since the last look."""
        found, self.asked = [one.trial.policy for one in self.asked], []
        return found


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    return Fakes(monkeypatch)


def made(**head: object) -> Experiment:
    return experiment_of({"runs": [RUNS], **head})


def test_ratios_are_of_the_baseline_which_runs_first(fakes: Fakes, tmp_path: Path) -> None:
    found = conduct(made(), tmp_path)
    assert found.status is ExitStatus.HOLDS
    assert found.summary == "5 trials: 5 ok"
    assert [(one.trial.policy, one.budget_bytes) for one in fakes.asked] == [
        ("none", None),
        *(("lru", nbytes) for nbytes in (800, 500)),
        *(("dtr", nbytes) for nbytes in (800, 500)),
    ]


def test_what_is_finished_is_not_repeated(fakes: Fakes, tmp_path: Path) -> None:
    conduct(experiment_of({"runs": [{**RUNS, "policy": "lru"}]}), tmp_path)
    assert fakes.policies == ["none", "lru", "lru"]
    conduct(made(), tmp_path)
    assert fakes.policies == ["dtr", "dtr"]
    found = conduct(made(), tmp_path)
    assert fakes.policies == []
    assert len(found.own) == 5


@pytest.mark.parametrize(("status", "ends", "again"), [("infeasible", 1, 0), ("failed", 3, 2), ("killed", 3, 2)])
def test_one_failure_ends_nothing_and_is_repeated_only_if_asked(
    fakes: Fakes, tmp_path: Path, status: str, ends: int, again: int
) -> None:
    fakes.failing = {"lru": status}
    found = conduct(made(), tmp_path)
    assert found.status == ends
    assert len(found.own) == 5
    assert conduct(made(), tmp_path).status == ends
    assert len(fakes.policies) == 5
    fakes.failing = {}
    assert conduct(made(), tmp_path, retry_failed=True).status == (ends if not again else 0)
    assert len(fakes.policies) == again
    assert {one.status for one in read_results(tmp_path).values()} == ({"ok"} if again else {"ok", status})


def test_a_failure_is_never_an_answer_whatever_else_there_is(fakes: Fakes, tmp_path: Path) -> None:
    fakes.failing = {"lru": "infeasible", "dtr": "failed"}
    assert conduct(made(), tmp_path).status is ExitStatus.CANNOT


def test_what_runs_is_said_and_shown_while_it_runs(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    pages: list[str] = []
    shown = threading.Event()

    def draw(so_far: Conducted) -> None:
        pages.append(so_far.summary)
        if "1 running" in so_far.summary and "running" in [line.status for line in so_far.lines]:
            shown.set()

    monkeypatch.setattr(runner, "PAGE_S", 0)
    fakes.meanwhile = lambda: shown.wait(20) or pytest.fail("no page says that a trial runs")
    conduct(made(), tmp_path, draw=draw, say=said.append)
    assert said[0] == "5 trials: 1 running, 4 not run; mlp simulated none"
    assert said[2] == "5 trials: 1 ok, 1 running, 3 not run; mlp simulated lru 80 %"
    assert pages[0] == "5 trials: 5 not run"
    assert pages[-1] == said[-1] == "5 trials: 5 ok"


def test_an_interrupt_says_what_is_kept_and_what_to_type(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(runner.LOG, "info", lambda text, *values: told.append(text % values))

    def interrupted() -> None:
        if len(fakes.asked) == 3:
            raise KeyboardInterrupt

    fakes.meanwhile = interrupted
    with pytest.raises(KeyboardInterrupt):
        conduct(made(), tmp_path)
    assert told == [f"results of 2 of 5 trials are kept in {tmp_path}: the same command runs the others"]
    assert len(read_results(tmp_path)) == 2


def test_a_baseline_that_fails_fails_its_ratios_which_are_tried_again(fakes: Fakes, tmp_path: Path) -> None:
    fakes.failing = {"none": "failed"}
    found = conduct(made(), tmp_path)
    assert found.summary == "5 trials: 5 failed"
    assert {one.reason for one in found.own if one.trial.policy != "none"} == {
        "a ratio needs the peak of its baseline, which failed"
    }
    assert len(read_results(tmp_path)) == 1
    fakes.failing = {}
    assert conduct(made(), tmp_path, retry_failed=True).summary == "5 trials: 5 ok"


def test_budgets_in_bytes_do_without_a_baseline(fakes: Fakes, tmp_path: Path) -> None:
    fakes.failing = {"none": "failed"}
    conduct(experiment_of({"runs": [{**RUNS, "budget": "1MiB"}]}), tmp_path)
    assert [one.budget_bytes for one in fakes.asked] == [None, 1 << 20, 1 << 20]


def test_an_error_may_end_it(fakes: Fakes, tmp_path: Path) -> None:
    fakes.failing = {"lru": "failed"}
    found = conduct(made(stop_on_error=True), tmp_path)
    assert fakes.policies == ["none", "lru"]
    assert found.summary == "5 trials: 1 ok, 1 failed, 3 not run"


def test_a_full_disk_is_one_error_and_nothing_finished_is_lost(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, kept, cut = os.write, list[bytes](), list[bytes]()

    def filling(file: int, data: bytes) -> int:
        if cut:
            raise OSError(errno.ENOSPC, "No space left on device")
        if b'"outcome"' in data:
            kept.append(data)
        if len(kept) == 3:  # of the third result a part
            cut.append(data)
            return write(file, data[: len(data) // 2])
        return write(file, data)

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(OutputError, match=f"{RESULTS}: the disk is full") as raised:
        conduct(made(), tmp_path)
    assert status_of(raised.value) is ExitStatus.CANNOT
    monkeypatch.undo()
    assert len(read_results(tmp_path)) == 2
    again = Fakes(monkeypatch)
    assert conduct(made(), tmp_path).summary == "5 trials: 5 ok"
    assert (len(fakes.asked), len(again.asked)) == (3, 3)


def test_a_folder_has_one_runner(tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from tensortide.timing.lock import only_one
        with only_one(Path({str(tmp_path)!r}) / "logs/.lock", "running an experiment"):
            print("held", flush=True)
            time.sleep(60)
    """
    holder = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CaptureError, match=f"is running an experiment in .* \\(process {holder.pid} on "):
            conduct(made(), tmp_path)
    finally:
        holder.kill()
        holder.communicate()
    with only_one(tmp_path / "logs/.lock", "running an experiment"):
        pass


def test_the_page_is_drawn_at_the_start_and_cannot_fail_a_trial(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def draw(so_far: Conducted) -> None:
        seen.append(so_far.summary)
        raise OutputError("cannot write it")

    monkeypatch.setattr(runner, "PAGE_S", 0)
    assert conduct(made(), tmp_path, draw=draw).status is ExitStatus.HOLDS
    assert seen[0] == "5 trials: 5 not run"
    assert seen[-1] == "5 trials: 5 ok"
    assert len(fakes.asked) == 5


def test_pages_that_take_long_are_drawn_more_seldom(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def draw(so_far: Conducted) -> None:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        taken.append(time.monotonic())

    monkeypatch.setattr(runner, "PAGE_S", 0)
    fakes.meanwhile = lambda: time.sleep(0.3)
    conduct(made(), tmp_path, draw=draw)
    later = [after - before for before, after in itertools.pairwise(taken[1:-1])]
    assert later
    assert min(later) >= 0.02 / runner.PAGE_SHARE


def test_a_command_of_the_users_own_is_told_the_end(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(runner.LOG, "warning", lambda text, *values: lines.append(text % values))
    told = tmp_path / "told"
    say = f'echo "$TENSORTIDE_EXPERIMENT $TENSORTIDE_FOLDER $TENSORTIDE_STATUS $TENSORTIDE_SUMMARY" > {told}'
    notify(conduct(made(name="x", notify=["sh", "-c", say]), tmp_path))
    assert told.read_text() == f"x {tmp_path} 0 5 trials: 5 ok\n"
    notify(conduct(made(notify=["/nowhere/at/all"]), tmp_path))
    notify(conduct(made(notify=["sh", "-c", "exit 3"]), tmp_path))
    assert lines == [
        "notify: cannot run /nowhere/at/all: No such file or directory",
        "notify: sh ended with 3",
    ]


def test_a_file_that_changes_while_trials_run_parts_none_from_its_baseline(
    fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.py"
    file.write_text("def step(): ...")
    fakes.meanwhile = lambda: file.write_text("def step(): return 1")
    table = {"runs": [{**RUNS, "workload": f"{file}:step"}]}
    assert conduct(experiment_of(table), tmp_path / "out").summary == "5 trials: 5 ok"
    assert conduct(experiment_of(table), tmp_path / "out").summary == "5 trials: 5 ok"
    assert len(fakes.policies) == 10


def test_a_result_after_a_line_that_was_deleted_counts(tmp_path: Path) -> None:
    trial = made().trials[0]
    with contextlib.closing(ResultFile(tmp_path)) as file:
        for status in ("killed", "failed", "timeout"):
            file.add(trial.key, Outcome(trial=trial, status=status))
    path = tmp_path / "results.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if "#1" not in line))
    with contextlib.closing(ResultFile(tmp_path)) as file:
        file.add(trial.key, Outcome(trial=trial, status="ok"))
        assert file.latest()[trial.key].status == "ok"
    assert read_results(tmp_path)[trial.key].status == "ok"


def test_folders_are_compared_by_the_version_of_a_file_that_both_have(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    for version, folders in (("1", "ab"), ("2", "a")):
        file.write_text(version)
        trial = Trial(workload=f"{file}:step")
        for folder in folders:
            (tmp_path / folder).mkdir(exist_ok=True)
            with contextlib.closing(ResultFile(tmp_path / folder)) as results:
                once = Repetition(times_ns=(10 * int(version),), peak_bytes=1)
                results.add(trial.key, Outcome(trial=trial, status="ok", repetitions=(once,)))
    (pair,) = compared(tmp_path / "a", tmp_path / "b").pairs
    assert pair.time_factor == 1
