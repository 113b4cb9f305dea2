"""Steps as people write them: globals, trainers, loaders, hooks, caches. What the step reaches is stood in for."""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from tensortide import capture
from tensortide.graph import Graph, Role, validate
from tests.recorder import elsewhere
from tests.recorder.test_fake_mode import difference
from tests.recorder.test_untouched import same, snapshot

Update = torch.optim.Optimizer


def checked(step: Callable[[], Any], model: nn.Module, optimizer: Update) -> Graph:
    """The graph of ``step``, the same on fake and on real tensors, of which nothing is left behind."""
    before = snapshot(model, optimizer)
    fake = capture(step)
    real = capture(step, real=True)
    after = snapshot(model, optimizer)
    assert [key for key, value in before.items() if not same(value, after[key])] == []
    validate(fake)
    assert difference(fake, real) == ""
    return fake


def names(graph: Graph, role: Role) -> list[str]:
    return [n.name for n in graph.named if n.role is role]


def trained(optimizer: Update, loss: torch.Tensor) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
update = torch.optim.Adam(net.parameters())
x = torch.randn(4, 8)


class Script:
    """Its methods use globals of this module."""

    model = net
    made: Any = None
    count = 0

    def __call__(self) -> None:
        self.step()

    def step(self) -> None:
        Script.count += 1
        trained(update, net(x).sum())

    @classmethod
    def by_class(cls) -> None:
        cls.made = torch.zeros(8) if cls.made is None else cls.made
        trained(update, cls.model(x + cls.made).sum())

    @property
    def own(self) -> nn.Module:
        return net

    def by_property(self) -> None:
        trained(update, self.own(x).sum())


STEPS: dict[str, tuple[Callable[[], Any], nn.Module, Update]] = {
    "method": (Script().step, net, update),
    "callable": (Script(), net, update),
    "class": (Script.by_class, net, update),
    "property": (Script().by_property, net, update),
    "module attribute": (lambda: (elsewhere.step(), None), elsewhere.model, elsewhere.optimizer),
}


@pytest.mark.parametrize("name", STEPS)
def test_globals_are_found_however_the_step_comes_to_them(name: str) -> None:
    graph = checked(*STEPS[name])
    parameters = [n for n, _ in STEPS[name][1].named_parameters()]
    assert names(graph, Role.PARAMETER) == parameters
    assert len(names(graph, Role.OPTIMIZER_STATE)) == 3 * len(parameters)
    assert (Script.count, Script.made) == (0, None)


def test_what_the_step_assigns_first_is_gone_again() -> None:
    source = """
def made():
    def step():
        nonlocal last
        global newest
        last = newest = net(x).sum()
    if False:
        last = None
    return step
"""
    space: dict[str, Any] = {"net": net, "x": x, "__name__": __name__}
    exec(source, space)
    step = space["made"]()
    capture(step)
    assert "newest" not in space
    with pytest.raises(ValueError, match="empty"):
        _ = step.__closure__[0].cell_contents


