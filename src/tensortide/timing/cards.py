"""Cards of a size: GPUs of which only the memory is known, as ``24GB`` names them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tensortide.errors import RequestError
from tensortide.timing.catalogue import CONTEXT_BYTES, LEAST_REPORTED, catalogue
from tensortide.units import format_bytes

_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*gi?b", re.IGNORECASE)
_LARGEST = 4096
"""GB of the largest card that there may be."""


@dataclass(frozen=True)
class Card:
    """A GPU of a size, with no times.

    A step can use ``least_bytes`` to ``most_bytes`` of it: cards of that size differ. ``example`` is the one of the
    catalogue that leaves most, as ``--machine`` takes it. Without ``of_size`` it has just so many bytes, whatever it is
    sold as.
    """

    name: str
    least_bytes: int
    most_bytes: int
    example: str = "h100"
    of_size: bool = True

    @property
    def why(self) -> str:
        """The reason why nothing has a time."""
        return f"{self.name} is a size, not a card" if self.of_size else "no card is named"

    @property
    def no_time(self) -> str:
        """The same, and the remedy."""
        return f"no time: {self.why}; {self.example} is one"


def card(text: str) -> Card | None:
    """The card that ``24GB``, ``24GiB`` or ``24 gb`` names; None for other text.

    Cards are sold by multiples of 2**30 bytes, whichever way that is written. Usable is what is so on the cards of that
    size in the catalogue: at least ``LEAST_REPORTED`` of it and, unless a source tells what the driver of each reports,
    at most all of it, less the CUDA context.

    Raises RequestError for a size that no card has.

    Examples:
        >>> card("24 gb").name, card("rtx4090")
        ('24GB', None)
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    size = float(found[1])
    whole = int(size * 2**30) - CONTEXT_BYTES
    least = int(LEAST_REPORTED * size * 2**30) - CONTEXT_BYTES
    if least <= 0 or size > _LARGEST:
        raise RequestError(f"{text}: the size of a card is from 1GB to {_LARGEST}GB, as in 24GB")
    name, rows = f"{size:g}GB", [row for row in catalogue() if row.kind == "gpu" and row.memory_gbytes == size]
    if not rows:
        return Card(name, least, whole)
    usable = [row.usable_bytes or 0 for row in rows]
    most = whole if any(row.driver_gibytes is None for row in rows) else max(usable)
    example = max(rows, key=lambda row: (row.usable_bytes or 0, row.year or 0)).name
    return Card(name, min(usable), most, example.lower().replace(" ", ""))


def of_bytes(nbytes: int, machine: Card | None = None) -> Card:
    """The card that has exactly so many bytes for a step, of the size of ``machine`` if that is given."""
    if machine is not None:
        return replace(machine, least_bytes=nbytes, most_bytes=nbytes)
    return Card(format_bytes(nbytes), nbytes, nbytes, of_size=False)
