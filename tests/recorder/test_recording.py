"""A step recorded from a loop that runs is the step that a capture of it as a function finds."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.nn.modules import module as module_hooks
from torch.optim import optimizer as optimizer_hooks
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

import tensortide
from tensortide.errors import CaptureError
from tensortide.graph import Graph, Phase, Role
from tensortide.recorder.recording import Recording
from tests.recorder.loops import PASSES, Loop, accumulation, autocast, batches, classifier, closure, gan, net


def ops(graph: Graph) -> list[tuple[str, str, str]]:
    """Name, phase and module of each op."""
    return [(op.name, op.phase.value, op.module) for op in graph]


def used(graph: Graph) -> Counter[tuple[int, str, int | None, int | None]]:
    """Bytes, role and lifetime of every storage that an op touches; what dies with the function outlives the step."""
    touched = {graph.tensors[i].storage for op in graph.ops for i in (*op.inputs, *op.outputs)}
    storages = map(graph.storages.__getitem__, touched)
    return Counter((s.nbytes, s.role.value, s.birth, None if s.death == len(graph) else s.death) for s in storages)


def peak(graph: Graph) -> int:
    return tensortide.timeline(graph).peak_bytes


def assert_same_step(recorded: Graph, captured: Graph) -> None:
    assert ops(recorded) == ops(captured)
    assert used(recorded) == used(captured)
    assert peak(recorded) == peak(captured)
    parameters = [{n.name for n in g.named if n.role is Role.PARAMETER} for g in (recorded, captured)]
    assert parameters[0] == parameters[1]


# -- loops, and the same step as a function ---------------------------------------------------------


def recorded(loop: Loop, *, step: int = 2, passes: int = PASSES) -> Graph:
    body, recording = loop(), Recording(step)
    with recording:
        for _ in range(passes):
            body()
    return recording.graph


@pytest.mark.parametrize("loop", [classifier, accumulation, gan, closure])
def test_a_recorded_step_is_the_captured_one(loop: Loop) -> None:
    assert_same_step(recorded(loop), tensortide.capture(loop(), real=True))


def test_what_follows_the_optimizer_belongs_to_the_next_step() -> None:
    """The gradient scaler is updated after the optimizer's step: the same ops, two of them first instead of last."""
    captured = tensortide.capture(autocast(), real=True)
    graph = recorded(autocast)
    assert Counter(ops(graph)) == Counter(ops(captured))
    assert ops(graph) != ops(captured)


def test_any_step_can_be_recorded_and_the_loop_goes_on() -> None:
    body = classifier()
    ran = []
    with tensortide.record(step=3) as recording:
        for i in range(5):
            body()
            ran.append((i, recording.done))
    assert ran == [(0, False), (1, False), (2, True), (3, True), (4, True)]
    first = recorded(classifier, step=1)
    assert (first.meta.step, recording.graph.meta.step) == ("first", "steady")
    assert [s for s in first.storages if s.role is Role.OPTIMIZER_STATE and s.birth is not None]
    assert not [s for s in recording.graph.storages if s.role is Role.OPTIMIZER_STATE and s.birth is not None]


def test_modules_and_tensors_have_the_names_of_variables() -> None:
    teacher, student = nn.Linear(12, 5), nn.Linear(12, 5)
    update = torch.optim.SGD(student.parameters(), lr=0.1)
    with tensortide.record() as recording:
        for features, _ in batches(3):
            with torch.no_grad():
                wanted = teacher(features)
            loss = mse_loss(student(features), wanted)
            loss.backward()
            update.step()
    graph = recording.graph
    assert {m.path for m in graph.modules} == {"teacher", "student"}
    assert {n.name for n in graph.named if n.role is Role.PARAMETER} == {
        f"{owner}.{name}" for owner in ("teacher", "student") for name in ("weight", "bias")
    }
    assert {s.name for s in graph.storages if s.role is Role.INPUT and s.name} == {"features", "batch[1]"}
    assert [s.name for s in graph.storages if s.role is Role.OUTPUT] == ["loss (previous step)"]


