"""Memory of a step whose gradients are accumulated over several micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tensortide.graph.model import Graph
from tensortide.parallelism.gradients import gradients
from tensortide.timelines import timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray


def gradient_bytes(graph: Graph) -> int:
    """Bytes of the gradients that the backward pass of ``graph`` allocates and the update reads: those of one rank, as
    it keeps them from one micro-batch to the next."""
    return sum(int(graph.storages[storage].nbytes) for storage in _completed(graph))


def resident_bytes(graph: Graph, micro_batches: int = 1) -> NDArray[np.int64]:
    """Bytes resident during each op of a rank's Graph, which is of one of ``micro_batches``.

    From the second on all gradients are resident from the start. A gradient of the micro-batch is resident beside the
    accumulated one until it is complete and added to it.
    """
    line = timeline(graph)
    found: NDArray[np.int64] = line.resident.copy()
    if micro_batches > 1:
        for storage, complete in _completed(graph).items():
            if graph.storages[storage].device == line.device:
                found[: complete + 1] += int(graph.storages[storage].nbytes)
    return found


def _completed(graph: Graph) -> dict[int, int]:
    """The storages of gradients that the backward pass allocates, each with the op of that pass that last writes it."""
    return {each.storage: each.ready for each in gradients(graph) if graph.storages[each.storage].birth is not None}
