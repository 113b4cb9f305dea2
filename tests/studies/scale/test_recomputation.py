"""Steps that recompute, against captures of the same models under ``torch.utils.checkpoint``."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.utils.checkpoint import checkpoint

import tensortide
from tensortide.errors import DegreesError, PlanError
from tensortide.graph import Graph
from tensortide.graph.model import Phase
from tensortide.parallelism import Degrees, per_rank
from tensortide.parallelism.closed import Configuration
from tensortide.parallelism.gathered import unit_of
from tensortide.plans import Compute, Lane, Offload, Plan
from tensortide.recorder import resolver
from tensortide.recorder.changes import Checkpointed
from tensortide.replays import replay
from tensortide.run.budget import Budget
from tensortide.studies.planning import plan
from tensortide.studies.scale import Captured
from tensortide.studies.scale.recomputation import plan_of, recomputed
from tensortide.studies.scale.regions import blocks
from tensortide.timing import device
from tensortide.timing.collectives import nodes_of
from tests.studies.scale.test_captured import A100, SIZES

LLAMA = {key: value for key, value in SIZES.items() if key != "positions"}


def runs_again(graph: Graph) -> Counter[str]:
    """Ops that are recomputed by name; saved tensors that a checkpoint unpacks are detached, which is a view."""
    return Counter(op.name for op in graph if op.op.recompute and not op.is_view)


def assert_same_step(made: Graph, real: Graph) -> None:
    """FLOPs, recomputed ops and the peak are the same under every rule of lifetimes."""
    assert tensortide.count(made).total.flops == tensortide.count(real).total.flops
    assert runs_again(made) == runs_again(real)
    for rule in ("eager", "last_use"):
        peaks = [tensortide.timeline(graph, lifetimes=rule).peak_bytes for graph in (made, real)]
        assert peaks[0] == pytest.approx(peaks[1], rel=1e-3)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", SIZES),
        pytest.param("gpt2", {**SIZES, "attention": "eager", "dropout": 0.1}, marks=pytest.mark.slow),
        pytest.param("llama", LLAMA, marks=pytest.mark.slow),
    ],
)
def test_full_is_a_checkpoint_of_every_block(name: str, settings: dict[str, Any]) -> None:
    settings = {**settings, "layers": 2}
    plain = tensortide.capture(name, hyperparameters=settings)
    units = sorted({unit_of(f"{module.path}.") for module in plain.modules} - {""})
    real = tensortide.capture(name, hyperparameters=settings, changes=[Checkpointed(tuple(units))])
    made = recomputed(plain, "full")
    assert_same_step(made, real)
    assert tensortide.timeline(made).peak_bytes < tensortide.timeline(plain).peak_bytes


class Attention(nn.Module):
    """Attention with scores in memory. ``again`` recomputes its core."""

    def __init__(self, width: int, heads: int, again: bool) -> None:
        super().__init__()
        self.heads, self.again = heads, again
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def core(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        scores = query @ key.transpose(-2, -1) / 4.0
        found: torch.Tensor = nn.functional.dropout(scores.softmax(-1), 0.1) @ value
        return found

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)]
        seen = checkpoint(self.core, *parts, use_reentrant=False) if self.again else self.core(*parts)
        made: torch.Tensor = x + self.out(seen.transpose(1, 2).flatten(2))
        return made


def attention_step(again: bool) -> Callable[[], torch.Tensor]:
    model = nn.Sequential(*(Attention(32, 4, again) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 24, 32)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def test_selective_is_a_checkpoint_of_the_core_of_attention() -> None:
    plain, real = (tensortide.capture(attention_step(again), real=True) for again in (False, True))
    made = recomputed(plain, "selective")
    assert_same_step(made, real)
    assert runs_again(made)["aten._softmax.default"] == 3
    assert runs_again(made)["aten.bmm.default"] == 3  # the product with the values: nothing needs it again
    assert "aten.addmm.default" not in runs_again(made)


class JoinedKeys(nn.Module):
    """Two projections, joined in memory that is allocated empty, as keys are in DeepSeek-V3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width // 4), nn.Linear(width, width - width // 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.first(x), self.second(x)
        joined = first.new_empty(x.shape)
        joined[..., : first.shape[-1]] = first
        joined[..., first.shape[-1] :] = second
        made: torch.Tensor = x + joined.sin()
        return made


