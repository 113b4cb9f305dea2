"""The batch that a step makes itself, computed whole in the process of a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tensortide.graph.model import Graph
from tensortide.recorder.execute import function
from tensortide.run.placed.live_storages import LiveStorages, given_tensors


class MadeBatch:
    """The batch of the next step of ``graph``, the step of a rank: a call returns its tensors by ``storages`` of the
    graph.

    ``making`` has the ops of ``step`` that make the whole batch; None if none do. Every rank draws the numbers that one
    process draws, as nothing else of the step draws any.
    """

    def __init__(self, making: Graph | None, graph: Graph, step: Callable[[], Any]) -> None:
        names = {} if making is None else {entry.name: entry.tensor for entry in making.named}
        made = {t for op in making.ops for t in op.outputs} if making is not None else set()
        self.storages = {
            number: names[storage.name]
            for number, storage in enumerate(graph.storages)
            if storage.birth is None and names.get(storage.name) in made
        }
        self._making = making if self.storages else None
        self._given = {} if self._making is None else given_tensors(self._making, step)

    def __call__(self) -> dict[int, torch.Tensor]:
        if self._making is None:
            return {}
        memory = LiveStorages(self._making)
        for storage, tensor in self._given.items():
            memory.put(storage, tensor.untyped_storage())
        for view in self._making:
            memory.run(view, function(view.call))
        return {storage: memory.view(tensor) for storage, tensor in self.storages.items()}
