"""Steps that ranks of a placed run build, each for itself, and their lanes run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

import tensortide
from tensortide.graph import Graph
from tensortide.parallelism.shards import Shard, ShardedModule
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, placed, ready
from tensortide.placements.graphs.hosts import Launch
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.plans import Plan
from tensortide.run.placed.lane import LaneProgram
from tensortide.run.placed.processes import run_ranks
from tests.placements.graphs.steps import cluster

STEPS = 3


class Block(nn.Module):
    """A residual block of two layers: its input feeds two ops, whose gradients are added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return result


def first(value: torch.Tensor) -> str:
    """The first element, written so that no bit is lost."""
    return float(value.flatten()[0]).hex()


def residual() -> Callable[[], torch.Tensor]:
    """A step of a model of four residual blocks, and batch normalization, after its first one."""
    several = accumulated(1)
    return lambda: several()[0]


def spectral() -> Callable[[], torch.Tensor]:
    """A step of a filter in the frequency domain, which reads conjugated and negated views, after its first."""
    torch.manual_seed(3)
    first, last = nn.Linear(6, 16), nn.Linear(16, 3)
    weights = nn.Parameter(torch.randn(9, dtype=torch.complex64))
    optimizer = torch.optim.SGD([*first.parameters(), weights, *last.parameters()], lr=0.05, momentum=0.9)
    x, target = torch.randn(5, 6), torch.randn(5, 3)

    def step() -> torch.Tensor:
        seen = torch.fft.rfft(first(x)) * weights
        turned = torch.fft.irfft(seen * seen.abs(), n=16) + seen.conj().imag.mean()
        loss = nn.functional.mse_loss(last(turned), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step()
    return step


def accumulated(passes: int) -> Callable[[], list[torch.Tensor]]:
    """A step of that model with as many forward and backward passes, after its first one, which has one pass."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 8), *(Block(8) for _ in range(4)), nn.BatchNorm1d(8), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, target = torch.randn(5, 6), torch.randn(5, 3)

    def step(count: int = passes) -> list[torch.Tensor]:
        losses = []
        for _ in range(count):
            loss = nn.functional.mse_loss(model(x), target)
            loss.backward()
            losses.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return losses

    step(1)
    return step


def placement(
    graph: Graph, ranks: int, micro_batches: int = 1, shards: tuple[Shard, ...] = (), launch: Launch = "eager"
) -> PlacedStep:
    """A pipeline of ``ranks`` stages of equal numbers of units, shards on one rank after the other."""
    schedule: ScheduleName = "1f1b" if micro_batches > 1 else "recorded"
    options = PlaceOptions(
        Grouping(depth=1), schedule=schedule, micro_batches=micro_batches, shards=shards, launch=launch
    )
    prepared = ready(graph, cluster(ranks), options)
    forward = [name for name in prepared.problem.names if name[0].isdigit()]
    place = [
        forward.index(name) * ranks // len(forward) if name in forward else ranks - 1 for name in prepared.problem.names
    ]
    for unit, name in enumerate(prepared.problem.names):
        if ".shard" in name:
            place[unit] = int(name[-1]) % ranks
    return placed(prepared, place)


def captured(step: Callable[[], Any]) -> Graph:
    return tensortide.capture(step)


class Seen(NamedTuple):
    """Record of one rank: the losses of each step, the bytes sent to each other rank, and its free sends."""

    losses: list[list[str]]
    sent_bytes: dict[int, int]
    free_sends: int


def run_lanes(found: PlacedStep) -> list[Seen]:
    """Run the lanes of a placed ``residual`` step, each in a process of its own."""
    made = found.ready
    lanes = run_ranks(
        partial(_run_lane, made.graph, found.plan, {**made.sharded.pieces}), len(found.plan.lanes), threads=1
    )
    return [Seen(*lane) for lane in lanes]


def _run_lane(graph: Graph, plan: Plan, pieces: Any, rank: int) -> tuple[Any, ...]:
    program = LaneProgram(residual(), graph, plan, rank, pieces)
    losses = [[first(value) for value in program().values()] for _ in range(STEPS)]
    return losses, dict(program.sent_bytes), program.free_sends


def with_shards(found: PlacedStep) -> PlacedStep:
    """``found`` as if a module were in shards, so that its losses may differ by the tolerance."""
    sharded = found.ready.sharded._replace(
        modules=(ShardedModule("0", "output", "mm", (1, 1), ("0.shard0", "0.shard1")),)
    )
    return dataclasses.replace(found, ready=dataclasses.replace(found.ready, sharded=sharded))
