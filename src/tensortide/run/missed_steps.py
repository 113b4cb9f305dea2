"""Steps that end without having been recognised at their start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tensortide.graph.model import Graph
    from tensortide.run.step_match import Expected, Seen


class MissedSteps:
    """Counts, outside of recognised steps, the ops that update the program's state last in a step of ``graph``: those
    like the last ``expected`` op that writes what outlasts the step. Passes that only evaluate have no such ops."""

    def __init__(self, graph: Graph, expected: Sequence[Expected]) -> None:
        lasting = {i for i, s in enumerate(graph.storages) if s.birth is None and s.death is None}
        updates = [(op.name, op.forms) for op in expected if lasting.intersection(op.writes)]
        self._last = updates[-1] if updates else None
        self._most = updates.count(updates[-1]) if updates else 0
        self._seen = 0
        self._is_said = False

    def begin(self) -> None:
        """A step was recognised."""
        self._seen, self._is_said = 0, False

    def leave(self) -> None:
        """The program has left a step, which is said: the rest of it is not missed."""
        self._seen, self._is_said = 0, True

    def ends(self, seen: Seen) -> bool:
        """Count ``seen``, an op outside of recognised steps. True if a step ends with it that nobody was told of."""
        if (seen.name, seen.forms) != self._last:
            return False
        self._seen += 1
        if self._seen < self._most:
            return False
        is_missed, self._seen, self._is_said = not self._is_said, 0, False
        return is_missed
