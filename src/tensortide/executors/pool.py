"""Workers that take tasks, as the executor sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Ended(NamedTuple):
    """The end of the task of item ``place``: its result, its error, or its worker ``lost``."""

    place: int
    result: Any = None
    error: Exception | None = None
    lost: bool = False


class Pool(Protocol):
    """Workers, ``size`` at most, that call one function."""

    @property
    def size(self) -> int:
        """Tasks at a time."""

    def submit(self, place: int, item: Any) -> None:
        """Begin the task of ``item``, whose number is ``place``; there are fewer than ``size``."""

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        """Wait until tasks have ended, at most ``timeout_s``; return each once."""

    def close(self) -> None:
        """End what still runs, as far as it can be ended."""
