"""What takes less than a pixel of a figure is still seen."""

from __future__ import annotations

import numpy as np
import pytest

from tensortide.reports.blocks import Document, Section
from tensortide.reports.pictures import Curve, Series
from tensortide.reports.render.figure import draw


@pytest.mark.parametrize(
    ("start", "lower"),
    [
        (31_000, (0, 90, 0)),
        (52_340, (50, 50, 50)),
        (77_777, (0, 0, 0)),
        pytest.param(52_340, (10, 90, 10), marks=pytest.mark.slow),
        pytest.param(77_777, (0, 90, 0), marks=pytest.mark.slow),
    ],
)
def test_the_shortest_peak_is_drawn_with_its_height(start: int, lower: tuple[int, ...]) -> None:
    """A peak to 100 from 20 or 50 for one of 100,000 ns: in its column of pixels nothing up to 98 is background."""
    upper = tuple(
        total - value for total, value in zip((20 if max(lower[::2]) < 20 else 50, 100, 50), lower, strict=True)
    )
    stack = (Series("gpu0", "gpu0", lower), Series("gpu1", "gpu1", upper))
    curve = Curve(key="memory", title="Memory", x=(0, start, start + 1, 100_000), x_unit="ns", stack=stack)
    figure = draw(Document(title="peak", sections=(Section("one", "One", blocks=(curve,)),)))
    figure.set_dpi(200)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].min(axis=2)  # type: ignore[attr-defined]
    (axis,) = figure.axes
    height = len(pixels)
    low, high = (axis.transData.transform((start, level)) for level in (60, 98))
    rows = slice(height - int(high[1]), height - int(low[1]))
    columns = slice(int(low[0]) - 1, int(low[0]) + 3)
    assert (pixels[rows, columns].min(axis=1) < 200).all()
    beside = pixels[rows, int(low[0]) - 40 : int(low[0]) - 20]
    assert (beside > 200).all()
