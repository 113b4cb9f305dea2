"""One step with durations, and which tensors the program holds on to when: what an online policy gets to see."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tensortide.graph.model import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]


class Event(enum.IntEnum):
    """Event of a recorded step (section 2.1 of the grammar of DTR logs).

    ``COMPUTE``: the op ``index`` runs; each of its outputs is then held once. ``GET``: the tensor ``index`` is held
    once more. ``RELEASE``: once less. ``PIN``: it must be resident from here on.
    """

    COMPUTE = 0
    GET = 1
    RELEASE = 2
    PIN = 3


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A Graph, the duration of each of its ops, and the events of the step in order.

    ``kinds`` (values of Event) and ``indexes`` (of ops for COMPUTE, else of tensors) run in parallel. ``source`` says
    where the durations come from. ``path`` is the file it was read from, if any.
    """

    graph: Graph
    durations_ns: tuple[int, ...]
    kinds: Ints
    indexes: Ints
    source: str = ""
    path: str = ""