def joined_step() -> Callable[[], torch.Tensor]:
    model = nn.Sequential(*(JoinedKeys(32) for _ in range(3)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 24, 32)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def test_what_is_allocated_empty_and_filled_in_parts_is_recomputed() -> None:
    plain = tensortide.capture(joined_step())
    real = tensortide.capture(joined_step(), changes=[Checkpointed(("0", "1", "2"))])
    made = recomputed(plain, "full")
    assert tensortide.count(made).total.flops == tensortide.count(real).total.flops
    assert runs_again(made) == runs_again(real)
    peaks = [tensortide.timeline(graph, lifetimes="last_use").peak_bytes for graph in (made, real)]
    assert peaks[0] == peaks[1]
    assert runs_again(made)["aten.copy_.default"] == 2 * runs_again(made)["aten.new_empty.default"] == 6


def test_a_plan_that_fills_in_parts_again_runs_bit_for_bit() -> None:
    losses = []
    for follows in (False, True):
        torch.manual_seed(0)
        step = joined_step()
        losses.append([step()])
        gc.collect()
        graph = tensortide.capture(step, real=True)  # fake tensors slice once more for each assignment
        with Budget(1 << 40, graph=graph, policy=plan_of(graph, blocks(graph)) if follows else "dtr-eq") as budget:
            losses[-1] += [step() for _ in range(3)]
        assert budget.usage.followed_steps == 3 * follows
        assert bool(budget.usage.recomputations) == follows
    assert all(map(torch.equal, *losses))


def test_a_fused_core_runs_again_and_is_remarked() -> None:
    made = recomputed(gpt2(), "selective")
    assert list(runs_again(made).values()) == [4]
    one = replace(Configuration(batch=8, micro_batch=8), recompute="selective")
    found = Captured(gpt2(), device(A100), batch=8).predict(one, nodes_of(A100, devices_per_node=1))
    assert any("fused" in text for text in found.remarks)


@functools.cache
def gpt2() -> Graph:
    return tensortide.capture("gpt2", hyperparameters=SIZES, real=True)


def assert_played(graph: Graph, made: Graph, plan: Plan) -> None:
    """``made`` is ``graph`` as the replay of ``plan`` has it, with recomputation in the backward pass."""
    played = replay(graph, plan)
    assert runs_again(made)
    assert tensortide.count(made).total.flops == tensortide.count(played.graph).total.flops
    assert tensortide.timeline(made, lifetimes="last_use").peak_bytes == played.peak_bytes
    forward = max(i for i, op in enumerate(made.ops) if op.phase is Phase.FORWARD)
    assert all(i > forward for i, op in enumerate(made.ops) if op.recompute)


def test_a_plan_of_the_step_is_what_its_replay_is() -> None:
    some = plan_of(gpt2(), blocks(gpt2())[1:3])
    assert_played(gpt2(), recomputed(gpt2(), "plan", some), some)


@pytest.mark.slow
def test_a_plan_that_was_searched_is_what_its_replay_is() -> None:
    graph = gpt2()
    peak = tensortide.timeline(graph, lifetimes="last_use").peak_bytes
    found = plan(graph, round(0.7 * peak), effort=1, durations_ns=[1000] * len(graph))
    assert found.plan is not None
    assert_played(graph, recomputed(graph, "plan", found.plan), found.plan)


def test_a_plan_is_of_the_step_or_of_a_rank_of_it() -> None:
    degrees = {"data": 2, "tensor": 2, "micro_batch": 4}
    rank = per_rank(gpt2(), Degrees(data=2, tensor=2, micro_batches=1)).graph
    one = replace(Configuration(batch=8, recompute="plan"), **degrees)
    node = nodes_of(A100, devices_per_node=4)
    products = [index for index in blocks(rank)[1] if "c10d" not in rank[index].name][:12]
    again = Captured(gpt2(), device(A100), batch=8, resolver=resolver, plan=plan_of(rank, [products]))
    plain = again.predict(replace(one, recompute="none"), node)
    made = again.predict(one, node)
    assert made.peak_bytes < plain.peak_bytes
    assert made.parts["recompute"] > plain.parts["recompute"] == 0
    with pytest.raises(PlanError, match="neither for this step nor for that of a rank"):
        again.predict(replace(one, data=4, tensor=1, micro_batch=2), node)


@pytest.mark.parametrize(
    "degrees",
    [
        {"data": 2, "micro_batch": 4, "zero": 3},
        pytest.param({"tensor": 2}, marks=pytest.mark.slow),
        pytest.param({"pipeline": 2, "micro_batch": 2}, marks=pytest.mark.slow),
        {"pipeline": 2, "micro_batch": 1, "chunks": 2, "schedule": "interleaved"},
    ],
)
def test_every_way_to_divide_recomputes(degrees: dict[str, Any]) -> None:
    one = replace(Configuration(batch=8, micro_batch=8, recompute="none"), **degrees)
    step = Captured(gpt2(), device(A100), batch=8, resolver=resolver)
    node = nodes_of(A100, devices_per_node=one.devices)
    kept, again = (step.predict(replace(one, recompute=how), node) for how in ("none", "full"))
    assert again.peak_bytes < kept.peak_bytes
    assert again.time.time_ns > kept.time.time_ns
    assert sum(again.parts.values()) == pytest.approx(again.time.time_ns)
    assert again.parts["recompute"] > 0


def test_what_cannot_be_recomputed_is_named() -> None:
    def step() -> torch.Tensor:
        return torch.randn(3) + 1

    graph = tensortide.capture(step)
    with pytest.raises(DegreesError, match="no repeated blocks"):
        recomputed(graph, "full")
    with pytest.raises(DegreesError, match="no attention"):
        recomputed(graph, "selective")
    moving = Plan(graph.index.digest, (Lane("cpu", (Compute(0), Offload(0), Compute(1))),))
    with pytest.raises(PlanError, match="moves storages"):
        recomputed(graph, "plan", moving)
    with pytest.raises(PlanError, match="needs the plan"):
        recomputed(graph, "plan")
