"""Programs on several streams stay free of races under a budget: on a fake GPU, which checks every kernel."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tensortide.errors import BudgetInfeasible
from tensortide.run import device
from tensortide.run.block import storage_of
from tensortide.run.budget import Budget
from tensortide.run.in_flight import Flight
from tests.marks import some_slow
from tests.run.fake_gpu import Event, FakeGPU, Queue, fake_gpu
from tests.run.same import UNLIMITED, identical

pytestmark = pytest.mark.filterwarnings("ignore::tensortide.errors.SlowBudget")
ELEMENTS = 1024


@dataclass
class Tensor:
    """A tensor with what the program knows of it: its stream, when it was last written, and its uses."""

    value: torch.Tensor
    owner: Queue
    written: Event
    uses: dict[Queue, Event] = field(default_factory=dict)


def program(gpu: FakeGPU, seed: int) -> list[Tensor]:
    """Random ops on three streams, with no more waiting than an ordinary run needs."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    queues = [gpu.current, gpu.new_stream(), gpu.new_stream()]
    with gpu.stream(draw.choice(queues)):
        held = [Tensor(torch.rand(ELEMENTS), gpu.current, gpu.current.record_event()) for _ in range(2)]
    for _ in range(60):
        queue = draw.choice(queues) if draw.random() < 0.4 else gpu.current
        with gpu.stream(queue):
            inputs = draw.sample(held, 2)
            for tensor in inputs:
                queue.wait_event(tensor.written)
            if draw.random() < 0.08:
                target, other = inputs
                for event in target.uses.values():
                    queue.wait_event(event)
                target.value.mul_(other.value.sigmoid())
                target.written = queue.record_event()
            else:
                op: Any = draw.choice([torch.add, torch.sub, torch.maximum])
                value = op(*[tensor.value for tensor in inputs]).sin()
                held.append(Tensor(value, queue, queue.record_event()))
            for tensor in inputs:
                tensor.uses[queue] = queue.record_event()
        if len(held) > 16:
            dropped = held.pop(draw.randrange(len(held)))
            for event in (dropped.written, *dropped.uses.values()):
                dropped.owner.wait_event(event)
            del dropped, inputs, tensor
            target = other = value = None  # type: ignore[assignment]
    return held


def drop(gpu: FakeGPU, held: list[Tensor]) -> list[torch.Tensor]:
    """Use all on their own streams once more, and release them; returns copies."""
    copies = []
    while held:
        tensor = held.pop()
        with gpu.stream(tensor.owner):
            for event in (tensor.written, *tensor.uses.values()):
                tensor.owner.wait_event(event)
            copies.append(tensor.value.clone())
    return copies


def run(monkeypatch: pytest.MonkeyPatch, seed: int, limit: int) -> tuple[list[torch.Tensor], list[str], int]:
    with monkeypatch.context() as patches, fake_gpu(patches) as gpu:
        if not limit:
            return drop(gpu, program(gpu, seed)), gpu.races, 0
        with Budget(UNLIMITED, device="cpu") as probe:
            there = probe.resident_bytes
        with Budget(there + limit, device="cpu") as budget:
            left = program(gpu, seed)
        return drop(gpu, left), gpu.races, budget.usage.recomputations


def squeezed(monkeypatch: pytest.MonkeyPatch, seed: int) -> tuple[list[torch.Tensor], list[str], int]:
    """A run under the least of some budgets that suffices."""
    for tensors in range(9, 30):
        with contextlib.suppress(BudgetInfeasible):
            return run(monkeypatch, seed, tensors * 4 * ELEMENTS)
    raise AssertionError("no budget suffices")


@pytest.mark.parametrize("seed", some_slow([0, 1, 2, 4, 5], [1, 4, 5]))
def test_programs_on_several_streams_have_no_races(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    plain, races, _ = run(monkeypatch, seed, 0)
    assert races == []
    left, races, recomputations = squeezed(monkeypatch, seed)
    assert races == []
    assert recomputations > 0
    assert all(map(identical, plain, left))


def test_races_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device.Accelerator, "streams", lambda self: None)
    found = [race for seed in range(3) for race in squeezed(monkeypatch, seed)[1]]
    assert any("freed while" in race for race in found)
    assert any("still being computed" in race for race in found)


def test_who_waits_for_communication_is_who_uses_its_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own stream is hidden: a stream that waits for it stands for it."""
    with fake_gpu(monkeypatch) as gpu, Budget(UNLIMITED, device="cpu") as budget:
        assert budget.runtime is not None
        x = torch.ones(ELEMENTS).sin()
        work = SimpleNamespace(is_completed=lambda: False)
        storage = budget.runtime.storage(x)
        budget.runtime.engine.begin_use(storage)
        budget.runtime.in_flight.flights.append(Flight(work, [storage_of(x)], [storage], frozenset()))
        with gpu.stream(gpu.new_stream()):
            x.sum()  # seen
            gpu.calls.clear()
        with gpu.stream(gpu.new_stream()):
            budget.runtime.in_flight.waited(work)
        assert gpu.calls == [("record_stream", 2)]
        assert budget.runtime.in_flight.flights == []
