"""Solutions: the value of a hyperparameter that meets a target, and what it rests on."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import msgspec

from tensortide.formulas.formulas import told
from tensortide.shown import Shown

Want: TypeAlias = Literal["largest", "smallest", "nearest"]


class Reached(NamedTuple):
    """A value of the symbol, and what the target has there."""

    value: int
    reached: float


class Solution(Shown, msgspec.Struct, frozen=True, kw_only=True):
    """``value`` of ``symbol`` is the ``kind`` (largest, smallest, nearest) that meets ``target`` as ``reached``.

    ``neighbour`` is the next legal value, which does not meet it, and what it would reach; where the target is not what
    ends the values that meet it, ``limited_by`` is the condition that does; if nothing does, the value is the largest
    tested one, and ``unlimited`` is true. The nearest value need not meet it: ``met`` says so, and the neighbour is the
    one on the other side of the target. ``skipped`` is the value next to it if no formulas hold there: the workload
    may take it all the same. ``by_shape`` says that the target is met on one side of one value only, by the shape of
    the formulas; otherwise values were scanned. ``extrapolated``: symbols outside of the ranges in which the formulas
    were tested, with these.

    ``proved``: that it is so, captures at ``captured`` (the value, and the next one) have the totals that the formulas
    give, and the workload refuses what is ``skipped``. ``unchecked`` says what of this is not so, or not known.
    """

    SECTION = "formula_answers.of_solution"

    symbol: str
    target: str
    kind: Want
    value: int
    reached: float
    in_bytes: bool
    met: bool
    neighbour: Reached | None
    limited_by: str
    skipped: int | None
    unlimited: bool
    by_shape: bool
    setting: dict[str, int]
    totals: dict[str, int]
    extrapolated: dict[str, tuple[int, int]] = {}
    proved: bool = False
    captured: tuple[int, ...] = ()
    unchecked: str = "formulas alone were given; confirm() captures the step"

    @property
    def untested(self) -> str:
        """``extrapolated`` in words."""
        return told(self.extrapolated)
