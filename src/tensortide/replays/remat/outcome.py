"""Outcome of a run under a budget, and its trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Small: TypeAlias = NDArray[np.signedinteger[Any]]

Deallocation: TypeAlias = Literal["eager", "none", "banish", "ignore"]
Status: TypeAlias = Literal["ok", "oom", "thrash"]
UNLIMITED = 1 << 62


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules that a step is played by: ``clock_ns`` at its start; ``collect``: free what nothing can need any more;
    ``overrun_bytes``: as far over the budget what ops take only while they run may go at once, and farther where
    nothing is left to evict; None: not at all. For the rest see ``simulator.Simulator``."""

    budget_bytes: int = UNLIMITED
    remat_limit_ns: int = UNLIMITED
    deallocation: Deallocation = "eager"
    clock_ns: int = 0
    collect: bool = True
    exhaustive: bool = False
    overrun_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Shortage:
    """Reason an op could not run: bytes it asks for, bytes resident that cannot be evicted, and the budget."""

    asked_bytes: int
    held_bytes: int
    budget_bytes: int


class Failed(Exception):
    """The run ended early."""

    status: Status
    shortage: Shortage | None = None


class OutOfMemory(Failed):
    """Nothing is left to evict."""

    status = "oom"

    def __init__(self, asked: int, held: int, budget: int) -> None:
        super().__init__()
        self.shortage = Shortage(asked, held, budget)


class Thrashing(Failed):
    """Recomputation exceeded the allowed time."""

    status = "thrash"


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """Figures of a run, and its trace: ``kinds`` with an op, value or storage of the Schedule each in ``indexes``.

    ``status``: ``ok``; ``oom``: an op did not fit and nothing was left to evict; ``thrash``: the limit was exceeded.
    ``clock_ns`` is the time of the whole run, ``remat_ns`` that of recomputation. ``shortage``, of a run out of memory:
    the bytes asked for, and those that could not be evicted.
    """

    status: Status
    clock_ns: int
    remat_ns: int
    peak_bytes: int
    final_bytes: int
    evaluations: int
    accesses: int
    shortage: Shortage | None
    kinds: Sequence[int] | Small = field(repr=False)
    indexes: Sequence[int] | Small = field(repr=False)
