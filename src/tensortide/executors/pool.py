"""The interface of pools of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Ended(NamedTuple):
    """A ``task`` that has ended, by the index of its item: its result, its error, or ``lost`` if its worker died."""

    task: int
    result: Any = None
    error: Exception | None = None
    lost: bool = False


class Pool(Protocol):
    """At most ``size`` workers, which call one function."""

    @property
    def size(self) -> int:
        """Tasks that can run at once."""

    def submit(self, index: int, item: Any) -> None:
        """Start a task for ``item``, the one at ``index``. Fewer than ``size`` tasks may be running."""

    def ended(self, timeout_s: float) -> Sequence[Ended]:
        """Wait at most ``timeout_s`` for tasks to end, and return those that have, each once."""

    def close(self) -> None:
        """Cancel the running tasks, as far as possible, and release the workers."""
