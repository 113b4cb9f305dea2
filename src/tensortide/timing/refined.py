"""Products that were measured on a GPU correct the predictions of other products there (``models/kriging.py``)."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tensortide.cost import Resolver
from tensortide.graph.model import Graph
from tensortide.timing.catalogue import Device
from tensortide.timing.durations import Durations
from tensortide.timing.estimates import Provenance
from tensortide.timing.families import SMALL, works
from tensortide.timing.forecast import ForecastRow
from tensortide.timing.intervals import LEAST, Pool, pool
from tensortide.timing.local import Local
from tensortide.timing.models.domain import PADDING
from tensortide.timing.models.kriging import Correction, correction
from tensortide.timing.predict import predict
from tensortide.timing.prediction import below_of, least_ns
from tensortide.timing.rates import columns
from tensortide.timing.samples import MODEL, Key, known
from tensortide.timing.work import Work, product

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_PRODUCTS = {"mm": "mm", "addmm": "addmm", "bmm": "bmm", "baddbmm": "bmm"}
"""Families of the ops that are corrected."""


class _Refined(NamedTuple):
    """The correction by the stored products of a dtype, what they miss each other by, and the ends of their sizes."""

    fitted: Correction
    pool: Pool
    low: Floats
    high: Floats

    def covers(self, dims: Floats) -> bool:
        return bool(((self.low / PADDING <= dims) & (dims <= self.high * PADDING)).all())


def refine(
    graph: Graph, durations: Durations, device: Device, *, resolver: Resolver | None = None, store: Path | None = None
) -> Durations:
    """Correct the predicted times of ``graph``'s products on a GPU by the products that are stored of it.

    It takes ``LEAST`` of a dtype. Between their sizes a corrected time is ``interpolated``, with the interval of what
    they miss each other by; beyond them the provenance and the interval stay. Calls that are stored keep their times.

    Raises GraphFileError if a file of the store is damaged.
    """
    refined = _refined(device, store) if device.kind == "gpu" and not isinstance(device, Local) else {}
    if durations.forecast is None or not refined:
        return durations
    found, places = works(graph, resolver)
    table = columns(found, device)
    least = least_ns(table)
    factors = {dtype: by.fitted.factor(table) for dtype, by in refined.items()}
    rows, index, ns = list(durations.forecast.rows), list(durations.forecast.index), list(durations.ns)
    changed: dict[int, int] = {}
    ops = [
        op for op, work in enumerate(places)
        if _plain(found[work].family) and found[work].dtype in refined and _open(rows[index[op]])
    ]  # fmt: skip
    for op in ops:
        work, dtype = places[op], found[places[op]].dtype
        time = max(ns[op] * float(factors[dtype][work]), float(least[work]))
        if work not in changed:
            changed[work] = len(rows)
            row = _row(rows[index[op]], refined[dtype], time, table.dims[work])
            rows.append(msgspec.structs.replace(row, below=below_of(row.below, time, float(least[work]))))
        index[op], ns[op] = changed[work], max(1, round(time))
    source = f"{durations.source}; {len(ops):,} products corrected by stored ones"
    forecast = msgspec.structs.replace(durations.forecast, rows=tuple(rows), index=tuple(index))
    return msgspec.structs.replace(durations, ns=tuple(ns), source=source, forecast=forecast) if ops else durations


def _row(old: ForecastRow, by: _Refined, ns: float, dims: Floats) -> ForecastRow:
    if not by.covers(dims):
        return msgspec.structs.replace(old, model="kriging")
    half = by.pool.of(ns)
    return msgspec.structs.replace(
        old, below=half.below, above=half.above, provenance=Provenance.INTERPOLATED, model="kriging"
    )


def _open(row: ForecastRow) -> bool:
    """Tell whether a time is neither stored nor unknown."""
    return row.model != MODEL and row.provenance is not Provenance.UNKNOWN


def _plain(family: str) -> bool:
    return family.removesuffix("_small") in _PRODUCTS.values()


def _refined(device: Device, store: Path | None) -> dict[str, _Refined]:
    """Corrections by dtype, where there are enough products."""
    import numpy as np

    points: defaultdict[str, dict[Work, tuple[int, float]]] = defaultdict(dict)
    for key, stored in known(device.name, None, store).items():
        work = _product(key)
        if work is not None:
            points[work.dtype][work] = stored.ns, stored.half
    found = {}
    for dtype, times in points.items():
        if len(times) >= LEAST:
            asked = list(times)
            table = columns(asked, device)
            plain = np.array([each.ns for each in predict(asked, device)])
            ns, halves = np.array(list(times.values())).T
            fitted = correction(table, np.log(ns / plain))
            within = pool(fitted.missed, plain * fitted.factor(table), float(np.median(halves)))
            found[dtype] = _Refined(fitted, within, table.dims.min(axis=0), table.dims.max(axis=0))
    return found


def _product(key: Key) -> Work | None:
    """The Work of a stored call; None unless it is a plain product of matrices that are not empty."""
    op, _, dtypes, shapes = map(str, key[:4])
    name = _PRODUCTS.get(op.rpartition(".")[2])
    if name is None:
        return None
    (*batch, m, k), (*_, n) = ([int(size) for size in shape.split("x")] for shape in shapes.split(" ")[-2:])
    if min(m, n, k, *batch) < 1:
        return None
    small = "_small" if min(m, n, k) < SMALL else ""
    return product(m, n, k, batch=math.prod(batch), dtype=dtypes.rpartition(" ")[2], family=name + small)
