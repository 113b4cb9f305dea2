"""``tensortide time calibrate`` and ``--machine local``, as a user runs them; the calibration is a tiny one."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest
import torch

from tensortide.cli import main
from tensortide.executors.forks import prepared
from tensortide.profile.calibration import run
from tensortide.profile.calibration.networks import Step
from tensortide.targets import machines
from tests.forked_script import run_as_main
from tests.profile.tiny import PLAN, small_ceilings

TINY = """
import os
import sys
import time
from functools import partial

from tensortide.cli import main
from tensortide.profile.calibration import run
from tests.profile.tiny import PLAN, small_ceilings


def wait():
    open("reached", "w").close()
    time.sleep(120)


folder, how, *arguments = sys.argv[1:]
os.chdir(folder)
plan = PLAN | {"waiting": {"products": wait}}.get(how, {})
run.calibrate = partial(run.calibrate, plan=plan)
with small_ceilings():
    main(arguments)
"""
SMALL = ("mlp", "--set=inputs=8", "--set=hidden=8", "--set=classes=4", "--set=batch=2", "--machine=local")


def interrupt() -> Step:
    raise KeyboardInterrupt


def tiny(store: Path, *arguments: str, threads: int = 1, **steps: Callable[[], Step]) -> CompletedProcess[str]:
    """Run the command with a tiny calibration in this process, with so many threads; ``steps`` replace those of it."""
    with contextlib.ExitStack() as undone, io.StringIO() as out, io.StringIO() as err:
        undone.enter_context(patch.object(run, "calibrate", partial(run.calibrate, plan={**PLAN, **steps})))
        undone.enter_context(patch.dict(os.environ, TENSORTIDE_MEASURED=str(store)))
        undone.enter_context(small_ceilings())
        undone.enter_context(contextlib.chdir(store.parent))
        undone.enter_context(contextlib.redirect_stdout(out))
        undone.enter_context(contextlib.redirect_stderr(err))
        undone.callback(torch.set_num_threads, torch.get_num_threads())
        undone.callback(machines._here.cache_clear)  # it is looked up once in a process
        machines._here.cache_clear()
        torch.set_num_threads(threads)
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        return CompletedProcess(arguments, int(stopped.value.code or 0), out.getvalue(), err.getvalue())


def started(store: Path, how: str, *arguments: str) -> BaseProcess:
    """The command with a tiny calibration in a process of its own, which has begun."""
    script, out, err = (store.with_name(f"{how}-{name}") for name in ("tiny.py", "out", "err"))
    script.write_text(TINY)
    with patch.dict(os.environ, TENSORTIDE_MEASURED=str(store)):
        begun = prepared(run_as_main, script, (str(store.parent), how, *arguments), out, err)
    begun.start()
    return begun


def ended(begun: BaseProcess, store: Path) -> tuple[int | None, str]:
    """The exit code of a process ``started`` with "whole", and its standard error."""
    begun.join(300)
    begun.kill()
    begun.join()
    return begun.exitcode, store.with_name("whole-err").read_text()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a calibration has filled, after it was interrupted once."""
    folder = tmp_path_factory.mktemp("calibrate") / "store"
    cut = tiny(folder, "time", "calibrate", "--clock=thread", products=interrupt)
    assert cut.returncode == 130
    assert "steps that were measured are kept: the same command goes on" in cut.stderr
    done = tiny(folder, "time", "calibrate", "--clock=thread")
    assert done.returncode == 0, done.stderr
    assert "2 of 4 steps are measured" in done.stderr
    for part in (
        "Calibration of",
        "4 steps, thread time",
        "Products, float32",
        "Families of ops",
        "pointwise",
        "wrote",
    ):
        assert part in done.stdout
    return folder


def test_predictions_for_this_machine_name_the_calibration_that_they_use(store: Path) -> None:
    done = tiny(store, "time", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    shown: Any = json.loads(done.stdout)
    assert "calibrated 20" in shown["subtitle"][0]
    assert "on 1 thread:" in shown["subtitle"][0]
    assert shown["sections"]["time"]["facts"]["provenance_calibrated_ns"] > 0


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(("report",), marks=pytest.mark.slow),
        ("memory", "--idle"),
        pytest.param(("remat", "simulate", "--budget=1GiB"), marks=pytest.mark.slow),
    ],
)
def test_other_verbs_take_this_machine_too(store: Path, verb: tuple[str, ...]) -> None:
    done = tiny(store, *verb, *SMALL)
    assert done.returncode == 0, done.stderr
    assert not done.stderr


def test_other_threads_than_the_calibrated_ones_are_a_warning(store: Path) -> None:
    done = tiny(store, "time", *SMALL, threads=2)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("warning: ") == 1
    assert "on 1 thread, and this is torch" in done.stderr


def test_without_a_calibration_one_line_says_what_was_used_and_how_to_calibrate(tmp_path: Path) -> None:
    done = tiny(tmp_path / "empty", "time", *SMALL)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "is not calibrated: 0.1 TFLOP/s in fp32 and 10 GB/s are assumed for 1 thread" in line
    assert "tensortide time calibrate" in line
    assert "physics only" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message", "status"),
    [
        (("time", "calibrate", "--device=tpu"), "no device tpu here", 2),
        (("time", "calibrate", "--device=cuda"), "no device cuda here", 3),
        (("time", "mlp", "--machine=local:tpu"), "there is no local:tpu: write local", 2),
        (("time", "mlp", "--machine=8xlocal"), "8xlocal: local is one machine", 2),
    ],
)
def test_what_is_not_here_is_one_clear_error(
    tmp_path: Path, arguments: tuple[str, ...], message: str, status: int
) -> None:
    done = tiny(tmp_path / "empty", *arguments)
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_two_calibrations_at_once_are_told_of_each_other_and_a_dead_one_holds_nobody_up(tmp_path: Path) -> None:
    store, calibrating = tmp_path / "store", ("time", "calibrate", "--clock=thread")
    first = started(store, "waiting", *calibrating)
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "reached").exists():
            assert first.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        code, said = ended(started(store, "whole", *calibrating), store)
        assert code == 2
        *slow, last = said.splitlines()
        assert last.startswith("error: another process is calibrating ")
        assert f"(process {first.pid} on " in last
        assert all(re.match(r"\d+ s: ", line) for line in slow)  # how far it is, on a busy machine
    finally:
        first.kill()
        first.join()
    assert len(list(store.iterdir())) == 2  # the steps that were measured, and the lock of a process that is dead
    code, said = ended(started(store, "whole", *calibrating), store)
    assert code == 0, said
    assert "2 of 4 steps are measured" in said
    assert [path.suffix for path in store.iterdir()] == [".json"]
