"""Steps that ranks of a placed run build, each for itself, and what a rank does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import tensortide
from tensortide.graph import Graph
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Grouping, PlacedStep, PlaceOptions, placed, ready
from tensortide.placements.graphs.schedules import ScheduleName
from tensortide.run.placed.lane import LaneProgram
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


def placement(graph: Graph, ranks: int, micro_batches: int = 1, shards: tuple[Shard, ...] = ()) -> PlacedStep:
    """A pipeline of ``ranks`` stages of equal numbers of units, shards on one rank after the other."""
    schedule: ScheduleName = "1f1b" if micro_batches > 1 else "recorded"
    options = PlaceOptions(Grouping(depth=1), schedule=schedule, micro_batches=micro_batches, shards=shards)
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


def run_rank(rank: int, ranks: int, folder: str, micro_batches: int, shards: tuple[Shard, ...] = ()) -> None:
    """Run the lane of one rank, and write what it saw into ``folder``."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    step = residual()
    found = placement(captured(step), ranks, micro_batches, shards)
    program = LaneProgram(step, found.ready.graph, found.plan, rank, found.ready.sharded.pieces)
    losses = [[first(value) for value in program().values()] for _ in range(STEPS)]
    dist.barrier()
    dist.destroy_process_group()
    seen = {
        "losses": losses,
        "sent": {str(lane): nbytes for lane, nbytes in program.sent_bytes.items()},
        "free": program.free_sends,
        "spans": len(program.spans),
    }
    Path(folder, f"rank{rank}.json").write_text(json.dumps(seen))
