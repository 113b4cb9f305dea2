"""Transfers that run beside the ops: they overlap, keep to the budget, and fail in one line."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.errors import RunError
from tensortide.executors.forks import prepared
from tensortide.graph import Graph
from tensortide.plans import Plan
from tensortide.run.budget import Budget
from tensortide.run.moved_storages import Wait
from tensortide.run.movers import TransferMode
from tensortide.run.tier_memory import DriveMemory
from tensortide.timelines import timeline
from tests.marks import some_slow
from tests.run.follow_steps import built, gpt2, same_as_without, tower
from tests.run.same import UNLIMITED, identical
from tests.run.slow_tiers import before_transfers, open_files
from tests.run.test_tiers import offloading, replayed, run_graph, short


def limit_of(graph: Graph, plan: Plan) -> int:
    """A limit that leaves the step the peak of its serial replay."""
    gc.collect()
    with Budget(UNLIMITED) as probe:
        elsewhere = probe.resident_bytes - timeline(graph, workspace=False).start_bytes
    return elsewhere + replayed(graph, plan).peak_bytes


def state_of(step: Callable[[], Any]) -> list[torch.Tensor]:
    """The parameters of a ``tower`` and their momenta, as they are now."""
    cells: list[Any] = [cell.cell_contents for cell in step.__closure__ or ()]
    model = next(cell for cell in cells if isinstance(cell, torch.nn.Module))
    update = next(cell for cell in cells if isinstance(cell, torch.optim.Optimizer))
    momenta = [t for held in update.state.values() for t in held.values() if isinstance(t, torch.Tensor)]
    return [*model.parameters(), *momenta]


def copies(step: Callable[[], Any]) -> list[torch.Tensor]:
    return [tensor.detach().clone() for tensor in state_of(step)]


def test_ops_go_on_while_a_copy_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first copy ends only when the loss is there, which is computed after it."""
    graph = run_graph(tower)
    step = built(tower)
    gate, passed = threading.Event(), list[bool]()
    before_transfers(monkeypatch, lambda way, number: passed.append(gate.wait(60)) if not number else None)
    backward = torch.Tensor.backward

    def opening(loss: torch.Tensor) -> None:
        gate.set()
        backward(loss)

    monkeypatch.setattr(torch.Tensor, "backward", opening)
    with Budget(UNLIMITED, offloading(graph), graph=graph, workspace=False) as budget:
        step()
    assert passed == [True]
    assert budget.usage.followed_steps == 1
    monkeypatch.undo()
    assert same_as_without(tower, step, 2)


@pytest.mark.parametrize(("build", "seed"), some_slow([(tower, 0), (tower, 1), (gpt2, 2)], [(tower, 0), (gpt2, 2)]))
def test_however_long_transfers_take_the_budget_holds(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], Any], seed: int
) -> None:
    graph = run_graph(build)
    plan = offloading(graph, ("host", "ssd"), given=True)
    step = built(build)
    limit = limit_of(graph, plan)
    draw = random.Random(seed)
    before_transfers(monkeypatch, lambda way, number: time.sleep(draw.choice([0, 0, 0.001, 0.004])))
    with Budget(limit, plan, graph=graph, workspace=False) as budget:
        for _ in range(3):
            step()
    assert budget.usage.peak_bytes <= limit
    assert (budget.usage.followed_steps, budget.usage.recomputations) == (3, 0)
    assert same_as_without(build, step, 4)


