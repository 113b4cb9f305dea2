"""Places of boxes and lines: a layered layout in every frame, from the inside out.

The items of a frame (boxes, and frames that are laid out already) stand in layers below what they read. A tensor that
crosses layers, or comes from outside or goes there, holds a narrow place in each, so that no line crosses a box. Items
of a layer are ordered by the mean place of what they read (K. Sugiyama, S. Tagawa, M. Toda: Methods for visual
understanding of hierarchical system structures. IEEE Trans. SMC 11(2), 1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tensortide.reports.drawing.tree import Box, DrawnWire, Frame, Picture

CHAR, LINE, PAD, GAP, LANE = 6.7, 15, 8, 22, 14
"""Pixels: width of a character, height of a line, inside of a box, between items, width of a line's place."""
HEAD = 20
"""Height of the title of a frame."""

Point = tuple[float, float]


@dataclass(eq=False)
class _Slot:
    """A place in a layer: an item, or where a wire passes."""

    width: float
    height: float
    x: float = 0
    y: float = 0
    bottom: float = 0  # of its row: lines go sideways only between rows, where no box is


@dataclass
class Laid:
    """The size of a frame and, from its corner, places of boxes and frames inside, pieces of lines, and where wires
    enter at its top and leave at its bottom."""

    width: float = 0
    height: float = 0
    boxes: list[tuple[Box, float, float, float, float]] = field(default_factory=list)
    frames: list[tuple[Frame, float, float, float, float]] = field(default_factory=list)
    lines: list[tuple[DrawnWire, tuple[Point, ...], bool]] = field(default_factory=list)
    labels: list[tuple[str, float, float]] = field(default_factory=list)
    enters: dict[DrawnWire, float] = field(default_factory=dict)
    leaves: dict[DrawnWire, float] = field(default_factory=dict)


def laid_out(picture: Picture) -> Laid:
    """Lay out a picture."""
    return _Layout(picture).frame(picture.root, set(), set())


