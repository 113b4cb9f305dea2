"""Predicted times of Works: the surest model that knows a Work, clipped by physics, with intervals."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Sequence

import msgspec

from tensortide.timing.catalogue import Device
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import VIEW
from tensortide.timing.figures import low_power
from tensortide.timing.intervals import UNMEASURED, WIDE, Pool
from tensortide.timing.ladder import Rung, climb
from tensortide.timing.local import Local, with_host
from tensortide.timing.prediction import VIEW_NS, Prediction, below_of, bound_of, half, least_ns
from tensortide.timing.rates import Columns, columns
from tensortide.timing.work import Work

THROTTLED = 0.405
"""Half-width (a factor of 1.5) that intervals have at least on cards that may not hold their clocks."""

FITTED = "NVIDIA"
"""The vendor of all devices that the shipped models were fitted to. Those of others are known to a factor of 2 at most:
that holds 79 % of the fp32 products that were measured on MI100 and MI210."""

Pools = dict[str, dict[str, Pool]]


@functools.cache
def shipped_pools() -> Pools:
    """The pools of residuals that come with the package."""
    source = importlib.resources.files("tensortide.timing").joinpath("shipped/intervals.json")
    return msgspec.json.decode(source.read_bytes(), type=Pools)


def predict(works: Sequence[Work], device: Device) -> list[Prediction]:
    """Predict the time of each of ``works`` on ``device``, alone and without the host's part.

    A GPU's products, convolutions, pointwise ops, normalizations and softmaxes are predicted by learned corrections,
    everything else by three constants of its family; a CPU by its ceilings. No prediction is below the arithmetic at
    peak, nor below the bytes at full bandwidth if they do not fit into the last-level cache, and no interval begins
    below; none is above that for a lesser device of the same architecture. A calibrated machine has its own constants.
    """
    table = columns(works, device)
    ns, rungs = climb(table)
    if isinstance(device, Local):
        return with_host(works, table, ns)
    found = [_prediction(work, float(ns[i]), rungs[i], table, i) for i, work in enumerate(works)]
    least = least_ns(table).tolist()
    return [each._replace(below=below_of(each.below, each.ns, low)) for each, low in zip(found, least, strict=True)]


def _prediction(work: Work, ns: float, rung: Rung, table: Columns, row: int) -> Prediction:
    device, model = table.device, rung.mark(work.family)
    if work.family == VIEW:
        return Prediction(work, VIEW_NS, *half(WIDE, VIEW_NS), Provenance.EXTRAPOLATED, "views", "views")
    compute, memory = float(table.compute_ns[row]), float(table.memory_ns[row])
    if not work.known or compute != compute:  # NaN: a dtype whose rate the catalogue has not
        return Prediction(work, ns, *half(WIDE, ns), Provenance.UNKNOWN, model, "memory")
    provenance = _provenance(device, work, rung)
    below, above = half(_pool(model.removeprefix("constants:"), provenance), ns)
    if low_power(device) and provenance > Provenance.MEASURED:
        below, above = max(below, THROTTLED), max(above, THROTTLED)
    if device.vendor not in ("", FITTED) and provenance > Provenance.MEASURED:
        below, above = max(below, UNMEASURED), max(above, UNMEASURED)
    return Prediction(work, ns, below, above, provenance, model, bound_of(compute, memory, ns))


def _provenance(device: Device, work: Work, rung: Rung) -> Provenance:
    if device.kind == "cpu":
        return Provenance.PHYSICS
    return Provenance.INTERPOLATED if rung.covers(work, device) else Provenance.EXTRAPOLATED


def _pool(key: str, provenance: Provenance) -> Pool:
    return shipped_pools().get(key, {}).get(str(provenance), WIDE)
