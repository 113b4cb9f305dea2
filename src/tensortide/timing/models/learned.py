"""Learned correction: boosted trees times the tiled or the memory bound, for GPUs measured and not measured."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tensortide.dtypes import DTYPES
from tensortide.timing.models.domain import Domain
from tensortide.timing.models.ordered import ordered
from tensortide.timing.models.rising import Grids, rising
from tensortide.timing.models.tiles import matrix_features, patch_features
from tensortide.timing.models.trees import Trees
from tensortide.timing.models.vectors import FAMILIES, vector_features
from tensortide.timing.rates import Columns

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Correction(NamedTuple):
    """One correction: the ``families`` and ``dtypes`` it is for, their ``features`` with the bound that it multiplies,
    ``launch_ns``, added to the bound, and how many ``halvings`` of a dimension take no longer."""

    name: str
    families: frozenset[str]
    dtypes: frozenset[str]
    features: Callable[[Columns], tuple[Floats, Floats]]
    launch_ns: float
    halvings: int


_PRODUCTS = frozenset(name + size for name in ("mm", "addmm", "bmm", "linear") for size in ("", "_small"))
_RATES = ("bf16_tflops", "fp16_tflops", "fp8_tflops", "int8_tops", "tf32_tflops")
_NARROW = frozenset(row.name for row in DTYPES.values() if row.rate in _RATES)

_CONVOLUTIONS = frozenset(
    f"convolution{way}_{kind}" for way in ("", "_backward") for kind in ("1x1", "kxk", "depthwise")
)

CORRECTIONS = (
    Correction("matrix_fp32", _PRODUCTS, frozenset({"float32"}), matrix_features, 3000.0, 2),
    Correction("matrix_16bit", _PRODUCTS, _NARROW, matrix_features, 3000.0, 2),
    Correction("convolution", _CONVOLUTIONS, frozenset({"float32"}), patch_features, 3000.0, 4),
    Correction(
        "vector", frozenset(FAMILIES), frozenset({"float32", "bfloat16", "float16"}), vector_features, 3000.0, 1
    ),
)


@dataclass(frozen=True)
class Learned:
    """A trained correction, and the ``domain`` of its samples. ``grids``: times that others must not go below."""

    kind: str
    domain: Domain
    trees: Trees
    grids: Grids = field(default_factory=dict, repr=False, compare=False)

    def predict(self, columns: Columns) -> Floats:
        """Nanoseconds of ``columns`` on the device, without what the host takes to issue them; they rise with size."""
        return rising(self._corrected, columns, CORRECTIONS_BY_NAME[self.kind].halvings, self.grids)

    def _corrected(self, columns: Columns) -> Floats:
        """The bound of ``columns`` times its correction."""
        import numpy as np

        kind = CORRECTIONS_BY_NAME[self.kind]
        features, bound = kind.features(columns)
        found: Floats = (bound + kind.launch_ns) * np.exp(self.trees.predict(features))
        return found

    def in_order(self, columns: Columns) -> Floats:
        """``predict``, never more than for a lesser device of the same architecture."""
        return ordered(lambda device: self._known(columns.on(device)), columns.device, self.domain.devices)

    def _known(self, columns: Columns) -> Floats:
        """``predict``; NaN for works in a dtype whose rate the device's row does not have."""
        import numpy as np

        known = ~np.isnan(columns.compute_ns)
        if known.all():
            return self.predict(columns)
        found = np.full(len(known), np.nan)
        if known.any():
            found[known] = self.predict(columns.where(known))
        return found


CORRECTIONS_BY_NAME = {kind.name: kind for kind in CORRECTIONS}


@functools.cache
def shipped(kind: str) -> Learned:
    """The correction of ``kind`` that comes with the package."""
    import numpy as np

    source = importlib.resources.files("tensortide.timing").joinpath(f"shipped/{kind}.npz")
    with importlib.resources.as_file(source) as path, np.load(path) as file:
        arrays = {name: file[name] for name in ("feature", "left", "roots")}
        arrays |= {name: file[name].astype(np.float64) for name in ("threshold", "value")}
        low, high = file["bounds"].tolist()
        trees = Trees(**arrays, low=low, high=high)
        known = (file[name].tolist() for name in ("devices", "dtypes", "backward", "least", "largest"))
        domain = msgspec.convert(dict(zip(Domain.__struct_fields__, known, strict=True)), Domain)
        return Learned(kind, domain, trees)
