"""Steps that plans are followed in, the plans of what ran, and the budgets between."""

from __future__ import annotations

import functools
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import tensortide
from tensortide.examples import find
from tensortide.graph import Graph
from tensortide.plans import Compute, Plan
from tensortide.run.budget import Budget
from tests.examples.tiny import TINY
from tests.run.same import UNLIMITED, counting, identical, state

Build = Callable[[], Callable[[], Any]]


def tower(length: int = 6) -> Callable[[], Any]:
    """A step whose forward takes much and whose updates take little."""
    layers: list[nn.Module] = [nn.Linear(8, 64)]
    for _ in range(length):
        layers += [nn.Tanh(), nn.Dropout(0.25), nn.Linear(64, 64)]
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    update = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(256, 8)

    def step() -> Any:
        loss = model(x).square().mean()
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def convolutions() -> Callable[[], Any]:
    """A step whose kernels take more than they return."""
    layers = [layer for _ in range(5) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.Sigmoid())]
    model, x = nn.Sequential(*layers), torch.randn(4, 8, 32, 32)

    def step() -> Any:
        model(x).square().mean().backward()
        model.zero_grad()

    return step


def loop(length: int = 24) -> Callable[[], Any]:
    """A step that uses one weight again and again: its gradient is a long sum."""
    weight = nn.Parameter(torch.randn(64, 64) / 8)
    update = torch.optim.SGD([weight], lr=0.01)
    x = torch.randn(16, 64)

    def step() -> Any:
        state = x
        for _ in range(length):
            state = (state @ weight).tanh()
        loss = state.square().mean()
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def example(name: str, **settings: int) -> Build:
    workload = find(name).load()
    return lambda: workload(**{**TINY[name], "batch": 12, **settings})


gpt2 = example("gpt2", layers=1)


def built(build: Build, warm: int = 1) -> Callable[[], Any]:
    gc.collect()
    torch.manual_seed(0)
    step = build()
    for _ in range(warm):
        step()
    gc.collect()
    return step


@functools.cache
def graph_of(build: Build) -> Graph:
    return tensortide.capture(built(build))


def traced(step: Callable[[], Any], limit: int, graph: Graph, **options: Any) -> Budget:
    """Three steps under ``limit``."""
    budget = Budget(limit, graph=graph, clock=counting(), **options)
    with budget:
        for _ in range(3):
            step()
    return budget


@functools.cache
def need(build: Build) -> int:
    """Bytes that a step takes beyond what is there at its start."""
    free = traced(built(build), UNLIMITED, graph_of(build)).steps[-1]
    return free.peak_bytes - free.before_bytes


def room(build: Build, share: float) -> int:
    """A limit that leaves ``share`` of what a step needs beyond what is there now."""
    gc.collect()
    with Budget(UNLIMITED) as probe:
        before = probe.resident_bytes
    with torch.random.fork_rng():
        return before + int(need(build) * share)


def between(plan: Plan) -> list[Counter[str]]:
    """What ``plan`` does before the first run of each op, and after the last."""
    found, seen = [Counter[str]()], set()
    for step in plan.lanes[0].steps:
        if isinstance(step, Compute) and step.op not in seen:
            seen.add(step.op)
            found.append(Counter())
        else:
            found[-1][str(step)] += 1
    return found


def same_as_without(build: Build, step: Callable[[], Any], steps: int) -> bool:
    """Whether ``step`` has left behind what ``steps`` ordinary ones do."""
    got, generator = list(state(step)), torch.get_rng_state()
    want = built(build, steps)
    return all(map(identical, got, state(want))) and torch.equal(generator, torch.get_rng_state())