class Trainer:
    """A data iterator and random generators as attributes."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.model = nn.Linear(8, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.source = {"batches": batches}
        self.draws = (random.Random(1), np.random.default_rng(1), torch.Generator().manual_seed(1))

    def step(self) -> None:
        self.draws[0].random()
        self.draws[1].random()
        noise = torch.randn(4, 8, generator=self.draws[2])
        (batch,) = next(self.source["batches"])
        trained(self.optimizer, self.model(batch + noise).sum())


def loader() -> Any:
    data = torch.arange(20.0)[:, None].expand(20, 8).contiguous()
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=4)


@pytest.mark.parametrize("kind", ["loader", "cycle", "generator"])
def test_batches_and_draws_are_given_back_wherever_they_come_from(kind: str) -> None:
    source: Iterator[Any] = iter(loader())
    if kind != "loader":
        source = itertools.cycle(source) if kind == "cycle" else (batch for batch in source)
    trainer = Trainer(source)
    graph = checked(trainer.step, trainer.model, trainer.optimizer)
    assert names(graph, Role.PARAMETER) == ["weight", "bias"]
    first = next(trainer.source["batches"])[0]
    assert (type(first), first[:, 0].tolist()) == (torch.Tensor, [0, 1, 2, 3])
    draws = trainer.draws
    assert draws[0].random() == random.Random(1).random()
    assert draws[1].random() == np.random.default_rng(1).random()
    assert draws[2].get_state().equal(torch.Generator().manual_seed(1).get_state())


@pytest.mark.parametrize("wrap", [iter, itertools.cycle, enumerate, lambda d: itertools.chain(d, d), zip])
def test_an_iterator_over_a_list_that_the_step_holds_too(wrap: Callable[[Any], Any]) -> None:
    data = [torch.full((4, 8), float(i)) for i in range(4)]
    source = wrap(data)
    next(source)

    def step() -> None:
        assert data
        item = next(source)
        trained(update, net(item if isinstance(item, torch.Tensor) else item[-1]).sum())

    kept = source
    checked(step, net, update)
    assert source is kept
    seen = list(itertools.islice(source, 3))
    tensors = [item if isinstance(item, torch.Tensor) else item[-1] for item in seen]
    assert all(a is b for a, b in zip(tensors, data[1:], strict=True))


def test_a_loader_in_the_step_loads_real_data() -> None:
    batches = loader()

    def step() -> None:
        for (batch,) in batches:
            trained(update, net(batch).sum())

    assert "aten.stack.default" not in {op.name for op in checked(step, net, update)}


def test_an_iterator_of_the_users_own_class_is_an_object() -> None:
    class Batcher:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Batcher:
            return self

        def __next__(self) -> torch.Tensor:
            self.at += 1
            return torch.ones(4, 8)

    batches = Batcher()
    checked(lambda: trained(update, net(next(batches)).sum()), net, update)
    assert (type(batches), batches.at) == (Batcher, 0)


@pytest.mark.parametrize("steps", [0, 1])
def test_an_optimizer_in_the_gradient_hooks(steps: int) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    optimizers = {p: torch.optim.Adam([p], foreach=False) for p in model.parameters()}

    def hook(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad()  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)

    def step() -> None:
        model(x).sum().backward()

    for _ in range(steps):
        step()
    graph = checked(step, model, optimizers[model[0].weight])  # type: ignore[index]
    assert len(names(graph, Role.OPTIMIZER_STATE)) == 12
    assert names(graph, Role.PARAMETER) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert {op.phase.value for op in graph.ops} == {"forward", "backward", "optimizer"}


def test_a_closure_of_the_optimizer_is_forward_and_backward() -> None:
    def closure() -> torch.Tensor:
        update.zero_grad()
        loss: torch.Tensor = net(x).sum()
        loss.backward()
        return loss

    graph = checked(lambda: update.step(closure), net, update)
    assert {op.op.phase.value for op in graph if op.name.startswith("aten.addmm")} == {"forward"}
    assert {op.op.phase.value for op in graph if op.name.startswith("aten.mm")} == {"backward"}


def test_caches_and_containers_with_a_mind_of_their_own() -> None:
    class Strict(collections.OrderedDict[str, Any]):
        extra: Any = None

        def update(self, *args: Any, **kwargs: Any) -> None:
            raise TypeError("never")

    @functools.cache
    def mask(size: int) -> torch.Tensor:
        return torch.ones(size, size)

    outputs, seen = Strict(), collections.Counter({"steps": 1})
    outputs["x"] = kept = torch.randn(4, 8)
    outputs.extra = x

    def step() -> None:
        seen["steps"] += 1
        trained(update, net(outputs["x"] @ mask(8) + outputs.extra).sum())
        outputs["y"] = outputs["x"]

    checked(step, net, update)
    assert (list(outputs), seen["steps"]) == (["x"], 1)
    assert outputs["x"] is kept
    assert outputs.extra is x
    assert type(mask(8)) is torch.Tensor


def test_models_hidden_from_their_parent_and_keyed_by_objects() -> None:
    class Student(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 4)
            self.teacher = [nn.Linear(8, 4)]

        def forward(self, x: torch.Tensor) -> Any:
            return self.net(x) - self.teacher[0](x)

    student, others = Student(), {torch.float32: nn.Linear(8, 4), torch.int8: nn.Linear(8, 4)}
    graph = capture(lambda: sum(m(x).sum() for m in (student, *others.values())))
    assert len(names(graph, Role.PARAMETER)) == 8
    assert {"student.teacher[0].weight", "others[0].weight", "others[1].weight"} <= set(names(graph, Role.PARAMETER))


def test_views_keep_their_base_alive_and_subclasses_are_plain() -> None:
    class Own(torch.Tensor):
        pass

    view, own = torch.randn(100, 8)[4:8], torch.randn(4, 8).as_subclass(Own)
    graph = checked(lambda: trained(update, net(view + own).sum()), net, update)
    assert {s.nbytes for s in graph.storages if s.name == "view"} == {3200}


def test_an_optimizer_in_the_hooks_of_a_workload_is_released() -> None:
    def workload() -> Callable[[], Any]:
        model = nn.Linear(8, 4)
        optimizers = {p: torch.optim.Adam([p]) for p in model.parameters()}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
        return lambda: model(x).sum().backward()

    gc.collect()
    before = sum(type(item) is FakeTensor for item in gc.get_objects())
    capture(workload)
    gc.collect()
    assert sum(type(item) is FakeTensor for item in gc.get_objects()) == before


def test_nothing_fake_is_left_in_the_users_hands() -> None:
    trainer = Trainer(iter(loader()))
    capture(trainer.step)
    held = [*vars(Script).values(), *vars(elsewhere).values(), *trainer.source.values(), *trainer.model.parameters()]
    assert not any(isinstance(item, FakeTensor) for item in held)
