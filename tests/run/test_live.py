"""What a program may ask of the open budget by DTR's own names, and the log of what it does."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tensortide import live
from tensortide.errors import BudgetInfeasible, OutputError, RunError
from tensortide.importers.dtrlog.read import read_recording
from tensortide.replays.remat import Simulator
from tensortide.run.access import Access
from tensortide.run.block import storage_of
from tensortide.run.budget import Budget
from tests.run.follow_steps import Build, built, example, tower
from tests.run.same import UNLIMITED, counting, identical
from tests.run.test_budget import KIB, chain, room


def test_without_a_budget_each_says_so() -> None:
    x = torch.ones(3)
    for ask in (live.unset_memory_budget, live.usage, live.reset_profile, live.clear_checkpointpool):
        with pytest.raises(RunError, match="no memory budget is open"):
            ask()
    for call in (live.checkpoint, live.decheckpoint, live.pin, live.is_checkpoint):
        with pytest.raises(RunError, match="no memory budget is open"):
            call(x)
    for switch in (live.toggle_sampling, live.ignore_small_tensors, live.toggle_log):
        with pytest.raises(RunError, match="no memory budget is open"):
            switch(False)
    with pytest.raises(RunError, match="no memory budget is open"):
        live.set_memory_budget("1GiB")


def test_a_tensor_from_outside_counts_when_it_is_put_in() -> None:
    sparse = torch.eye(3).to_sparse()
    with Budget("1GiB") as budget:
        before = budget.resident_bytes
        x = torch.frombuffer(bytearray(4096), dtype=torch.uint8)
        assert not live.is_checkpoint(x)
        assert live.checkpoint(x) is x
        assert live.is_checkpoint(x)
        assert budget.resident_bytes == before + 4096
        with pytest.raises(RunError, match="plain, strided"):
            live.checkpoint(sparse)


@pytest.mark.parametrize("keep", [live.decheckpoint, live.pin])
def test_what_is_brought_back_stays(keep: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(room(24 * KIB), clock=counting()):
        made = chain(x, 20)
        assert storage_of(made[0]).nbytes() == 0
        assert keep(made[0]) is made[0]
        chain(x, 20)
        assert storage_of(made[0]).nbytes() == 4 * KIB
    assert all(map(identical, made, want))


def test_the_limit_may_change_while_it_is_open() -> None:
    x = torch.randn(1024)
    want = chain(x, 20)
    with Budget(UNLIMITED) as budget:
        made = chain(x, 20)
        full = budget.resident_bytes
        live.set_memory_budget(full - 40 * KIB)
        assert budget.resident_bytes <= full - 40 * KIB
        assert live.usage().evictions >= 10
        with pytest.raises(BudgetInfeasible, match="set_memory_budget"):
            live.set_memory_budget(1)
        assert budget.budget_bytes == full - 40 * KIB
        with pytest.raises(RunError, match="no budget"):
            live.set_memory_budget("much")
        live.unset_memory_budget()
        assert all(map(identical, made, want))
        live.set_memory_budget(full - 40 * KIB)
        with pytest.raises(BudgetInfeasible, match="clear_checkpointpool"):
            live.clear_checkpointpool()
    assert all(map(identical, made, want))


def test_histories_can_be_ended() -> None:
    x = torch.randn(1024)
    with Budget(UNLIMITED) as budget:
        made = chain(x, 20)[-1]
        assert budget.runtime is not None
        live.clear_checkpointpool()
        engine = budget.runtime.engine
        engine.collect()
        assert all(engine.fixed[value.block.storage] for value in budget.runtime.known.values())
        assert identical(made, made.clone())


def test_the_policy_may_sample_and_pass_over_small_tensors() -> None:
    with Budget("1GiB", "dtr") as budget:
        live.toggle_sampling(True)
        assert budget.policy.name == "dtr+sqrt"
        live.ignore_small_tensors(True)
        assert budget.policy.name == "dtr+sqrt+large"
        live.toggle_sampling(False)
        assert budget.policy.name == "dtr+large"
        live.ignore_small_tensors(False)
        assert budget.policy.name == "dtr"
    with Budget("1GiB", "random"), pytest.raises(RunError, match="nothing to sample"):
        live.toggle_sampling(True)


def test_counters_start_again() -> None:
    x = torch.randn(1024)
    with Budget(room(24 * KIB)):
        chain(x, 20)
        first = live.usage()
        assert first.ops == 20
        spent = first.base_ns + first.recompute_ns + first.arguments_ns + first.search_ns + first.overhead_ns
        assert spent >= first.open_ns > 0
        live.reset_profile()
        x.sin()
        assert live.usage().ops == 1
        assert live.usage().base_ns < first.base_ns


@pytest.mark.parametrize("build", [tower, example("resnet18_cifar")], ids=["tower", "resnet18_cifar"])
def test_a_log_of_a_live_step_simulates_to_the_same(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Access, "gradient", lambda *_: None)  # a log does not tell them from other tensors
    step = built(build)
    with Budget(UNLIMITED, workspace=False) as free:
        before = free.resident_bytes
        step()
    limit = before + int((free.usage.peak_bytes - before) * 0.6)
    with Budget(limit, workspace=False):
        step()
        live.toggle_log(tmp_path / "step.log.gz")
        with pytest.raises(RunError, match="already"):
            live.toggle_log(tmp_path / "other.log")
        live.reset_profile()
        step()
        usage = live.usage()
        live.toggle_log(False)
    recording = read_recording(tmp_path / "step.log.gz")
    assert sum(recording.durations_ns) == usage.base_ns
    run = Simulator(recording).run("dtr-eq", limit, overhead_limit=None)
    assert run.status == "ok"
    assert usage.recomputations > 0
    assert (run.evictions, run.recomputations, run.peak_bytes) == (
        usage.evictions,
        usage.recomputations,
        usage.peak_bytes,
    )


def test_a_log_is_written_when_the_budget_is_left(tmp_path: Path) -> None:
    gc.collect()
    x = torch.randn(1024, requires_grad=True)
    with Budget("1GiB"):
        with pytest.raises(RunError, match="needs a file"):
            live.toggle_log(True)
        with pytest.raises(OutputError):
            live.toggle_log(tmp_path / "none" / "step.log")
        live.toggle_log(tmp_path / "step.log")
        for _ in range(2):
            batch = torch.frombuffer(bytearray(4096), dtype=torch.float32)
            (x * batch).sum().backward()
            batch = x[:3].detach()
            batch.mul_(0.5)
        assert not (tmp_path / "step.log").exists()
    text = (tmp_path / "step.log").read_text()
    assert text.count('"BACKWARD"') == 1
    for instruction in ("CONSTANT", "CALL", "ALIAS", "MUTATE", "RELEASE", "MEMORY"):
        assert f'"INSTRUCTION":"{instruction}"' in text
    assert len(read_recording(tmp_path / "step.log").graph) > 8
