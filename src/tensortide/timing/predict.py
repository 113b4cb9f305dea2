"""Predicted times of Works: the surest model that knows a Work, clipped by physics, with intervals."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tensortide.timing.catalogue import Device
from tensortide.timing.estimates import Bound, Provenance
from tensortide.timing.families import VIEW
from tensortide.timing.intervals import WIDE, Pool
from tensortide.timing.models import constants, learned
from tensortide.timing.models.tiles import LOW_POWER_WATTS
from tensortide.timing.rates import Columns, columns
from tensortide.timing.work import Work

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

VIEW_NS = 1500
"""What an op that only renames memory costs the host (the device nothing), in nanoseconds: the median of eight kinds of
views of a tensor with a gradient, called one after the other in PyTorch 2.13 on one core of a server CPU."""

THROTTLED = 0.405
"""Half-width (a factor of 1.5) that intervals have at least on cards that may not hold their clocks."""

Pools = dict[str, dict[str, Pool]]


class Prediction(NamedTuple):
    """Prediction of one Work's time: ``below`` and ``above`` are half-widths in natural logarithms, ``model`` names the
    row of the ladder, ``bound`` what limits the op: ``compute``, ``memory``, ``launch``, or ``host`` for a view."""

    work: Work
    ns: float
    below: float
    above: float
    provenance: Provenance
    model: str
    bound: Bound


@functools.cache
def shipped_pools() -> Pools:
    """The pools of residuals that come with the package."""
    source = importlib.resources.files("tensortide.timing").joinpath("shipped/intervals.json")
    return msgspec.json.decode(source.read_bytes(), type=Pools)


def predict(works: Sequence[Work], device: Device) -> list[Prediction]:
    """Predict the time of each of ``works`` on ``device``, alone and without the host's part.

    A GPU's products, convolutions, pointwise ops, normalizations and softmaxes are predicted by learned corrections,
    everything else by three constants of its family; a CPU by its ceilings. No prediction is below the arithmetic at
    peak, nor below the bytes at full bandwidth if they do not fit into the last-level cache; none is above that for a
    lesser device of the same architecture.
    """
    import numpy as np

    table = columns(works, device)
    ns = constants.predict(table, constants.for_device(device))
    models = [f"constants:{family}" for family in table.families]
    for kind in learned.KINDS if device.kind == "gpu" else ():
        rows = [
            i for i, work in enumerate(works)
            if work.family in kind.families and work.dtype in kind.dtypes and table.compute_ns[i] > 0
        ]  # fmt: skip
        if rows:
            marked = np.zeros(len(works), bool)
            marked[rows] = True
            ns[marked] = learned.shipped(kind.name).in_order(table.where(marked))
            for i in rows:
                models[i] = kind.name
    ns = clipped(ns, table)
    return [_prediction(work, float(ns[i]), models[i], table, i) for i, work in enumerate(works)]


def clipped(ns: Floats, table: Columns) -> Floats:
    """``ns``, at least what the arithmetic takes at peak, and the bytes of ops that are too large for the cache.

    Convolutions may take fewer multiplications than their definition (Winograd) and go below the arithmetic.
    """
    import numpy as np

    fewer = np.array([family.startswith("convolution") for family in table.families], bool)
    found = np.where(fewer, ns, np.fmax(ns, table.compute_ns))
    return np.where(table.cached, found, np.maximum(found, table.memory_ns))


def _prediction(work: Work, ns: float, model: str, table: Columns, row: int) -> Prediction:
    device = table.device
    if work.family == VIEW:
        return Prediction(work, VIEW_NS, *_half(WIDE, VIEW_NS), Provenance.EXTRAPOLATED, "views", "host")
    compute, memory = float(table.compute_ns[row]), float(table.memory_ns[row])
    if not work.known or compute != compute:  # NaN: a dtype whose rate the catalogue has not
        return Prediction(work, ns, *_half(WIDE, ns), Provenance.UNKNOWN, model, "memory")
    provenance = _provenance(device, work, model)
    key = work.family if model.startswith("constants:") else model
    below, above = _half(_pool(key, provenance), ns)
    if device.tdp_watts is not None and device.tdp_watts <= LOW_POWER_WATTS and provenance > Provenance.MEASURED:
        below, above = max(below, THROTTLED), max(above, THROTTLED)
    return Prediction(work, ns, below, above, provenance, model, _bound(compute, memory, ns))


LAUNCH_BOUND_NS = 20_000
"""Longer ops are bound by something else than their launch, however far they are from peak."""


def _bound(compute: float, memory: float, ns: float) -> Bound:
    if max(compute, memory) < ns / 2 and ns < LAUNCH_BOUND_NS:
        return "launch"
    return "compute" if compute > memory else "memory"


def _provenance(device: Device, work: Work, model: str) -> Provenance:
    if device.kind == "cpu":
        return Provenance.PHYSICS
    if model.startswith("constants:"):
        found = constants.for_device(device).get(device.arch, {}).get(work.family)
        inside = found is not None and found.domain.covers(work, device)
    else:
        inside = learned.shipped(model).domain.covers(work, device)
    return Provenance.INTERPOLATED if inside else Provenance.EXTRAPOLATED


def _pool(key: str, provenance: Provenance) -> Pool:
    return shipped_pools().get(key, {}).get(str(provenance), WIDE)


def _half(pool: Pool, ns: float) -> tuple[float, float]:
    found = pool.of(ns)
    return found.below, found.above
