"""Graphs as flat arrays: who uses which storage when, and from which op to which each storage lives."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal, TypeAlias

from tensortide.errors import GraphError
from tensortide.graph.model import Graph, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

Lifetimes: TypeAlias = Literal["eager", "last_use"]


def require_straight(graph: Graph) -> None:
    """Raise GraphError if ``graph`` has loops: it holds their bodies once, but what is resident changes with every
    iteration, as values are kept for later ones."""
    if graph.loops:
        raise GraphError(
            f"memory over time is not told of a graph with loops ({graph.loops[0].name}, ...): it has their bodies "
            "once, and what they keep grows every iteration. Write them out first: tensortide.graph.unrolled(graph)."
        )


class Uses:
    """Every use of a tensor by an op, as parallel arrays in op order: ``op`` touches tensor ``tensor`` of
    storage ``storage``; ``read`` is True if it is an input."""

    __slots__ = ("op", "read", "storage", "tensor")

    def __init__(self, graph: Graph) -> None:
        import numpy as np

        ops = graph.ops
        index = np.arange(len(ops), dtype=np.int64)
        inputs, outputs = (
            np.repeat(index, _array(map(len, groups), len(ops)))
            for groups in ([o.inputs for o in ops], [o.outputs for o in ops])
        )
        flat_in = _array(chain.from_iterable(o.inputs for o in ops), len(inputs))
        flat_out = _array(chain.from_iterable(o.outputs for o in ops), len(outputs))
        op = np.concatenate([inputs, outputs])
        order = np.argsort(op, kind="stable")
        self.op: Ints = op[order]
        self.tensor: Ints = np.concatenate([flat_in, flat_out])[order]
        owner = _array((t.storage for t in graph.tensors), len(graph.tensors))
        self.storage: Ints = owner[self.tensor]
        self.read = order < len(inputs)


def _array(values: Iterable[int], count: int) -> Ints:
    import numpy as np

    return np.fromiter(values, np.int64, count)


class Spans:
    """From which op to which each storage of ``graph`` lives: ``births <= op < deaths``.

    -1 stands for a birth before the step, ``len(graph) + 1`` for a death after it. ``births == deaths``
    means never alive.
    """

    __slots__ = ("births", "deaths", "nbytes")

    def __init__(self, births: Ints, deaths: Ints, nbytes: Ints) -> None:
        self.births = births
        self.deaths = deaths
        self.nbytes = nbytes


def spans(graph: Graph, lifetimes: Lifetimes = "eager") -> Spans:
    """Life of every storage, as it happened (``eager``) or as short as its uses allow (``last_use``).

    Under ``last_use`` a storage that nobody outside the step owns is released right after the last op that reads
    or writes it through any view; one that no op touches after its birth lives for that op only. Parameters,
    buffers, optimizer state, inputs and outputs keep their real life, and so does whatever outlives the step.
    Gradients that merely wait for the next ``zero_grad`` are released after their last use.
    Raises GraphError for another value of ``lifetimes``.
    """
    require_straight(graph)
    count, after = len(graph.storages), len(graph) + 1
    births = _array((-1 if s.birth is None else s.birth for s in graph.storages), count)
    deaths = _array((after if s.death is None else s.death for s in graph.storages), count)
    nbytes = _array((s.nbytes for s in graph.storages), count)
    if lifetimes == "last_use":
        _shorten(graph, births, deaths)
    elif lifetimes != "eager":
        raise GraphError(f"lifetimes are 'eager' or 'last_use', not {lifetimes!r}")
    return Spans(births, deaths, nbytes)


def _shorten(graph: Graph, births: Ints, deaths: Ints) -> None:
    """Move each death that may move to right after the last use."""
    import numpy as np

    uses = Uses(graph)
    last = births.copy()
    np.maximum.at(last, uses.storage, uses.op)
    needed = _carried_gradients(graph, last)
    for i, storage in enumerate(graph.storages):
        if storage.role.row.owned:
            continue
        if storage.role is Role.GRADIENT:
            if storage.name in needed:
                continue
        elif storage.death is None:
            continue
        deaths[i] = min(deaths[i], last[i] + 1)


def _carried_gradients(graph: Graph, last: Ints) -> set[str]:
    """Names of gradients that a step starts from: it uses the storage it found, so the next step will too."""
    return {
        storage.name
        for i, storage in enumerate(graph.storages)
        if storage.role is Role.GRADIENT and storage.birth is None and last[i] >= 0
    }
