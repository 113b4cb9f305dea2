"""The player as machine code that Python may call."""

from __future__ import annotations

from tensortide import play as player
from tensortide.compiled import entry_with
from tensortide.play import machine_code
from tensortide.play.tasks import Places, Record, Rules, Tasks

_play = machine_code.play


@entry_with(player)
def play(t: Tasks, places: Places, rules: Rules, r: Record) -> None:
    """Play ``t`` into ``r``."""
    _play(t, places, rules, r)
