"""Training steps found in a sequence of optimizer steps.

A training step may take several optimizers, each more than once: ``D G`` of a GAN, ``D D D G`` with more steps of its
critic. It ends with the optimizer that joined last, when every optimizer that belongs to it has stepped since its
beginning; so any rotation of a repeating sequence is found as one period of it.
"""

from __future__ import annotations

from collections import Counter

PATIENCE = 10
"""Times that an optimizer may step, for each time it did in the training step before, until one that is missing is no
longer waited for."""


class Periods:
    """Counts training steps as optimizers, known by a number each, are made, step and are dropped.

    A period in which a step was skipped does not count: a gradient scaler skips it when gradients overflow, and state
    that the step would have made is still missing.

    Examples:
        >>> periods = Periods()
        >>> [periods.stepped(optimizer) for optimizer in (1, 2, 1, 2)]  # nothing was known of 2 when 1 stepped first
        [True, False, True, False]
        >>> periods = Periods()
        >>> periods.made(1), periods.made(2)
        (None, None)
        >>> [periods.stepped(optimizer) for optimizer in (1, 1, 2, 1, 1, 2)]
        [False, False, True, False, False, True]
    """

    def __init__(self) -> None:
        self.count = 0
        """Training steps that have ended."""
        self.steps: Counter[int] = Counter()
        """Steps of each optimizer so far."""
        self.skipped = 0
        """Steps that were skipped so far."""
        self._awaited: set[int] = set()
        self._now: Counter[int] = Counter()
        self._skips = False
        self._before: Counter[int] = Counter()
        self._last: int | None = None

    @property
    def missing(self) -> int:
        """Number of optimizers that exist and have never stepped."""
        return len(self._awaited - self.steps.keys())

    def made(self, optimizer: int) -> None:
        """Expect steps of an optimizer."""
        self._awaited.add(optimizer)

    def dropped(self, optimizer: int) -> None:
        """Expect no more steps of an optimizer."""
        self._awaited.discard(optimizer)
        self._before.pop(optimizer, None)

    def stepped(self, optimizer: int, *, skipped: bool = False) -> bool:
        """Note a step of an optimizer. Returns True if a training step ends with it; ``count`` says if it counts."""
        self.steps[optimizer] += 1
        self._now[optimizer] += 1
        self.skipped += skipped
        self._skips |= skipped
        if not self._ends(optimizer):
            return False
        self.count += not self._skips
        self._last, self._before, self._now, self._skips = optimizer, self._now, Counter(), False
        return True

    def _ends(self, optimizer: int) -> bool:
        if self._now[optimizer] > PATIENCE * max(1, self._before[optimizer]):
            return True
        if self._last not in self._before:
            return self._awaited <= self.steps.keys()
        return optimizer == self._last and self._before.keys() <= self._now.keys()
