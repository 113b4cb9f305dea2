"""Pins and divided modules that rule out a device map or split points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import PlanError
from tensortide.parallelism.shards import Shard
from tensortide.placements.graphs import Grouping, PlaceOptions, Ready, placed, ready
from tensortide.placements.graphs.exports import (
    check_map_pins,
    check_point_pins,
    device_map,
    split_points,
)
from tensortide.timing.catalogue import Device, device
from tensortide.timing.clusters import joined
from tests.placements.graphs.steps import GPU, captured, cluster


class Scales(nn.Module):
    """Two buffers of one module, and one that no step uses."""

    first: torch.Tensor
    second: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("first", "second", "unused"):
            self.register_buffer(name, torch.ones(8))


class Scaled(nn.Module):
    """Layers, each before a buffer of ``Scales``."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scales = Scales()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.body(x) * self.scales.first) * self.scales.second
        return result


def scaled(**pins: str) -> Ready:
    graph = tensortide.capture(Scaled(), torch.ones(4, 8), loss="sum", optimizer="sgd", real=True)
    return ready(graph, cluster(2), PlaceOptions(Grouping(), pins=pins))


def test_a_module_on_two_devices_is_refused_by_what_it_holds_with_the_option_that_helps() -> None:
    prepared = scaled()
    step = prepared.problem.step
    home = {held.name: step.units.names[step.units.home[s]] for s, held in enumerate(step.graph.storages) if held.name}
    first, second = home["scales.first"], home["scales.second"]
    assert first != second
    assert home["scales.unused"] in (first, second)
    apart = placed(prepared, [int(name == second) for name in prepared.problem.names])
    message = r"^buffers of module 'scales' are on gpu\d and gpu\d, .*: make it one unit \(--prefix scales\)$"
    with pytest.raises(PlanError, match=message):
        device_map(apart.simulated)


def test_what_is_pinned_rules_files_out_before_any_search() -> None:
    graph = captured("gpt2")

    def pinned(*devices: Device, **pins: str) -> Ready:
        named = {"blocks.0": pins.get("first", "gpu0"), "blocks.1": pins.get("second", "gpu1")}
        rest = {"tokens": tokens} if (tokens := pins.get("tokens")) else {}
        machine = joined([*devices], cluster(2).channels[0].link) if devices else cluster(2)
        return ready(graph, machine, PlaceOptions(Grouping(depth=2), pins={**named, **rest}))

    free = pinned()
    check_map_pins(free)
    check_point_pins(free)
    check_map_pins(pinned(tokens="gpu1"))
    with pytest.raises(PlanError, match=r"a device has several stages .*: pin otherwise \(--pin\)$"):
        check_point_pins(pinned(tokens="gpu1"))  # tokens, blocks.0, blocks.1: two stages of gpu1
    host = device("Intel i9-13900K")
    cpu = joined([host, GPU], cluster(2).channels[0].link).devices[0].name
    fast = joined([host, GPU], cluster(2).channels[0].link).devices[1].name
    with pytest.raises(PlanError, match=r"modules are on .* and on other devices.*: pin otherwise \(--pin\)$"):
        check_map_pins(pinned(host, GPU, first=cpu, second=fast))
    scales = {"scales.first": "gpu0", "scales.second": "gpu1"}
    step = scaled().problem.step
    units = {s.name: step.units.names[step.units.home[n]] for n, s in enumerate(step.graph.storages)}
    with pytest.raises(PlanError, match=r"buffers of module 'scales' .*: pin otherwise \(--pin\)$"):
        check_map_pins(scaled(**{units[name]: gpu for name, gpu in scales.items()}))
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    shards = tensortide.capture(model, torch.ones(4, 8), loss="sum", optimizer="sgd", real=True)
    pins = {"2.shard0": "gpu0", "2.shard1": "gpu1"}
    divided = ready(shards, cluster(2), PlaceOptions(shards=(Shard.parse("2=output:2"),), pins=pins))
    for check in (check_map_pins, check_point_pins):
        with pytest.raises(PlanError, match=r"in shards on 2 devices, .*: pin otherwise \(--pin\)$"):
            check(divided)


class Residual(nn.Module):
    """A block whose sum belongs to the module itself, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.after = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.after(x + self.first(x))
        return result


class Blocks(nn.Module):
    """Two blocks, of which the second has a sum inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.block = nn.Linear(8, 8), Residual()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.block(self.inner(x))
        return result


def refusal(check: Callable[[Any], object], of: Any) -> str:
    """What the error says before its advice; empty if there is none."""
    try:
        check(of)
    except PlanError as error:
        return str(error).rpartition(": ")[0]
    return ""


def test_pins_rule_out_what_no_placement_that_has_them_can_export() -> None:
    """All pins of all units, against the exports of every placement that agrees with them."""
    graph = tensortide.capture(Blocks(), torch.ones(4, 8), loss="sum", optimizer="sgd", real=True)
    prepared = ready(graph, cluster(2), PlaceOptions(Grouping()))
    free = prepared.problem
    inside = [number for number, name in enumerate(free.names) if "outside" not in name]
    places = [[*place] for place in product((0, 1), repeat=len(inside))]

    def full(place: Sequence[int]) -> list[int]:
        return [place[inside.index(unit)] if unit in inside else 0 for unit in range(len(free.names))]

    for check, export in ((check_map_pins, device_map), (check_point_pins, split_points)):
        said = {(*place,): refusal(export, placed(prepared, full(place)).simulated) for place in places}
        assert "" in said.values()
        ruled_out = set()
        for pins in product((0, 1, None), repeat=len(inside)):
            known = {unit: device for unit, device in zip(inside, pins, strict=True) if device is not None}
            with mock.patch.object(free, "pins", known):
                found = refusal(check, prepared)
            agree = [said[place] for place in said if all(p in (None, d) for p, d in zip(pins, place, strict=True))]
            assert not found or all(agree), pins
            if None not in pins:
                assert [found] == agree, pins
            ruled_out |= {found.partition(" at op")[0]} if None in pins else set()
        assert len(ruled_out) > 2
