"""A picture as the text that Graphviz draws."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tensortide.reports.drawing.tree import Box, Frame, Picture

_SHAPES = {"input": "ellipse", "module": "box3d"}


def render_dot(picture: Picture) -> str:
    """Write the picture as a digraph with clusters."""
    numbers: dict[Box, int] = {}
    lines = ["digraph {", f"label={_quoted(picture.caption)};", "node [shape=box, fontname=monospace, fontsize=10];"]
    lines += ["edge [fontname=monospace, fontsize=9];", *_inside(picture.root, numbers)]
    for wire in picture.wires:
        for target in wire.targets:
            lines.append(f"n{numbers[wire.source]} -> n{numbers[target]} [label={_quoted(wire.label)}];")
    return "\n".join([*lines, "}"]) + "\n"


def _inside(frame: Frame, numbers: dict[Box, int]) -> Iterator[str]:
    for item in frame.items:
        if isinstance(item, Box):
            numbers[item] = len(numbers)
            label = _quoted("\n".join((item.title, *item.lines)))
            yield f"n{numbers[item]} [label={label}, shape={_SHAPES.get(item.kind, 'box')}];"
        else:
            style = "dashed" if item.kind in ("loop", "branch") else "rounded"
            yield f"subgraph cluster_{id(item)} {{ label={_quoted(item.title)}; style={style};"
            yield from _inside(item, numbers)
            yield "}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
