"""Lifetimes of storages: two rules, and the one classification behind them.

A step repeats: what it leaves behind, the next step finds. Under either rule a storage is resident from the op that
allocates it, or from the start of the step. The rules differ in when it is released:

- ``eager``: when the recorded step released it.
- ``last_use``: right after the last op that touches it through any view, as a compiler could, unless the step leaves it
  behind. Whatever outlives the recorded step is left behind and stays to its end: outputs, state that the next step
  reads, and gradients that no op of the optimizer uses, which are then what the step is for. The exception is a
  gradient that is dead on arrival in the next step: an op of the optimizer has used it, and it only waits for the next
  ``zero_grad``. It is released after its last use. (A step that uses the gradient it finds under the same name keeps
  the one it makes, since the next step will use that.)

The rule ``last_use`` does not depend on the order of the ops, so plans, bounds and replays follow it too: a Plan that
runs the ops as recorded and says no more has the residents of ``lifetimes(graph, "last_use")``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from tensortide.errors import GraphError
from tensortide.graph.model import Graph, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]

Rule: TypeAlias = Literal["eager", "last_use"]


class Residence(enum.Enum):
    """Residence of a storage under ``last_use``, in any order of the ops.

    ``ALWAYS``: throughout; it exists before the step and after it. Parameters, buffers, optimizer state, inputs that
    the caller keeps, gradients that are accumulated into. These are the *persistent* storages, under either rule.
    ``KEPT``: from the op that allocates it to the end; the step leaves it behind.
    ``LOCAL``: from the op that allocates it, or from the start of the step, to the last op that touches it.
    ``NEVER``: not during any op; it exists before the step, which releases it and does not touch it: a gradient of the
    step before that only waits for ``zero_grad``. It counts in the footprint, as every storage does.
    """

    ALWAYS = "always"
    KEPT = "kept"
    LOCAL = "local"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The storages of a graph as arrays, one entry each: resident during the ops ``births <= op < deaths``.

    A birth of -1 is before the step, a death of ``len(graph) + 1`` after it.
    """

    births: Ints
    deaths: Ints
    nbytes: Ints


def lifetimes(graph: Graph, rule: Rule = "eager") -> Lifetimes:
    """The lifetime of every storage of ``graph`` under ``rule``; see the module for the rules.

    Raises GraphError for another rule, or a graph with loops.
    """
    if rule not in ("eager", "last_use"):
        raise GraphError(f"lifetimes are 'eager' or 'last_use', not {rule!r}")
    require_straight(graph)
    storages, after = graph.storages, len(graph) + 1
    deaths = [after if s.death is None else s.death for s in storages]
    if rule == "last_use":
        for index, (residence, users) in enumerate(zip(residences(graph), graph.index.users, strict=True)):
            if residence is Residence.LOCAL:
                deaths[index] = users[-1] + 1
            elif residence is Residence.NEVER:
                deaths[index] = 0
    return Lifetimes(
        births=_array(-1 if s.birth is None else s.birth for s in storages),
        deaths=_array(deaths),
        nbytes=_array(s.nbytes for s in storages),
    )


def residences(graph: Graph) -> tuple[Residence, ...]:
    """The Residence of every storage of ``graph``, which may have loops."""
    users = graph.index.users
    carried, found = set(), []
    for storage, ops in zip(graph.storages, users, strict=True):
        if storage.role.row.renewed and storage.birth is None and storage.name and ops:
            carried.add(storage.name)
    for storage, ops in zip(graph.storages, users, strict=True):
        if storage.birth is None and storage.death is None:
            found.append(Residence.ALWAYS)
        elif storage.death is not None:
            found.append(Residence.LOCAL if ops else Residence.NEVER)
        else:
            waits = storage.role.row.renewed and storage.name not in carried
            used = waits and any(graph.ops[op].phase is Phase.OPTIMIZER for op in ops[1:])
            found.append(Residence.LOCAL if used else Residence.KEPT)
    return tuple(found)


def require_straight(graph: Graph) -> None:
    """Raise GraphError if ``graph`` has loops: it holds their bodies once, but what is resident changes with every
    iteration, as values are kept for later ones."""
    if graph.loops:
        raise GraphError(
            f"memory over time is undefined for a graph with loops ({graph.loops[0].name}, ...): it has their bodies "
            "once, and what they keep grows every iteration. Write them out first: tensortide.graph.unrolled(graph)."
        )


def _array(values: Iterable[int]) -> Ints:
    import numpy as np

    return np.fromiter(values, np.int64)


def footprint_bytes(graph: Graph) -> int:
    """Bytes of all distinct storages of one step, on all devices: views and results in place add nothing.

    A storage that a loop's body allocates counts once per iteration; one that the body updates in place was allocated
    outside of it and counts once.
    """
    return sum(storage.nbytes * copies for storage, copies in zip(graph.storages, graph.index.copies, strict=True))
