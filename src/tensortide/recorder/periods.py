"""Training steps found in a sequence of optimizer steps.

A training step may include several steps of several optimizers: ``D G`` of a GAN, or ``D D D G`` with more steps of its
critic. It ends with a step of the optimizer that joined last, once every optimizer that takes part has stepped. Each
training step is then one period of a repeating sequence, wherever that begins.
"""

from __future__ import annotations

from collections import Counter

PATIENCE = 10
"""Most steps of an optimizer in one training step, per step in the previous one; then a missing optimizer is no longer
waited for."""


class Periods:
    """Counts training steps, given when optimizers (by number) are made, step and are dropped.

    A training step in which an optimizer's step was skipped does not count: a gradient scaler skips it when gradients
    overflow, and the optimizer state that it would have created is still missing.

    Examples:
        >>> periods = Periods()
        >>> [periods.stepped(optimizer) for optimizer in (1, 2, 1, 2)]  # 2 was unknown when 1 first stepped
        [True, False, True, False]
        >>> periods = Periods()
        >>> periods.made(1), periods.made(2)
        (None, None)
        >>> [periods.stepped(optimizer) for optimizer in (1, 1, 2, 1, 1, 2)]
        [False, False, True, False, False, True]
    """

    def __init__(self) -> None:
        self.count = 0
        """Training steps that have ended and count."""
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
        """Note a step of an optimizer. Returns True if it ends a training step, one that ``count`` omits included."""
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
        if optimizer != self._last:
            return False
        missing, new = self._before.keys() - self._now.keys(), self._now.keys() - self._before.keys()
        return len(missing) <= len(new)  # those of an inner loop may be made anew in every step
