"""Types of the arrays that problems, tables and searches share."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Small: TypeAlias = NDArray[np.int32]
Floats: TypeAlias = NDArray[np.float64]
Placements: TypeAlias = NDArray[np.int64]
"""Placements [k, genes], or one [genes]: the device of each gene, or the number of a set of them (``genes``)."""
