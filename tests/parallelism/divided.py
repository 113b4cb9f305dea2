"""A step divided by degrees and executed in one process beside the whole one."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tensortide.graph import Graph, Named, Role, validate
from tensortide.graph.communication import group_of, moves_data
from tensortide.parallelism.degrees import Degrees
from tensortide.parallelism.divided_step import Coordinates
from tensortide.parallelism.pipeline import pipelined
from tensortide.parallelism.rank_step import exchanging, rank_step
from tensortide.parallelism.shared import Shared
from tensortide.parallelism.tied import tied_stages
from tests.parallelism.lockstep import Rank, World, drawn, shard

BUCKET = 8192


class Divided:
    """Every rank of a divided step, executed with collectives that combine what the ranks compute.

    ``given`` replaces the drawn values of named tensors.
    """

    def __init__(
        self,
        graph: Graph,
        given: dict[str, torch.Tensor] | None = None,
        degrees: Degrees | None = None,
        /,
        **sizes: Any,
    ) -> None:
        self.graph, self.degrees = graph, degrees or Degrees(**sizes)
        d = self.degrees
        values = drawn(graph)
        for entry in graph.named:
            if given and entry.name in given:
                values[graph.tensors[entry.tensor].storage] = (entry.tensor, given[entry.name])
        self.whole = Rank(graph, values)
        before = {(e.name, e.role): self.whole.tensor(e.tensor).clone() for e in graph.named if self.exists(graph, e)}
        World([self.whole]).run()
        self.coordinates = [
            (s, Coordinates(i, c, t, further=frozenset(zip([name for name, _ in d.further], f, strict=True))))
            for s in range(d.pipeline)
            for i in range(d.data)
            for c in range(d.context)
            for f in itertools.product(*(range(size) for _, size in d.further))
            for t in range(d.tensor)
        ]
        shared = Shared()
        every = dict.fromkeys(c for _, c in self.coordinates)
        self.steps = {each: rank_step(graph, d, each, shared=shared) for each in every}
        self.ranks = [self.rank(stage, coordinates, before) for stage, coordinates in self.coordinates]
        names = d.groups(0)
        groups = {name: [d.groups(rank)[name] for rank in range(d.devices)] for name in names}
        for name in {group_of(op) for rank in self.ranks for op in rank.graph if moves_data(op.name)} - groups.keys():
            groups[name] = [d.across(rank, tied_stages(name)) for rank in range(d.devices)]
        self.play(groups)

    def play(self, groups: Mapping[str, Sequence[Sequence[int]]]) -> None:
        """Execute the Graphs of all ranks."""
        World(self.ranks, groups).run()

    @staticmethod
    def exists(graph: Graph, entry: Named) -> bool:
        storage = graph.storages[graph.tensors[entry.tensor].storage]
        return storage.birth is None and storage.death is None

    def rank(self, stage: int, coordinates: Coordinates, given: dict[Any, torch.Tensor]) -> Rank:
        d, step = self.degrees, self.steps[coordinates]
        graph = pipelined(step.graph, d.pipeline).graphs[stage] if d.pipeline > 1 else step.graph
        replica = coordinates.data * d.context + coordinates.context
        graph = exchanging(graph, d, step.experts, BUCKET, replica)
        validate(graph)
        values = {}
        for entry in graph.named:
            if self.exists(graph, entry):
                storage = graph.tensors[entry.tensor].storage
                size = graph.tensors[entry.tensor].shape
                values[storage] = (entry.tensor, self.part(entry, given[entry.name, entry.role], coordinates, size))
        return Rank(graph, values)

    def part(self, entry: Named, full: torch.Tensor, coordinates: Coordinates, shape: tuple[int, ...]) -> torch.Tensor:
        """What the rank at ``coordinates`` has of the values of a named tensor."""
        d = self.degrees
        replica = coordinates.data * d.context + coordinates.context
        index = {
            "data": coordinates.data,
            "tensor": coordinates.tensor,
            "tensor_within": coordinates.tensor % (d.kv_group or 1),
            "tensor_across": coordinates.tensor // (d.kv_group or 1),
            "context": coordinates.context,
            "expert": replica % d.expert,
            **dict(coordinates.further),
        }
        for division in self.steps[coordinates].divisions:
            named = division.analysis.graph.named
            number = {(e.name, e.role): e.tensor for e in named}[entry.name, entry.role]
            rank, parts = index[division.group], division.parts
            if division.group == "context" and d.keys == "zigzag" and (dims := division.dims(number)):
                pair = (rank, 2 * parts - 1 - rank)
                found = [shard(full, division.analysis, number, division.chosen, n, 2 * parts) for n in pair]
                full = torch.cat(found, dims[0])
            else:
                full = shard(full, division.analysis, number, division.chosen, rank, parts)
        if tuple(full.shape) != tuple(shape):  # a flat part, among the ranks that have the same parameter
            of_experts = any(
                entry.name == name or entry.name.startswith(f"{name}.") for name in self.steps[coordinates].experts
            )
            at = replica // d.expert if of_experts else replica % d.shards
            full = full.reshape(-1)[at * shape[0] : (at + 1) * shape[0]]
        return full

    def assert_equal(self, rtol: float = 1e-3) -> None:
        """Compare every named tensor that outlives the step on every rank."""
        whole = {(e.name, e.role): e.tensor for e in self.graph.named}
        compared = set()
        for (_, coordinates), rank in zip(self.coordinates, self.ranks, strict=True):
            for entry in rank.graph.named:
                storage = rank.graph.storages[rank.graph.tensors[entry.tensor].storage]
                updated = entry.role in (Role.PARAMETER, Role.OPTIMIZER_STATE) or (
                    entry.role is Role.GRADIENT and storage.birth is not None and self.degrees.zero != 1
                )
                if updated and storage.death is None:
                    got = rank.tensor(entry.tensor)
                    want = self.part(
                        entry, self.whole.tensor(whole[entry.name, entry.role]), coordinates, tuple(got.shape)
                    )
                    scale = float(want.double().abs().max()) if want.numel() else 0.0
                    torch.testing.assert_close(got, want, rtol=rtol, atol=rtol / 10 * scale + rtol * 1e-4)
                    compared.add((entry.name, entry.role))
        assert {(e.name, e.role) for e in self.graph.named if e.role is Role.PARAMETER} <= compared