@pytest.mark.parametrize(
    ("way", "number", "link", "transfers"),
    [
        *(("out", 0, "ssd", "serial"), ("out", 9, "host", "overlapped")),
        *(("in", 0, "host", "serial"), ("in", 7, "ssd", "overlapped")),
    ],
)
def test_a_transfer_that_fails_ends_the_step_in_one_line(
    monkeypatch: pytest.MonkeyPatch, way: str, number: int, link: str, transfers: TransferMode
) -> None:
    """All that the program has is in memory again, whether or not it was moved when the transfer failed."""
    graph = run_graph(tower)
    step = built(tower)
    seen: list[str] = []

    def failing(direction: str, _: int) -> None:
        seen.append(direction)
        if direction == way and seen.count(way) == number + 1:
            raise OSError(28, "No space left on device")

    before_transfers(monkeypatch, failing)
    before = copies(step)
    plan = offloading(graph, (link,), given=True)
    failed = pytest.raises(
        RunError, match=rf"moving .* over {link} {way} failed: No space left on device\. The step was"
    )
    with failed, Budget(UNLIMITED, plan, graph=graph, workspace=False, transfers=transfers):
        step()
    monkeypatch.undo()
    assert all(map(identical, before, state_of(step)))  # it failed before the update
    for parameter in state_of(step):
        parameter.grad = None
    with Budget(UNLIMITED, plan, graph=graph, workspace=False, transfers=transfers) as budget:
        step()
    assert budget.usage.followed_steps == 1


