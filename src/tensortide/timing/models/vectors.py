"""Features of ops on rows of elements: pointwise, normalization, softmax. Memory bounds them, and the launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tensortide.timing.figures import compute_units, last_level_bytes
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

FAMILIES = ("pointwise", "transcendental", "normalization", "softmax")
VECTOR_FEATURES = 13
LINE = 1024.0
"""Columns that pointwise ops are taken to have: they do not see the shape of their operands."""


def vector_features(columns: Columns) -> tuple[Floats, Floats]:
    """Features for the learned correction, shape (works, ``VECTOR_FEATURES``), and the least time of the memory."""
    import numpy as np

    device = columns.device
    _, rows, width, operands = columns.dims.T
    kind = np.array([FAMILIES.index(family) for family in columns.families], dtype=float)
    shapeless = kind <= FAMILIES.index("transcendental")
    rows, width = np.where(shapeless, rows * width / LINE, rows), np.where(shapeless, LINE, width)
    units, cache = compute_units(device), last_level_bytes(device)
    count = len(rows)
    logs = [rows, width, columns.memory_ns, columns.nbytes / cache, rows * width / units]
    rate = 1000 * (device.fp32_tflops or 1.0)
    constants = (units, cache, device.memory_gbytes_per_s, rate / device.memory_gbytes_per_s)
    logs += [np.full(count, float(constant)) for constant in constants]
    plain = [kind, operands, rows / units, columns.item]
    return np.column_stack([*map(np.log, logs), *plain]), columns.memory_ns
