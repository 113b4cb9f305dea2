"""Labels in a figure that cover neither each other nor the points: each goes to the first free place near its point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

SPOTS = tuple(product((7, 16, 32), ((1, 0.6), (-1, 0.6), (1, -0.6), (-1, -0.6), (1, 0), (-1, 0), (0, 1), (0, -1))))
"""Distance in points and direction of the places that are tried, nearest first."""
STEPS = 16
"""Parts of the line to a label, each of which is kept clear."""


class Label(NamedTuple):
    """Text to stand beside a point of the data."""

    text: str
    x: float
    y: float
    bold: bool = False


def place_labels(axis: Axes, labels: Sequence[Label], points: Iterable[tuple[float, float]]) -> None:
    """Write ``labels`` near their points, clear of each other, of the lines to them and of ``points`` (of the data);
    one for which there is no room is left out. Limits of the axes must be final."""
    from matplotlib.text import Text

    if not labels:
        return
    figure = axis.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    taken = [_around(axis, x, y) for x, y in points]
    written: list[Bbox] = []
    inside = axis.get_window_extent()
    for label in labels:
        for distance, (right, up) in SPOTS:
            note = _write(axis, label, distance * right, distance * up)
            note.get_window_extent()  # puts it in its place
            box = Text.get_window_extent(note).padded(1)  # without its line
            line = _line(axis, label, box) if note.arrow_patch is not None else []
            free = not any(box.overlaps(other) for other in taken)
            clear = not any(step.overlaps(other) for step in line for other in written)
            if free and clear and _holds(inside, box):
                taken += [box, *line]
                written.append(box)
                break
            note.remove()


def _write(axis: Axes, label: Label, right: float, up: float) -> Annotation:
    from matplotlib.patheffects import withStroke

    far = abs(right) + abs(up) > 24
    return axis.annotate(
        label.text,
        (label.x, label.y),
        (right, up),
        textcoords="offset points",
        ha="left" if right > 0 else "right" if right < 0 else "center",
        va="center" if right else "bottom" if up > 0 else "top",
        fontsize=8,
        fontweight="bold" if label.bold else "normal",
        arrowprops={"arrowstyle": "-", "color": "#222222", "lw": 0.5, "shrinkA": 0, "shrinkB": 3} if far else None,
        annotation_clip=False,
        path_effects=[withStroke(linewidth=2.5, foreground="white")],
    )


def _line(axis: Axes, label: Label, box: Bbox) -> list[Bbox]:
    """The line from a point to its label as boxes of pixels, without its end at the point."""
    from matplotlib.transforms import Bbox

    x, y = axis.transData.transform((label.x, label.y))
    across, up = min(max(x, box.x0), box.x1) - x, min(max(y, box.y0), box.y1) - y
    places = [(x + across * k / STEPS, y + up * k / STEPS) for k in range(1, STEPS)]
    return [Bbox([[left - 1, low - 1], [left + 1, low + 1]]) for left, low in places]


def _around(axis: Axes, x: float, y: float) -> Bbox:
    """A point as a box of pixels."""
    from matplotlib.transforms import Bbox

    across, up = axis.transData.transform((x, y))
    return Bbox([[across - 5, up - 5], [across + 5, up + 5]])


def _holds(outer: Bbox, inner: Bbox) -> bool:
    return bool(outer.x0 <= inner.x0 and inner.x1 <= outer.x1 and outer.y0 <= inner.y0 and inner.y1 <= outer.y1)
