"""How long each storage lives, whatever the order of the ops: the rule that plans, bounds and replays share."""

from __future__ import annotations

import enum

from tensortide.graph.model import Graph, Phase, Role


class Life(enum.Enum):
    """From when to when a storage is resident.

    ``ALWAYS``: it exists before the step and is resident throughout: parameters, buffers, optimizer state, fed inputs.
    ``KEPT``: from the op that allocates it to the end; the step leaves it behind.
    ``LOCAL``: from the op that allocates it to the last op that touches it through any view.
    ``NEVER``: a gradient of the step before that no op touches; it only waits for ``zero_grad``.
    """

    ALWAYS = "always"
    KEPT = "kept"
    LOCAL = "local"
    NEVER = "never"


def users(graph: Graph) -> list[list[int]]:
    """For each storage the ops that allocate it or touch it through any tensor, ascending."""
    owner = [tensor.storage for tensor in graph.tensors]
    found: list[list[int]] = [[] for _ in graph.storages]
    allocated: list[list[int]] = [[] for _ in graph.ops]
    for index, storage in enumerate(graph.storages):
        if storage.birth is not None:
            allocated[storage.birth].append(index)
    for index, op in enumerate(graph.ops):
        for touched in {*allocated[index], *(owner[tensor] for tensor in (*op.inputs, *op.outputs))}:
            found[touched].append(index)
    return found


def lives(graph: Graph, touched: list[list[int]]) -> list[Life]:
    """The life of each storage of ``graph``; ``touched`` are its ``users``.

    A gradient that outlives the recorded step is kept unless the optimizer has read it: then it only waits for the next
    ``zero_grad``, and is local.
    """
    found: list[Life] = []
    for storage, ops in zip(graph.storages, touched, strict=True):
        gradient = storage.role is Role.GRADIENT
        if storage.birth is None:
            found.append(Life.NEVER if gradient and not ops else Life.ALWAYS)
        elif storage.death is not None or (gradient and any(graph.ops[i].phase is Phase.OPTIMIZER for i in ops)):
            found.append(Life.LOCAL)
        else:
            found.append(Life.KEPT)
    return found
