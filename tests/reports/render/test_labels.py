"""Labels of a figure stand beside their points and cover neither each other nor points."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from tensortide.reports.render.labels import Label, place_labels
from tests.marks import some_slow


@pytest.mark.parametrize("seed", some_slow(range(5), [2, 3, 4]))
def test_labels_cover_neither_each_other_nor_points(seed: int) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    backend = pytest.importorskip("matplotlib.backends.backend_agg")
    text = pytest.importorskip("matplotlib.text")
    chance = random.Random(seed)
    points = [(chance.random(), chance.random()) for _ in range(12)]
    figure = figures.Figure(figsize=(5, 3), layout="constrained")
    backend.FigureCanvasAgg(figure)
    axis = figure.subplots()
    axis.plot(*zip(*points, strict=True), "o")
    place_labels(axis, [Label(f"label {n}", *place) for n, place in enumerate(points)], points)
    figure.draw_without_rendering()
    boxes = [text.Text.get_window_extent(one) for one in axis.texts]
    assert len(boxes) >= 6
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
    frame = axis.get_window_extent().padded(2)
    for box in boxes:
        assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
        assert not any(box.contains(*axis.transData.transform(place)) for place in points)
    for note, own in zip(axis.texts, boxes, strict=True):
        start = axis.transData.transform(note.xy)
        if note.arrow_patch is not None:
            ends = [min(max(x, low), high) for x, low, high in zip(start, own.min, own.max, strict=True)]
            way = [tuple(a + (b - a) * k / 50 for a, b in zip(start, ends, strict=True)) for k in range(51)]
            assert not any(box.contains(*place) for box in boxes if box is not own for place in way), note.get_text()
