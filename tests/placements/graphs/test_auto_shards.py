"""Modules to divide that are found by short searches: never worse, and within memory where nothing else is."""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import nn

import tensortide
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import PlaceOptions, place
from tensortide.placements.graphs.auto_shards import auto_shards
from tensortide.timing.links import Link
from tests.placements.graphs.steps import BRIEF, cluster

FAST = Link("fast", Fraction(600 * 10**9), 1_000)


def test_what_is_kept_lowers_the_step_and_every_try_is_told() -> None:
    model = nn.Sequential(nn.Sequential(nn.Linear(1024, 8192), nn.Tanh(), nn.Linear(8192, 1024)))
    graph = tensortide.capture(model, torch.randn(8192, 1024), loss="sum", optimizer="sgd")
    machine = cluster(2, FAST)
    found = auto_shards(graph, machine, PlaceOptions(), by=BRIEF, budget=8)
    assert found.shards
    assert "0" in {shard.module for each in found.tried for shard in each.shards}
    last = [each for each in found.tried if each.kept][-1]
    assert set(last.shards) <= set(found.shards)
    steps = [each.step_ns for each in found.tried if each.kept]
    assert steps == sorted((ns for ns in steps if ns is not None), reverse=True)
    shares = [each.work_share for each in found.tried]
    assert shares == sorted(shares, reverse=True)
    whole, divided = (
        place(graph, machine, PlaceOptions(shards=shards), by=BRIEF, budget=8).step_ns for shards in ((), found.shards)
    )
    assert divided < whole
    assert divided == steps[-1]


def test_a_module_that_no_device_can_hold_is_divided() -> None:
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 2048))
    graph = tensortide.capture(model, torch.randn(2, 512), loss="sum", optimizer="sgd", real=True)
    small = cluster(3, capacity_bytes=6 << 20)
    assert not place(graph, small, by=BRIEF, budget=8).fits
    found = auto_shards(graph, small, PlaceOptions(), by=BRIEF, budget=8)
    assert place(graph, small, PlaceOptions(shards=found.shards), by=BRIEF, budget=8).fits


def test_given_shards_are_kept_and_one_device_has_nothing_to_divide() -> None:
    graph = tensortide.capture(nn.Linear(8, 8), torch.randn(4, 8), loss="sum", real=True)
    given = PlaceOptions(shards=(Shard("(root)", "batch", 2),))
    found = auto_shards(graph, cluster(1), given)
    assert found.shards == given.shards
    assert found.tried == ()
