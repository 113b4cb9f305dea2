"""The ladder of time models: a Work is predicted by the first rung that serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tensortide.timing.catalogue import Device
from tensortide.timing.local import Local, calibrated_ns
from tensortide.timing.models import constants, learned
from tensortide.timing.prediction import clipped
from tensortide.timing.rates import Columns
from tensortide.timing.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Marks = NDArray[np.bool_]


def _nowhere(work: Work, device: Device) -> bool:
    return False


class Rung(NamedTuple):
    """A time model: which works it ``serves``, the nanoseconds that it predicts, not below what physics allows, the
    ``mark`` of its predictions of a family (``Prediction.model``), and which works on a device of the catalogue it
    ``covers``: they lie among the samples that it was fitted to."""

    name: str
    serves: Callable[[Columns], Marks]
    ns: Callable[[Columns], Floats]
    mark: Callable[[str], str]
    covers: Callable[[Work, Device], bool] = _nowhere


def _correction(kind: learned.Correction) -> Rung:
    def serves(table: Columns) -> Marks:
        import numpy as np

        known = zip(table.families, table.dtypes, strict=True)
        meant = np.array([family in kind.families and dtype in kind.dtypes for family, dtype in known], bool)
        return meant & (table.compute_ns > 0) & (table.device.kind == "gpu")

    def ns(table: Columns) -> Floats:
        return clipped(learned.shipped(kind.name).in_order(table), table)

    def covers(work: Work, device: Device) -> bool:
        return learned.shipped(kind.name).domain.covers(work, device)

    return Rung(kind.name, serves, ns, lambda family: kind.name, covers)


def _all_of(serves: Callable[[Device], bool]) -> Callable[[Columns], Marks]:
    def marks(table: Columns) -> Marks:
        import numpy as np

        return np.full(len(table.families), serves(table.device))

    return marks


def _by_constants(table: Columns) -> Floats:
    return clipped(constants.predict(table, constants.for_device(table.device)), table)


def _fitted(work: Work, device: Device) -> bool:
    found = constants.for_device(device).get(device.arch, {}).get(work.family)
    return found is not None and found.domain.covers(work, device)


def _is_local(device: Device) -> bool:
    return isinstance(device, Local)


LADDER = (
    Rung("calibrated", _all_of(_is_local), calibrated_ns, lambda family: f"calibrated:{family}"),
    *map(_correction, learned.CORRECTIONS),
    Rung("constants", _all_of(lambda device: True), _by_constants, lambda family: f"constants:{family}", _fitted),
)
"""The surest first. Stored measurements (``timing/samples.py``) and products corrected by them (``timing/refined.py``)
take the place of what these predict; views have no model."""


def climb(table: Columns) -> tuple[Floats, list[Rung]]:
    """The nanoseconds of the works of ``table``, and the rungs that predict them."""
    import numpy as np

    ns, rungs = np.zeros(len(table.families)), [LADDER[-1]] * len(table.families)
    left = np.full(len(ns), True)
    for rung in LADDER:
        served = left & rung.serves(table)
        if served.any():
            ns[served] = rung.ns(table.where(served))
            for i in np.flatnonzero(served):
                rungs[i] = rung
        left &= ~served
    return ns, rungs
