"""Ranks that share experts: their process groups, and the rank that has each expert."""

from __future__ import annotations

from tensortide.errors import DegreesError

GROUP = "expert"
"""Name of the process group of expert parallelism."""
DATA = "expert_data"
"""Name of the group of ranks that have the same experts."""


def owner_of(expert: int, experts: int, ranks: int) -> int:
    """The rank that has the expert of this number, of so many ``experts`` in order."""
    return expert * ranks // experts


def check_divisible(experts: int, ranks: int, name: str) -> None:
    """Raise DegreesError unless each of ``ranks`` has as many of the experts in ``name``."""
    if experts % ranks:
        raise DegreesError(f"experts of a rank: experts / expert = {experts}/{ranks} is no whole number (in {name})")
