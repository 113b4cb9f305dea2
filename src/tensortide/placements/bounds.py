"""Lower bounds on the score of every placement of a problem, and the gap to them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Lower bounds on the score of every placement, ms.

    ``critical_path_ms``: the longest chain of dependent ops, each on its fastest device. ``work_ms``: all work over all
    devices that may be used at once. ``split_path_ms``: the longest chain of layers, in pieces that devices have the
    memory and the time for, with what they send each other; 0 where it is not known.
    """

    critical_path_ms: float
    work_ms: float
    split_path_ms: float = 0.0

    @property
    def best_ms(self) -> float:
        """The strongest of them."""
        return max(self.critical_path_ms, self.work_ms, self.split_path_ms)

    def gap(self, score_ms: float) -> float:
        """The share by which ``score_ms`` may exceed the optimum."""
        return score_ms / self.best_ms - 1 if self.best_ms > 0 else 0.0