def test_what_was_fetched_in_vain_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fetch fails whose copy the plan drops at once: it is there still when the budget is closed."""
    graph = run_graph(tower)
    step, other = built(tower), built(tower)
    fetched: list[int] = []

    def failing(way: str, _: int) -> None:
        fetched.extend([1] * (way == "in"))
        if way == "in" and len(fetched) == 3:
            raise OSError(5, "Input/output error")

    before_transfers(monkeypatch, failing)
    failed = pytest.raises(RunError, match="Input/output error")
    with failed, Budget(UNLIMITED, offloading(graph, ("ssd",), given=True), graph=graph, workspace=False):
        step()
    assert len(fetched) > 3
    monkeypatch.undo()
    assert all(map(identical, state_of(step), state_of(other)))


def test_what_a_tier_has_lost_is_said_when_the_budget_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = run_graph(tower)
    step = built(tower)

    def failing(way: str, _: int) -> None:
        if way == "in":
            raise OSError(5, "Input/output error")

    before_transfers(monkeypatch, failing)
    failed = pytest.raises(RunError, match=r"the contents of \d+ tensors \(.*\) are lost: moving .* Input/output error")
    with failed, Budget(UNLIMITED, offloading(graph, ("ssd",), given=True), graph=graph, workspace=False):
        step()
    monkeypatch.undo()
    with Budget(UNLIMITED):
        pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_is_ended_ends_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensortide.run.transfers.LOOK_S", 0.02)
    graph = run_graph(tower)
    step = built(tower)
    before = copies(step)

    def ending() -> None:
        for thread in threading.enumerate():
            if thread.name.startswith("tensortide host"):
                ended = ctypes.c_ulong(thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ended, ctypes.py_object(SystemExit))
        step()

    budget = Budget(UNLIMITED, offloading(graph, given=True), graph=graph, workspace=False)
    with pytest.raises(RunError, match=r"over host (in|out) failed: its thread has ended"), budget:
        ending()
    assert all(map(identical, before, state_of(step)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tensortide")]


def test_an_interrupt_during_a_transfer_leaves_everything_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = run_graph(tower)
    step = built(tower)
    before = copies(step)

    def interrupting(way: str, number: int) -> None:
        if number == 12:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.002)

    went = before_transfers(monkeypatch, interrupting)
    with pytest.raises(KeyboardInterrupt), Budget(UNLIMITED, offloading(graph, given=True), graph=graph):
        step()
    assert len(went) > 12
    assert all(map(identical, before, state_of(step)))
    monkeypatch.undo()
    for parameter in state_of(step):
        parameter.grad = None
    with Budget(UNLIMITED, offloading(graph, given=True), graph=graph) as budget:
        step()
    assert budget.usage.followed_steps == 1


def keep_moving(graph: Graph, plan: Plan, folder: Path, moving: Connection) -> None:
    """Run a ``short`` step that moves storages to a drive again and again, and say so."""
    step = built(short)
    plain = DriveMemory.write

    def write(*given: Any) -> None:
        plain(*given)
        time.sleep(0.01)
        moving.send("moving")

    DriveMemory.write = write  # type: ignore[assignment]
    with Budget(UNLIMITED, plan, graph=graph, offload_dir=folder):
        while True:
            step()


def test_a_killed_process_leaves_no_file(tmp_path: Path) -> None:
    moving, says = Pipe(duplex=False)
    graph = run_graph(short)
    child = prepared(keep_moving, graph, offloading(graph, ("ssd",), given=True), tmp_path, says)
    child.start()
    says.close()
    try:
        assert moving.recv() == "moving"
        held = [str(file.readlink()) for file in Path(f"/proc/{child.pid}/fd").iterdir()]
        assert any(name.startswith(str(tmp_path)) and name.endswith("(deleted)") for name in held)
    finally:
        child.kill()
        child.join()
        moving.close()
    assert list(tmp_path.iterdir()) == []


def test_nobody_else_can_read_what_is_on_the_drive(tmp_path: Path) -> None:
    graph = run_graph(tower)
    step = built(tower)
    with Budget(UNLIMITED, offloading(graph, ("ssd",)), graph=graph, offload_dir=tmp_path):
        step()
        files = [file for file in Path("/proc/self/fd").iterdir() if str(tmp_path) in str(os.path.realpath(file))]
        (found,) = [file.stat() for file in files]
        assert (found.st_mode & 0o777, found.st_nlink, found.st_size > 0) == (0o600, 0, True)


@pytest.mark.parametrize("transfers", ["overlapped", "serial"])
def test_closing_gives_everything_back(tmp_path: Path, transfers: TransferMode) -> None:
    graph = run_graph(tower)
    step = built(tower)
    plan = offloading(graph, ("host", "ssd"), given=True)
    sizes = []
    for _ in range(2):
        with Budget(UNLIMITED, plan, graph=graph, workspace=False, offload_dir=tmp_path, transfers=transfers):
            step()
        sizes.append((threading.active_count(), open_files()))
    assert sizes[0] == sizes[1]


def train_long(graph: Graph, plan: Plan, folder: Path, found: Connection) -> None:
    """Send, of 240 ``short`` steps: sizes of the engine and of the process every 40; how many followed the plan; and
    whether the steps left the same behind."""
    gc.freeze()  # or else every collection looks through all that is imported
    step = built(short)
    sizes, heaps = [], []
    with Budget(UNLIMITED, plan, graph=graph, workspace=False, offload_dir=folder) as budget:
        assert budget.runtime is not None
        engine = budget.runtime.engine
        for number in range(240):
            step()
            if number % 40 == 39:
                gc.collect()
                lists = (len(engine.memories), len(engine.calls), len(engine.leaving), len(engine.copied))
                sizes.append((engine.memory, *lists, threading.active_count(), open_files()))
                heaps.append((_objects(), _resident_pages()))
    found.send((sizes, heaps, budget.usage.followed_steps, same_as_without(short, step, 241)))


@pytest.mark.slow
def test_hundreds_of_steps_take_no_more_than_some(tmp_path: Path) -> None:
    """In a process of their own: tensors of other tests are none of it."""
    graph = run_graph(short)
    found, sends = Pipe(duplex=False)
    child = prepared(train_long, graph, offloading(graph, ("host", "ssd"), given=True), tmp_path, sends)
    child.start()
    sends.close()
    sizes, heaps, followed, same = found.recv()
    child.join()
    assert (followed, same) == (240, True)
    assert len(set(sizes)) == 1
    # Less than an object in ten steps and four pages a step; each tensor that is moved has 16 pages.
    assert heaps[-1][0] < heaps[2][0] + 12, heaps
    assert heaps[-1][1] < heaps[2][1] + 480, heaps


def _objects() -> int:
    """Objects alive, but for waits: the last steps keep theirs, and a busy machine makes more of them."""
    return sum(not isinstance(each, Wait) for each in gc.get_objects())


def _resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])
