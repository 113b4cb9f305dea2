"""A step divided by degrees and executed in one process beside the whole one."""

from __future__ import annotations

from typing import Any

import torch

from tensortide.graph import Graph, Named, Role, validate
from tensortide.graph.collectives import moves_data
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.pipeline import pipelined
from tensortide.parallelism.rank_step import Coordinates, exchanging, rank_step
from tensortide.parallelism.ranks import group_of
from tensortide.parallelism.tied import tied_stages
from tests.parallelism.lockstep import Rank, World, drawn, shard

BUCKET = 8192


class Divided:
    """Every rank of a divided step, executed with collectives that combine what the ranks compute.

    ``given`` replaces the drawn values of named tensors.
    """

    def __init__(self, graph: Graph, given: dict[str, torch.Tensor] | None = None, /, **degrees: int) -> None:
        self.graph, self.degrees = graph, Degrees(**degrees)
        d = self.degrees
        values = drawn(graph)
        for entry in graph.named:
            if given and entry.name in given:
                values[graph.tensors[entry.tensor].storage] = (entry.tensor, given[entry.name])
        self.whole = Rank(graph, values)
        before = {(e.name, e.role): self.whole.tensor(e.tensor).clone() for e in graph.named if self.exists(graph, e)}
        World([self.whole]).run()
        self.places = [
            (s, Coordinates(i, c, t))
            for s in range(d.pipeline)
            for i in range(d.data)
            for c in range(d.context)
            for t in range(d.tensor)
        ]
        places = dict.fromkeys(place for _, place in self.places)
        self.steps = {place: rank_step(graph, d, place) for place in places}
        self.ranks = [self.rank(stage, place, before) for stage, place in self.places]
        names = d.groups(0)
        groups = {name: [d.groups(rank)[name] for rank in range(d.devices)] for name in names}
        for name in {group_of(op) for rank in self.ranks for op in rank.graph if moves_data(op.name)} - groups.keys():
            groups[name] = [d.across(rank, tied_stages(name)) for rank in range(d.devices)]
        World(self.ranks, groups).run()

    @staticmethod
    def exists(graph: Graph, entry: Named) -> bool:
        storage = graph.storages[graph.tensors[entry.tensor].storage]
        return storage.birth is None and storage.death is None

    def rank(self, stage: int, place: Coordinates, given: dict[Any, torch.Tensor]) -> Rank:
        d, step = self.degrees, self.steps[place]
        graph = pipelined(step.graph, d.pipeline).graphs[stage] if d.pipeline > 1 else step.graph
        replica = place.data * d.context + place.context
        graph = exchanging(graph, d, step.experts, BUCKET, replica)
        validate(graph)
        values = {}
        for entry in graph.named:
            if self.exists(graph, entry):
                storage = graph.tensors[entry.tensor].storage
                size = graph.tensors[entry.tensor].shape
                values[storage] = (entry.tensor, self.part(entry, given[entry.name, entry.role], place, size))
        return Rank(graph, values)

    def part(self, entry: Named, full: torch.Tensor, place: Coordinates, shape: tuple[int, ...]) -> torch.Tensor:
        """What the rank at ``place`` has of the values of a named tensor."""
        d = self.degrees
        replica = place.data * d.context + place.context
        index = {
            "data": place.data,
            "tensor": place.tensor,
            "tensor_within": place.tensor % (d.kv_group or 1),
            "tensor_across": place.tensor // (d.kv_group or 1),
            "context": place.context,
            "expert": replica % d.expert,
        }
        for division in self.steps[place].divisions:
            named = division.analysis.graph.named
            number = {(e.name, e.role): e.tensor for e in named}[entry.name, entry.role]
            rank = index[division.group]
            full = shard(full, division.analysis, number, division.chosen, rank, division.parts)
        if tuple(full.shape) != tuple(shape):  # a flat part, among the ranks that have the same parameter
            of_experts = any(
                entry.name == name or entry.name.startswith(f"{name}.") for name in self.steps[place].experts
            )
            at = replica // d.expert if of_experts else replica % d.shards
            full = full.reshape(-1)[at * shape[0] : (at + 1) * shape[0]]
        return full

    def assert_equal(self, rtol: float = 1e-3) -> None:
        """Compare every named tensor that outlives the step on every rank."""
        whole = {(e.name, e.role): e.tensor for e in self.graph.named}
        compared = set()
        for (_, place), rank in zip(self.places, self.ranks, strict=True):
            for entry in rank.graph.named:
                storage = rank.graph.storages[rank.graph.tensors[entry.tensor].storage]
                updated = entry.role in (Role.PARAMETER, Role.OPTIMIZER_STATE) or (
                    entry.role is Role.GRADIENT and storage.birth is not None and self.degrees.zero != 1
                )
                if updated and storage.death is None:
                    got = rank.tensor(entry.tensor)
                    want = self.part(entry, self.whole.tensor(whole[entry.name, entry.role]), place, tuple(got.shape))
                    scale = float(want.double().abs().max()) if want.numel() else 0.0
                    torch.testing.assert_close(got, want, rtol=rtol, atol=rtol / 10 * scale + rtol * 1e-4)
                    compared.add((entry.name, entry.role))
        assert {(e.name, e.role) for e in self.graph.named if e.role is Role.PARAMETER} <= compared