def test_results_of_the_step_before_are_resident_until_they_are_replaced() -> None:
    model, (x, labels) = net(), next(iter(batches()))
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    with tensortide.record() as recording:
        for _ in range(3):
            scores = model(x)
            cross_entropy(scores, labels).backward()
            update.step()
    [left] = [s for s in recording.graph.storages if s.name == "scores (previous step)"]
    made = [op.index for op in recording.graph if op.name == "aten.addmm.default" and op.phase is Phase.FORWARD]
    assert (left.nbytes, left.birth, left.death) == (16 * 5 * 4, None, made[-1] + 1)


def test_each_batch_of_an_accumulation_is_resident_from_its_arrival_on() -> None:
    model, update = net(), None
    with tensortide.record() as recording:
        update = torch.optim.SGD(model.parameters(), lr=0.1)
        for i, (x, labels) in enumerate(batches(8)):
            cross_entropy(model(x), labels).backward()
            if i % 2:
                update.step()
                update.zero_grad()
    lives = sorted(
        (s.birth or 0, s.death) for s in recording.graph.storages if s.nbytes == 16 * 12 * 4 and s.role is Role.INPUT
    )
    assert len(lives) == 2
    assert lives[0][0] == 0
    assert lives[0][1] == lives[1][0]
    assert lives[1][1] is None


def test_a_skipped_step_is_not_the_recorded_one() -> None:
    model, update = net(), None
    update = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=100)
    x, labels = next(iter(batches()))
    overflows = iter([True, False, True, True, False, False])
    with tensortide.record() as recording:
        for overflow in overflows:
            update.zero_grad()
            loss = cross_entropy(model(x), labels) * (float("inf") if overflow else 1.0)
            scaler.scale(loss).backward()
            scaler.step(update)
            scaler.update()
    phases = Counter(op.phase for op in recording.graph)
    assert phases[Phase.OPTIMIZER] > 0
    assert len([op for op in recording.graph if op.name == "aten.native_batch_norm.default"]) == 1
    assert recording.graph.meta.assumptions == ("the gradient scaler skipped 3 steps before the recorded one",)


