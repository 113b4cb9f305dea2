"""All replicas of a step in one process: the order in which gradients are averaged, as it is documented."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from tensortide.graph.communication import moves_data
from tensortide.graph.model import Graph, Role
from tensortide.recorder.execute import function
from tensortide.run.placed.exchange import combined, reduction
from tensortide.run.placed.live_storages import LiveStorages, given_tensors, part_of
from tensortide.run.placed.means import local_means


class ReplicasInOrder:
    """Call it to run one step of all replicas, op by op, each op on one replica after the other.

    Each of ``steps`` is the user's, built anew: replica i has the tensors of the i-th, and part i of its inputs.
    ``graph`` is the step of one replica. Every gradient becomes the mean over the replicas, added up in ascending
    order: ((r0 + r1) + r2 + ...) / n. A call returns the outputs of each replica, by storage.
    """

    def __init__(self, steps: Sequence[Callable[[], Any]], graph: Graph) -> None:
        self.graph = local_means(graph, len(steps))
        self._given = []
        for replica, step in enumerate(steps):
            given = given_tensors(graph, step)
            for storage, held in enumerate(graph.storages):
                if held.role is Role.INPUT and storage in given:
                    given[storage] = part_of(graph, storage, given[storage], replica)
            self._given.append(given)
        self._functions = [None if moves_data(call.op) else function(call) for call in self.graph.calls]
        self._outputs = [s for s, held in enumerate(graph.storages) if held.role is Role.OUTPUT]
        self._views = {graph.tensors[t].storage: t for op in graph.ops for t in op.outputs}

    @torch.no_grad()
    def __call__(self) -> list[dict[int, torch.Tensor]]:
        replicas = []
        for given in self._given:
            storages = LiveStorages(self.graph)
            for storage, tensor in given.items():
                storages.put(storage, tensor.untyped_storage())
            replicas.append(storages)
        for view in self.graph:
            run = self._functions[view.op.call]
            if run is None:
                self._average(view.index, replicas)
                continue
            for storages, given in zip(replicas, self._given, strict=True):
                for storage in self.graph.index.released[view.index]:
                    if storage not in given and storage not in self._outputs:
                        storages.drop(storage)
                storages.run(view, run)
        return [{s: storages.view(self._views[s]).clone() for s in self._outputs} for storages in replicas]

    def _average(self, op: int, replicas: Sequence[LiveStorages]) -> None:
        for number in self.graph.ops[op].inputs:
            parts = [storages.view(number) for storages in replicas]
            mean = combined(parts, reduction(self.graph[op].call))
            for part in parts:
                part.copy_(mean)
