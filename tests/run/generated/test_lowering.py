"""Lowered plans: whatever is recomputed, results are those of the eager step, and its state is updated once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensortide import capture
from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Evict, Lane, Plan, validate
from tensortide.plans.model import Step
from tensortide.run.generated.lowering import Free, Run, lowered
from tensortide.run.generated.step import StepProgram
from tests.run.generated.models import assert_same


class Mixed(nn.Module):
    """Batch normalization, dropout, parts of a tensor, several results of one op, writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Linear(4, 4)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(torch.relu_(self.norm(self.first(x))), 0.5)
        one, other = y.chunk(2, 1)
        values, places = (one * other.sigmoid()).mean((2, 3)).max(1, keepdim=True)
        z = self.second(other.amax((2, 3)) * values)
        result: Tensor = (z.softmax(1) * places).sum()
        return result


def recomputing(graph: Graph) -> Iterator[Plan]:
    """For each op whose result waits for the backward pass a plan that evicts it and runs the op once more."""
    for storage, residence in enumerate(residences(graph)):
        birth, users = graph.storages[storage].birth, graph.index.users[storage]
        late = [op for op in users if graph.ops[op].phase == "backward"]
        if residence is not Residence.LOCAL or birth is None or not late or late == [*users]:
            continue
        again = [op for op in users if op < late[0] and storage in graph.index.writes[op]]
        steps: list[Step] = [Compute(op) for op in range(late[0])]
        steps += [Evict(storage), *map(Compute, again), *(Compute(op) for op in range(late[0], len(graph)))]
        plan = Plan(graph.index.digest, (Lane("cpu", tuple(steps)),))
        try:
            validate(plan, graph)
        except PlanError:  # it needs others
            continue
        yield plan


def test_every_recomputation_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    model, x = Mixed(), torch.randn(2, 3, 8, 8)

    def step() -> Tensor:
        model.zero_grad()
        loss: Tensor = model(x)
        loss.backward()
        return loss.detach()

    graph, start = capture(step), [buffer.clone() for buffer in model.buffers()]

    def left(run: StepProgram | None) -> list[Tensor]:
        torch.manual_seed(1)
        for buffer, value in zip(model.buffers(), start, strict=True):
            buffer.copy_(value)
        loss = step() if run is None else run()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [loss, *gradients, *(buffer.clone() for buffer in model.buffers()), torch.get_rng_state()]

    wanted, recomputed = left(None), set()
    for plan in recomputing(graph):
        assert_same(left(StepProgram(step, graph, plan)), wanted)
        runs = [s.op for s in plan.lanes[0].steps if isinstance(s, Compute)]
        recomputed |= {graph[op].name.split(".")[1] for op in runs if runs.count(op) > 1}
    assert {"convolution", "native_batch_norm", "bernoulli_", "sigmoid"} <= recomputed


def test_names_end_with_their_storage_and_views_are_made_again() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, requires_grad=True)

    def step() -> None:
        y = x.sin()
        (y.t() @ y).sum().backward()

    step()
    graph = capture(step)
    sine = next(op for op, view in enumerate(graph) if view.name == "aten.sin.default")
    (storage,) = graph.index.allocated[sine]
    late = next(op for op in graph.index.users[storage] if graph.ops[op].phase == "backward")
    order: list[Step] = [Compute(op) for op in range(len(graph))]
    order[late:late] = [Evict(storage), Compute(sine)]
    plan = Plan(graph.index.digest, (Lane("cpu", tuple(order)),))
    given = {entry.tensor: entry.name for entry in graph.named}
    code, _ = lowered(graph, plan, given)
    runs = [each for each in code if isinstance(each, Run)]
    assert [each.again for each in runs if each.op == sine] == [False, True]
    freed = [each.names for each in code if isinstance(each, Free)]
    first = next(each.outputs[0] for each in runs if each.op == sine)
    assert any(first in names and len(names) == 2 for names in freed)  # it and its transpose
    available: set[str] = {*given.values()}
    for each in code:
        if isinstance(each, Run):
            assert available.issuperset(each.inputs)
            available.update(name for name in each.outputs if name is not None)
        elif isinstance(each, Free):
            assert available.issuperset(each.names)
            available.difference_update(each.names)


def test_a_plan_that_uses_what_it_has_evicted_is_refused() -> None:
    x = torch.randn(4, requires_grad=True)

    def step() -> None:
        x.sin().exp().sum().backward()

    step()
    graph = capture(step)
    (storage,) = graph.index.allocated[0]
    steps: tuple[Step, ...] = (Compute(0), Evict(storage), *map(Compute, range(1, len(graph))))
    given = {entry.tensor: entry.name for entry in graph.named}
    with pytest.raises(PlanError, match="where its storage is not resident"):
        lowered(graph, Plan(graph.index.digest, (Lane("cpu", steps),)), given)
