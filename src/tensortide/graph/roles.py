"""Roles of storages: one table with a row per role.

Everything asked about a role is a column of its row: its precedence (the order of the rows), its lifetime, its colours,
its place in a chart. A new role is one row.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple


class Band(NamedTuple):
    """A layer of the memory curve in a terminal: its label, its character with and without Unicode, its colour."""

    label: str
    block: str
    plain: str
    color: str


BANDS = STATE, GRADIENTS, WORKING = (
    Band("parameters, state", "░", ".", "blue"),
    Band("gradients", "▒", "+", "cyan"),
    Band("activations, temporaries", "█", "#", "yellow"),
)
"""Bands from the bottom up: long-lived memory below, short-lived memory on top."""


class Look(NamedTuple):
    """Appearance of a kind of memory: its band in a terminal, its colour on a light and on a dark page.

    Figures use the light colour. Colours differ in lightness as well as in hue (after Paul Tol's and Okabe-Ito's sets):
    in grey the five roles that take most memory are steps of 30 of 255 apart.
    """

    band: Band
    light: str
    dark: str


@dataclass(frozen=True)
class Row:
    """One row of the table of roles.

    ``renewed``: every step makes its own, and once the optimizer has used it, it only waits for the next step to drop
    it. ``given``: it exists before the step. ``of_module``: its name begins with the path of a module.
    """

    name: str
    look: Look
    renewed: bool = False
    given: bool = False
    of_module: bool = False


class Role(enum.StrEnum):
    """The purpose of a storage. A storage with several purposes has the first that applies, in this order."""

    PARAMETER = Row("parameter", Look(STATE, "#35558f", "#5c80c4"), given=True, of_module=True)
    BUFFER = Row("buffer", Look(STATE, "#8d949c", "#7c848d"), given=True, of_module=True)
    OPTIMIZER_STATE = Row("optimizer_state", Look(STATE, "#aed2f0", "#98c3ea"), given=True, of_module=True)
    GRADIENT = Row("gradient", Look(GRADIENTS, "#4fb0a2", "#3fa796"), renewed=True, of_module=True)
    INPUT = Row("input", Look(STATE, "#2f8a57", "#93d07f"), given=True)
    CACHE = Row("cache", Look(STATE, "#74706b", "#d9b8a0"), given=True)
    LIBRARY = Row("library", Look(STATE, "#a99bd1", "#b3a6dc"), given=True)
    OUTPUT = Row("output", Look(WORKING, "#ddcc77", "#d4c36a"))
    ACTIVATION = Row("activation", Look(WORKING, "#f0a447", "#e2913a"))
    TEMPORARY = Row("temporary", Look(WORKING, "#bd5163", "#cf6b7a"))

    _value_: str
    row: Row
    precedence: int

    def __new__(cls, row: Row) -> Role:
        """The member of a row: a string, its name, that carries the row."""
        role = str.__new__(cls, row.name)
        role._value_ = row.name
        role.row = row
        role.precedence = len(cls.__members__)
        return role


WORKSPACE = "workspace"
"""Name, beside those of roles, of memory that kernels take and give back inside one op."""


def stacked() -> tuple[Role, ...]:
    """The roles in the order they are stacked in a chart, bottom first: by band, then by precedence."""
    return tuple(sorted(Role, key=lambda role: BANDS.index(role.row.look.band)))


def looks() -> dict[str, Look]:
    """The look of each role by name, in the order they are stacked in a chart, and of workspace on top."""
    return {role.value: role.row.look for role in stacked()} | {WORKSPACE: Look(WORKING, "#7b2a5e", "#a8528a")}