class _Layout:
    def __init__(self, picture: Picture) -> None:
        self.made: dict[Box, list[DrawnWire]] = {}
        self.read: dict[Box, list[DrawnWire]] = {}
        for wire in picture.wires:
            self.made.setdefault(wire.source, []).append(wire)
            for target in wire.targets:
                self.read.setdefault(target, []).append(wire)
        self.inside: dict[Box | Frame, set[Box]] = {}
        self._collect(picture.root)

    def _collect(self, item: Box | Frame) -> set[Box]:
        found = {item} if isinstance(item, Box) else set().union(*map(self._collect, item.items), set())
        self.inside[item] = found
        return found

    def frame(self, frame: Frame, enter: set[DrawnWire], leave: set[DrawnWire]) -> Laid:
        """Lay out a frame into which some wires go and out of which others."""
        items = frame.items
        home = {box: item for item in items for box in self.inside[item]}
        reads: dict[Box | Frame, list[DrawnWire]] = {item: [] for item in items}
        makes: dict[Box | Frame, list[DrawnWire]] = {item: [] for item in items}
        for box, item in home.items():
            reads[item] += [
                w for w in self.read.get(box, ()) if home.get(w.source) is not item and w not in reads[item]
            ]
            makes[item] += self.made.get(box, ())
        layers = self._layers(items, home, reads)
        depth = 1 + max(layers.values())
        parts = {item: self._part(item, reads[item], makes[item]) for item in items}
        rows: list[list[_Slot]] = [[] for _ in range(depth + 2)]
        slots: dict[Box | Frame, _Slot] = {}
        for item in items:
            slots[item] = _Slot(parts[item].width, parts[item].height)
            rows[layers[item] + 1].append(slots[item])
        passes = self._passes(rows, items, home, reads, makes, layers, enter, leave, depth)
        _order(rows, self._near(rows, slots, passes))
        laid = _placed(rows, len(frame.title) * CHAR + 2 * PAD)
        self._draw(laid, frame, parts, slots, home, reads, passes, layers, enter, leave, depth)
        return laid

    def _layers(
        self, items: Sequence[Box | Frame], home: dict[Box, Box | Frame], reads: dict[Box | Frame, list[DrawnWire]]
    ) -> dict[Box | Frame, int]:
        """Put each item below what it reads: in the order of the ops, which no item precedes what it reads."""
        layers: dict[Box | Frame, int] = {}
        for item in items:
            sources = (home[w.source] for w in reads[item] if w.source in home)
            layers[item] = 1 + max((layers[source] for source in sources if source in layers), default=-1)
        return layers

    def _part(self, item: Box | Frame, reads: list[DrawnWire], makes: list[DrawnWire]) -> Laid:
        """Lay out one item by itself."""
        if isinstance(item, Frame):
            inside = self.inside[item]
            out = {w for w in makes if not w.targets or any(t not in inside for t in w.targets)}
            return self.frame(item, set(reads), out)
        outs = list(makes)
        labels = [len(w.label) * CHAR + LANE for w in outs]
        texts = [item.title, *item.lines]
        width = max(max(map(len, texts)) * CHAR + 2 * PAD, LANE * (len(reads) + 1), sum(labels))
        height = LINE * len(texts) + PAD
        laid = Laid(width, height + (LINE if outs else 0), [(item, 0, 0, width, height)])
        laid.enters = {w: width * (i + 1) / (len(reads) + 1) for i, w in enumerate(reads)}
        at = max(0.0, (width - sum(labels)) / 2)
        for wire, wide in zip(outs, labels, strict=True):
            laid.leaves[wire] = at + 6
            laid.lines.append((wire, ((at + 6, height), (at + 6, height + LINE)), not wire.targets))
            laid.labels.append((wire.label, at + 10, height + LINE - 4))
            at += wide
        return laid

    def _passes(
        self,
        rows: list[list[_Slot]],
        items: Sequence[Box | Frame],
        home: dict[Box, Box | Frame],
        reads: dict[Box | Frame, list[DrawnWire]],
        makes: dict[Box | Frame, list[DrawnWire]],
        layers: dict[Box | Frame, int],
        enter: set[DrawnWire],
        leave: set[DrawnWire],
        depth: int,
    ) -> dict[tuple[DrawnWire, int], _Slot]:
        """Give every wire a place in each row that it passes: row 0 is the top border, the last the bottom one."""
        span: dict[DrawnWire, tuple[int, int]] = {}
        for item in items:
            for wire in reads[item]:
                start = layers[home[wire.source]] + 2 if wire.source in home else 0
                begin, end = span.get(wire, (start, start))
                span[wire] = begin, max(end, layers[item] + 1)
            for wire in makes[item]:
                if wire in leave:
                    begin, _ = span.get(wire, (layers[item] + 2, 0))
                    span[wire] = begin, depth + 2
        for wire in sorted(enter, key=lambda w: w.label):
            span.setdefault(wire, (0, 1))
        passes: dict[tuple[DrawnWire, int], _Slot] = {}
        for wire, (begin, end) in span.items():
            for row in range(begin, end):
                passes[wire, row] = slot = _Slot(LANE, 0)
                rows[row].append(slot)
        return passes

    def _near(
        self, rows: list[list[_Slot]], slots: dict[Box | Frame, _Slot], passes: dict[tuple[DrawnWire, int], _Slot]
    ) -> dict[_Slot, list[_Slot]]:
        """The slots in the row above that each slot hangs from."""
        home = {box: slot for item, slot in slots.items() for box in self.inside[item]}
        row_of = {id(slot): i for i, row in enumerate(rows) for slot in row}
        near: dict[_Slot, list[_Slot]] = {}
        for (wire, row), slot in passes.items():
            above = passes.get((wire, row - 1)) or home.get(wire.source)
            near.setdefault(slot, []).extend([above] if above is not None else [])
        for item, slot in slots.items():
            for box in self.inside[item]:
                for wire in self.read.get(box, ()):
                    above = passes.get((wire, row_of[id(slot)] - 1)) or home.get(wire.source)
                    if above is not None and above is not slot:
                        near.setdefault(slot, []).append(above)
        return near

    def _draw(
        self,
        laid: Laid,
        frame: Frame,
        parts: dict[Box | Frame, Laid],
        slots: dict[Box | Frame, _Slot],
        home: dict[Box, Box | Frame],
        reads: dict[Box | Frame, list[DrawnWire]],
        passes: dict[tuple[DrawnWire, int], _Slot],
        layers: dict[Box | Frame, int],
        enter: set[DrawnWire],
        leave: set[DrawnWire],
        depth: int,
    ) -> None:
        """Take over the parts at their places, and join them by lines."""
        for item in frame.items:
            part, slot = parts[item], slots[item]
            if isinstance(item, Frame):
                laid.frames.append((item, slot.x, slot.y, part.width, part.height))
            laid.boxes += [(b, x + slot.x, y + slot.y, w, h) for b, x, y, w, h in part.boxes]
            laid.frames += [(f, x + slot.x, y + slot.y, w, h) for f, x, y, w, h in part.frames]
            laid.labels += [(text, x + slot.x, y + slot.y) for text, x, y in part.labels]
            moved = ((w, tuple((x + slot.x, y + slot.y) for x, y in points), end) for w, points, end in part.lines)
            laid.lines += moved

        def start(wire: DrawnWire) -> tuple[list[Point], int]:
            """Where a wire begins in this frame, and the first row below that."""
            if wire.source not in home:
                return [], 0
            slot, part = slots[home[wire.source]], parts[home[wire.source]]
            x = slot.x + part.leaves[wire]
            places = [(x, y) for y in dict.fromkeys((slot.y + part.height, slot.bottom))]
            return places, layers[home[wire.source]] + 2

        def through(wire: DrawnWire, row: int) -> list[Point]:
            points, begin = start(wire)
            for each in range(begin, row):
                slot = passes[wire, each]
                points += [(slot.x + LANE / 2, slot.y), (slot.x + LANE / 2, slot.bottom)]
            return points

        for item in frame.items:
            slot, part = slots[item], parts[item]
            for wire in reads[item]:
                end = (slot.x + part.enters[wire], slot.y)
                laid.lines.append((wire, (*through(wire, layers[item] + 1), end), isinstance(item, Box)))
        for wire in leave:
            laid.lines.append((wire, tuple(through(wire, depth + 2)), False))
            laid.leaves[wire] = laid.lines[-1][1][-1][0]
        laid.enters = {wire: passes[wire, 0].x + LANE / 2 for wire in enter}


