"""Tasks played: the record of lists by Python, that of arrays by machine code."""

from __future__ import annotations

from tensortide.play.player import nothing, play
from tensortide.play.tasks import Places, Record, Rules, Tasks

NO_PLACES = Places([], [])
RULES = Rules()


def played(tasks: Tasks, lanes: int, places: Places = NO_PLACES, rules: Rules = RULES) -> Record:
    """Play ``tasks``, in lists, on so many ``lanes``, and return the record.

    Where there is too little room ``totals`` say how much lacks: of a single queue the task takes it all the same, of
    several the queue ends there.
    """
    record = nothing(tasks, places, lanes, _column)
    play(tasks, places, rules, record)
    return record


def _column(count: int, value: int) -> list[int]:
    return [value] * count
