"""Pictures of graphs: nothing overlaps, lines cross no box, and large graphs are folded."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

import tensortide
from tensortide.errors import GraphError
from tensortide.graph import Graph, GraphBuilder, Role
from tensortide.reports.drawing import picture, render_dot, render_svg
from tensortide.reports.drawing.layout import CHAR, LINE, Laid, laid_out
from tensortide.reports.drawing.tree import MOST_BOXES
from tests.cli.command import fails, run
from tests.graph.test_builder import mlp
from tests.graph.test_trips import searching
from tests.graphs import Builder, graphs
from tests.reports.graphs import tower

Rectangle = tuple[float, float, float, float]


def inside(x: float, y: float, box: Rectangle) -> bool:
    left, top, width, height = box
    return left + 0.5 < x < left + width - 0.5 and top + 0.5 < y < top + height - 0.5


def overlap(one: Rectangle, other: Rectangle) -> bool:
    apart = one[0] + one[2] <= other[0] + 0.1 or other[0] + other[2] <= one[0] + 0.1
    return not apart and not (one[1] + one[3] <= other[1] + 0.1 or other[1] + other[3] <= one[1] + 0.1)


def points(laid: Laid) -> Iterator[tuple[float, float]]:
    """Points of all lines, as they are drawn: straight, or bent half way down."""
    for _, line, _ in laid.lines:
        for (x, y), (to_x, to_y) in itertools.pairwise(line):
            for i in range(21):
                t = i / 20
                across = 3 * t * t - 2 * t * t * t
                down = 1.5 * t * (1 - t) ** 2 + 1.5 * t * t * (1 - t) + t**3
                yield x + (to_x - x) * across, y + (to_y - y) * (down if abs(to_x - x) >= 0.5 else t)


def assert_readable(graph: Graph) -> None:
    assert_all_readable(laid_out(picture(graph)))


def assert_all_readable(laid: Laid) -> None:
    boxes = [(x, y, width, height) for _, x, y, width, height in laid.boxes]
    labels = [(x, y - 9, (len(text) - 1) * CHAR, 10.0) for text, x, y in laid.labels]
    for one, other in itertools.combinations([*boxes, *labels], 2):
        assert not overlap(one, other), (one, other)
    for x, y in points(laid):
        assert not any(inside(x, y, box) for box in boxes), (x, y)
        assert 0 <= x <= laid.width
        assert 0 <= y <= laid.height
    for frame, x, y, width, height in laid.frames:
        assert len(frame.title) * CHAR <= width
        for other in boxes:
            within = x <= other[0] and other[0] + other[2] <= x + width and y + LINE <= other[1]
            assert within or not overlap((x, y, width, height), other)


def test_a_training_step_is_readable() -> None:
    assert_readable(mlp())


@pytest.mark.parametrize("known", [None, 10])
def test_loops_and_arms_have_frames(known: int | None) -> None:
    graph = searching(known)
    assert_readable(graph)
    text = render_svg(picture(graph))
    assert ("loop while_3 x? (counted 1)" in text) == (known is None)
    assert "conditional 0, arm 1" in text


def test_a_line_passes_the_taller_boxes_beside_the_box_that_it_leaves() -> None:
    builder = Builder()
    x = builder.storage(8, Role.INPUT, name="x")
    weights = [builder.storage(8, Role.PARAMETER, name=f"weight{number}") for number in range(4)]
    short = builder.storage(8, birth=0)
    builder.op([x], [short])
    for birth in (1, 2, 3):
        builder.op([x, *weights], [builder.storage(8, birth=birth)])
    builder.op([short], [builder.storage(8, birth=4)])
    assert_readable(builder.graph())


@given(graphs())
def test_any_graph_is_readable(graph: Graph) -> None:
    if len(graph):
        assert_readable(graph)
        ET.fromstring(render_svg(picture(graph)))


def test_a_large_graph_is_folded_by_module() -> None:
    graph = tower(31)
    assert len(graph) > MOST_BOXES
    shown = picture(graph)
    assert "folded by module to" in shown.caption
    laid = laid_out(shown)
    assert len(laid.boxes) <= MOST_BOXES + 2
    assert_all_readable(laid)
    assert "30 (Block)" in render_svg(shown)


def test_what_cannot_be_drawn_is_refused() -> None:
    b = GraphBuilder()
    x = b.input("x", (1,))
    arms = b.conditional()
    for i in range(MOST_BOXES + 1):
        with arms(i), b.phase("forward" if i % 2 else "backward"):
            b.op("aten.exp", x, out=x)
    with pytest.raises(GraphError, match="at most 150 boxes: this graph has 151 ops"):
        picture(b.build())
    with pytest.raises(GraphError, match="no ops"):
        picture(GraphBuilder().build())


def test_names_are_escaped() -> None:
    b = GraphBuilder('<b>"&')
    b.op("my.<op>", b.input('"x" & <y>', (1,)), out=(2,), label="<script>")
    ET.fromstring(render_svg(picture(b.build())))
    assert '\\"x\\" & <y>' in render_dot(picture(b.build()))


def test_the_text_for_graphviz_has_every_tensor() -> None:
    text = render_dot(picture(mlp()))
    assert text.count(" -> ") == sum(len(wire.targets) for wire in picture(mlp()).wires)
    assert text.count("{") == text.count("}")


def test_the_verb_writes_what_the_name_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = tmp_path / "step.tide"
    tensortide.save(searching(), step)
    run(capsys, "draw", step, "-o", tmp_path / "step.dot")
    assert (tmp_path / "step.dot").read_text().startswith("digraph")
    assert ".svg or .dot" in fails(capsys, "draw", step, "-o", tmp_path / "step.png")
