"""The ladder of time models: a Work is predicted by the first rung that serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tensortide.dtypes import is_half
from tensortide.timing.attention import share_in_steps
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


def _kernel_shares(table: Columns) -> Floats:
    """The share of the peak of each work by the kernel of attention that it runs; NaN for others."""
    import numpy as np

    found = np.full(len(table.families), np.nan)
    for i in np.flatnonzero(table.kernels != "") if table.device.kind == "gpu" else ():
        keys, head = table.dims[i, 2:]
        backward = "backward" in table.families[i]
        if not is_half(table.dtypes[i]):
            continue
        share = share_in_steps(table.device, str(table.kernels[i]), head, keys, backward=backward)
        found[i] = np.nan if share is None else share
    return found


def _runs_known_kernel(table: Columns) -> Marks:
    import numpy as np

    return ~np.isnan(_kernel_shares(table))


def _by_kernel(table: Columns) -> Floats:
    """Nanoseconds of attention: its products at the speed of its kernel, with the other constants of its family."""
    import numpy as np

    own = [constants.chosen(constants.for_device(table.device), table.device, name) for name in table.families]
    memory, launch_ns = np.array([(each.memory, each.launch_ns) for each in own]).T
    products = table._replace(compute_ns=table.matrix_flops / table.peak)
    return clipped(constants.formula(products, _kernel_shares(table), memory, launch_ns), table)


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
    Rung("kernel", _runs_known_kernel, _by_kernel, lambda family: f"kernel:{family}"),
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