def test_optimizers_may_step_in_hooks_of_backward() -> None:
    model = net()
    updates: dict[torch.Tensor, torch.optim.Optimizer] = {p: torch.optim.Adam([p]) for p in model.parameters()}

    def hook(parameter: torch.Tensor) -> None:
        updates[parameter].step()
        updates[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    x, labels = next(iter(batches()))
    with tensortide.record() as recording:
        for _ in range(3):
            cross_entropy(model(x), labels).backward()
    counted = Counter(op.name for op in recording.graph)
    assert counted["aten.addmm.default"] == 2
    assert {s.birth for s in recording.graph.storages if s.role is Role.OPTIMIZER_STATE} == {None}


def test_the_state_of_an_optimizer_inside_of_another_is_named() -> None:
    class Both(torch.optim.Optimizer):
        def __init__(self, parameters: list[torch.Tensor]) -> None:
            self.inner = torch.optim.Adam(parameters)
            super().__init__(parameters, {})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step(closure)

        def zero_grad(self, set_to_none: bool = True) -> None:
            self.inner.zero_grad(set_to_none)

    model = nn.Linear(4, 4)
    both = Both([*model.parameters()])
    with tensortide.record() as recording:
        for _ in range(3):
            model(torch.randn(2, 4)).sum().backward()
            both.step()
            both.zero_grad()
    named = [entry.name for entry in recording.graph.named if entry.role is Role.OPTIMIZER_STATE]
    assert sorted(named) == sorted(f"{p}.{s}" for p in ("bias", "weight") for s in ("exp_avg", "exp_avg_sq", "step"))


def test_a_decorated_step_is_recorded_whole() -> None:
    body = classifier()
    step = tensortide.record(body)
    for _ in range(3):
        step()
    captured = tensortide.capture(classifier(), real=True)
    assert_same_step(step.recording.graph, captured)


def test_a_decorated_training_function_is_watched_for_its_second_step() -> None:
    body = classifier()

    @tensortide.record(step=2)
    def train(steps: int) -> str:
        for _ in range(steps):
            body()
        return "trained"

    assert train(4) == "trained"
    assert_same_step(train.recording.graph, tensortide.capture(classifier(), real=True))


def test_a_decorated_inference_function_is_a_step() -> None:
    model = net().eval()

    @tensortide.record
    def scores(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scores: torch.Tensor = model(x).softmax(-1)
        return scores

    for _ in range(2):
        scores(torch.randn(4, 12))
    graph = scores.recording.graph
    assert {op.phase for op in graph} == {Phase.FORWARD}
    assert [s.role for s in graph.storages if s.name == "output"] == [Role.OUTPUT]


def watched_places() -> list[Any]:
    return [
        torch.optim.Optimizer.__init__,
        torch.autograd.backward,
        torch.amp.GradScaler.step,
        DataLoader.__iter__,
        _BaseDataLoaderIter.__next__,
        *(len(hooks) for hooks in (module_hooks._global_forward_hooks, module_hooks._global_forward_pre_hooks)),
        *(
            len(hooks)
            for hooks in (optimizer_hooks._global_optimizer_pre_hooks, optimizer_hooks._global_optimizer_post_hooks)
        ),
        torch._C._len_torch_dispatch_stack(),
        gc.isenabled(),
    ]


@pytest.mark.parametrize("passes", [0, 1, 2, 3])
def test_nothing_of_it_stays(passes: int) -> None:
    """Neither after the step nor after an error in the middle of the recorded one."""
    before, body = watched_places(), classifier()

    def loop() -> None:
        with tensortide.record():
            for _ in range(passes):
                body()
            raise KeyError

    with pytest.raises(KeyError):
        loop()
    assert watched_places() == before


def test_training_is_the_same_with_and_without_it() -> None:
    def trained(watch: bool) -> list[torch.Tensor]:
        model, loader = net(), batches(4)
        update = torch.optim.AdamW(model.parameters())
        with Recording(step=2 if watch else 100):
            for x, labels in loader:
                update.zero_grad()
                cross_entropy(model(x), labels).backward()
                update.step()
        return list(model.parameters())

    torch.manual_seed(1)
    first = trained(watch=True)
    torch.manual_seed(1)
    assert all(map(torch.equal, first, trained(watch=False)))


def test_a_step_that_never_came_says_what_was_seen() -> None:
    model = net()
    with tensortide.record() as recording:
        model(torch.randn(4, 12)).sum().backward()
    with pytest.raises(CaptureError, match="no training step was seen: 1 forward pass, 1 backward pass, and no step"):
        _ = recording.graph
    with tensortide.record() as recording:
        classifier()()
    with pytest.raises(CaptureError, match=r"step 2 was not reached: 1 training step ended .*--step 1"):
        _ = recording.graph
    with pytest.raises(CaptureError, match="counted from 1"):
        tensortide.record(step=0)


@pytest.mark.parametrize("make", [net, lambda: nn.Sequential(nn.Linear(12, 512), nn.GELU(), nn.Linear(512, 5))])
def test_the_peak_is_that_of_the_allocator(make: Callable[[], nn.Module]) -> None:
    """PyTorch's own record of every allocation of the same step, in a loop whose variables outlive each pass."""
    held = TensorDataset(torch.randn(64, 12), torch.randint(0, 5, (64,)))

    def train(watch: Callable[[int], Any]) -> None:
        model = make()
        update = torch.optim.AdamW(model.parameters())
        for i, (x, labels) in enumerate(DataLoader(held, batch_size=16)):
            with watch(i):
                update.zero_grad()
                scores = model(x)
                loss = cross_entropy(scores, labels)
                loss.backward()
                update.step()

    recording = Recording(step=3)
    with recording:
        train(lambda i: contextlib.nullcontext())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        train(lambda i: record_function(f"step {i + 1}"))
    assert profiled.profiler is not None
    events: list[Any] = list(profiled.profiler.kineto_results.events())
    [third] = [event for event in events if event.name() == "step 3"]
    resident = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            resident += event.nbytes()
            if third.start_ns() <= event.start_ns() <= third.end_ns():
                most = max(most, resident)
    assert peak(recording.graph) == pytest.approx(most, rel=1e-3)
