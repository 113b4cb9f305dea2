"""Times at which values or storages were created, evicted and used."""

from __future__ import annotations

NEVER = -1


class Marks:
    """First and last moments of values or storages, and how often they were used."""

    def __init__(self, count: int) -> None:
        self.birth, self.death = [NEVER] * count, [NEVER] * count
        self.last: tuple[list[int], list[int]] = ([NEVER] * count, [NEVER] * count)
        self.uses: tuple[list[int], list[int]] = ([0] * count, [0] * count)
        self.pinned: tuple[list[int], list[int]] = ([0] * count, [0] * count)
        """Pairs: the first is of the model's own execution, the second of recomputation."""

    def born(self, index: int, event: int) -> None:
        if self.birth[index] == NEVER:
            self.birth[index] = event
        self.death[index] = NEVER

    def use(self, index: int, event: int, model: bool, pinned: bool) -> None:
        which = int(not model)
        self.last[which][index] = event
        self.uses[which][index] += 1
        self.pinned[which][index] += pinned
