"""Peak rates of a device by dtype, and the least time of Work under them: the physics of every time model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tensortide.dtypes import DTYPES, is_half
from tensortide.timing.catalogue import Device
from tensortide.timing.figures import figure, last_level_bytes
from tensortide.timing.work import Work, item_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def matrix_tflops(device: Device, dtype: str, *, tf32: bool = False) -> float | None:
    """Dense peak of multiply-accumulates of ``dtype`` operands, in 1e12 FLOP per second; None if unknown.

    A float type that the device has no units for, or slower ones than for fp32, is computed in fp32: of bf16 on V100
    and fp16 on P4 that is what libraries do. ``tf32`` is a dtype of its own here.
    """
    row = DTYPES.get(dtype)
    if row is None or not row.rate or (row.needs and figure(device, row.needs) is None):
        return None
    if row.rate in ("fp32_tflops", "tf32_tflops"):
        modes = ("tf32_tflops", "fp32_matrix_tflops") if tf32 or row.rate == "tf32_tflops" else ("fp32_matrix_tflops",)
        return next((rate for mode in modes if (rate := figure(device, mode)) is not None), device.fp32_tflops)
    return device.fp32_tflops if runs_as_fp32(device, dtype) else figure(device, row.rate)


def runs_as_fp32(device: Device, dtype: str) -> bool:
    """Tell whether products of the 16-bit ``dtype`` are taken at the rate of fp32: the catalogue has no faster units of
    ``device`` for them."""
    if not is_half(dtype):
        return False
    known = figure(device, DTYPES[dtype].rate)
    return device.fp32_tflops is not None and (known is None or known <= device.fp32_tflops)


def vector_tflops(device: Device, dtype: str) -> float | None:
    """Peak of everything that is no matrix product, in 1e12 per second; None if unknown. Narrow types run as fp32."""
    wide = dtype in DTYPES and DTYPES[dtype].rate == "fp64_tflops"
    return device.fp64_tflops if wide else device.fp32_tflops


class Columns(NamedTuple):
    """Works as columns, with their least times on one device, in nanoseconds.

    ``compute_ns`` is the arithmetic at peak, NaN where the peak is unknown; ``memory_ns`` the bytes at the bandwidth
    of the memory; ``dims`` has shape (works, 4); ``peak`` is the matrix rate in FLOP per nanosecond.
    """

    device: Device
    families: tuple[str, ...]
    dtypes: tuple[str, ...]
    matrix_flops: Floats
    vector_flops: Floats
    nbytes: Floats
    dims: Floats
    item: Floats
    peak: Floats
    compute_ns: Floats
    memory_ns: Floats
    after_bytes: Floats
    fresh_bytes: Floats
    kernels: NDArray[np.str_]

    @property
    def cached(self) -> NDArray[np.bool_]:
        """Tell whether the bytes fit into the last-level cache, and so may move faster than memory does."""
        return self.nbytes <= CACHED * last_level_bytes(self.device)

    def on(self, device: Device) -> Columns:
        """The same works on another ``device``."""
        peak, compute_ns, memory_ns = _least(device, self.dtypes, self.matrix_flops, self.vector_flops, self.nbytes)
        return self._replace(device=device, peak=peak, compute_ns=compute_ns, memory_ns=memory_ns)

    def where(self, kept: NDArray[np.bool_]) -> Columns:
        """The works that ``kept`` marks."""
        import numpy as np

        rows = np.flatnonzero(kept)
        return self._replace(
            families=tuple(self.families[i] for i in rows),
            dtypes=tuple(self.dtypes[i] for i in rows),
            **{name: getattr(self, name)[rows] for name in self._fields[3:]},
        )

    def followed_by(self, others: Sequence[Columns]) -> Columns:
        """These works and ``others``, on the same device, one after another."""
        import numpy as np

        every = (self, *others)
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(each, name) for each in every]) for name in self._fields[3:]
        }
        joined["families"] = tuple(family for each in every for family in each.families)
        joined["dtypes"] = tuple(dtype for each in every for dtype in each.dtypes)
        return self._replace(**joined)


CACHED = 1.25
"""Bytes from which on an op cannot beat the bandwidth of the memory, in last-level caches."""


def columns(works: Sequence[Work], device: Device) -> Columns:
    """``works`` as columns for ``device``."""
    import numpy as np

    dtypes = tuple(work.dtype for work in works)
    matrix, other, nbytes = (
        np.array([(w.matrix_flops, w.vector_flops, w.nbytes) for w in works], float).reshape(-1, 3).T
    )
    peak, compute_ns, memory_ns = _least(device, dtypes, matrix, other, nbytes)
    items = {dtype: item_bytes(dtype) for dtype in set(dtypes)}
    return Columns(
        device=device,
        families=tuple(work.family for work in works),
        dtypes=dtypes,
        matrix_flops=matrix,
        vector_flops=other,
        nbytes=nbytes,
        dims=np.array([work.dims for work in works], float).reshape(-1, 4),
        item=np.array([items[dtype] for dtype in dtypes], float),
        peak=peak,
        compute_ns=compute_ns,
        memory_ns=memory_ns,
        after_bytes=np.array([work.after_bytes for work in works], float),
        fresh_bytes=np.array([work.fresh_bytes for work in works], float),
        kernels=np.array([work.kernel for work in works], str),
    )


def _least(
    device: Device, dtypes: Sequence[str], matrix: Floats, other: Floats, nbytes: Floats
) -> tuple[Floats, Floats, Floats]:
    """Matrix rates in FLOP per nanosecond, least times of the arithmetic and of the bytes."""
    import numpy as np

    rates = {dtype: _rates(device, dtype) for dtype in set(dtypes)}
    peak, vector = np.array([rates[dtype] for dtype in dtypes], float).reshape(-1, 2).T
    compute_ns = _divided(matrix, peak) + _divided(other, vector)
    return peak, compute_ns, nbytes / device.memory_gbytes_per_s


def _divided(work: Floats, rate: Floats) -> Floats:
    """``work / rate``; 0 where there is no work, NaN where there is some and no rate."""
    import numpy as np

    found: Floats = np.where(work > 0, work / rate, 0.0)
    return found


def _rates(device: Device, dtype: str) -> tuple[float, float]:
    """FLOP per nanosecond of products and of the rest; NaN: unknown."""
    matrix, vector = matrix_tflops(device, dtype), vector_tflops(device, dtype)
    return 1000 * matrix if matrix else math.nan, 1000 * vector if vector else math.nan