def _order(rows: list[list[_Slot]], near: dict[_Slot, list[_Slot]]) -> None:
    """Order each row by the mean place of what it hangs from, from the top down."""
    place: dict[_Slot, float] = {}
    for row in rows:

        def mean(slot: _Slot) -> float:
            above = [place[other] for other in near.get(slot, ()) if other in place]
            return sum(above) / len(above) if above else 0.0

        row.sort(key=mean)
        whole = sum(slot.width + GAP for slot in row)
        at = -whole / 2
        for slot in row:
            place[slot] = at + slot.width / 2
            at += slot.width + GAP


def _placed(rows: list[list[_Slot]], least: float) -> Laid:
    """Give slots their coordinates: rows below each other, each in the middle; ``least``: the width of the title."""
    width = max(least, max(sum(slot.width for slot in row) + GAP * (len(row) - 1) for row in rows if row) + 2 * GAP)
    y = float(HEAD)
    for i, row in enumerate(rows):
        height = max((slot.height for slot in row), default=0)
        x = (width - sum(slot.width for slot in row) - GAP * (len(row) - 1)) / 2 if row else 0
        border = i in (0, len(rows) - 1)
        for slot in row:
            slot.x, slot.y, slot.bottom = x, y, y + height
            x += slot.width + GAP
        y += GAP * bool(row) if border else height + GAP
    for slot in rows[0]:
        slot.y = 0
    for slot in rows[-1]:
        slot.y = slot.bottom = y
    return Laid(width, y)
