"""Time models, one file each, and the table of them. ``predict`` asks the surest that knows a Work."""

from __future__ import annotations

from typing import NamedTuple


class Model(NamedTuple):
    """A time model: the start of what predictions by it are marked with (``Prediction.model``), its file in this
    folder, and those that it is made of."""

    marks: tuple[str, ...]
    file: str
    parts: tuple[str, ...] = ()


MODELS = (
    Model(("kriging",), "kriging"),
    Model(("calibrated:",), "saturating", ("constants", "domain")),
    Model(
        ("matrix_", "convolution", "vector"),
        "learned",
        ("tiles", "vectors", "trees", "rising", "ordered", "domain"),
    ),
    Model(("constants:",), "constants", ("domain",)),
)
"""The ladder, the surest first; stored measurements (``timing/samples.py``) stand above, views have no model."""
