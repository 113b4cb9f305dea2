"""Placements drawn over nets and captured steps: every box in the colour of its device, every crossing marked."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter

import pytest
import torch
from torch import nn

import tensortide
from tensortide.errors import GraphError
from tensortide.graph import Phase
from tensortide.placements import Simulation, simulate
from tensortide.placements.graphs import Grouping, PlaceOptions, placed, ready
from tensortide.reports.drawing import Picture, check_count, render_dot, render_svg
from tensortide.reports.drawing.layout import CHAR
from tensortide.reports.drawing.placed import net_picture, step_picture
from tensortide.reports.drawing.tree import MOST_BOXES, Box
from tensortide.units import format_bytes
from tests.placements import cases
from tests.placements.graphs.steps import captured, cluster


@pytest.fixture
def run() -> Simulation:
    net = cases.net("alex_v2")
    return simulate(net, cases.cluster("malvik"), [number % 3 for number in range(len(net.order))], batch_size=4)


def titles(shown: Picture) -> list[tuple[str, tuple[str, ...]]]:
    """The title and lines of every box."""
    return [(box.title, box.lines) for box in shown.root.items if isinstance(box, Box)]


def test_each_layer_has_the_colour_and_name_of_its_device(run: Simulation) -> None:
    shown = net_picture(run, run.net, run.placement)
    devices = [f"{number}: {device.row.name}" for number, device in enumerate(run.cluster.devices)]
    assert titles(shown) == [
        (name, (devices[device],)) for name, device in zip(run.net.order, run.placement, strict=True)
    ]
    text = render_svg(shown)
    seen = Counter(re.findall(r'class="box (device\d)"', text))
    assert seen == {f"device{device}": count for device, count in Counter(run.placement).items()}
    for kind in seen:
        assert text.count(f".{kind}{{fill:") == 2, "one colour on light pages, one on dark ones"
    assert devices[2] in render_dot(shown)


def test_lines_between_devices_are_marked_and_have_shapes(run: Simulation) -> None:
    wires = net_picture(run, run.net, run.placement).wires
    crossing = [(wire.source.title, target.title) for wire in wires if wire.kind for target in wire.targets]
    place = dict(zip(run.net.order, run.placement, strict=True))
    assert len(crossing) == run.jumps
    assert all(place[source] != place[target] for source, target in crossing)
    assert sum(len(wire.targets) for wire in wires) == run.edges
    assert wires[0].label == "4x224x224x3"
    assert 'class="wire across"' in render_svg(net_picture(run, run.net, run.placement))


def test_the_page_is_as_wide_as_its_caption(run: Simulation) -> None:
    shown = net_picture(run, run.net, run.placement)
    assert float(ET.fromstring(render_svg(shown)).attrib["width"]) > len(shown.caption) * CHAR


def test_units_of_a_step_are_drawn_with_what_they_read_of_those_before() -> None:
    prepared = ready(captured("gpt2"), cluster(2), PlaceOptions(Grouping(depth=2)))
    names = prepared.problem.names
    shown = step_picture(placed(prepared, [int(name == "blocks.1") for name in names]))
    where = {name: "gpu1" if name == "blocks.1" else "gpu0" for name in names}
    assert titles(shown) == [(name, (at,)) for name, at in where.items()]
    reads = {(wire.source.title, target.title, wire.kind) for wire in shown.wires for target in wire.targets}
    assert ("blocks.0", "blocks.1", "across") in reads
    assert ("blocks.0", "(outside)", "") not in reads, "its gradients go there, and nothing of the forward pass"
    assert all(names.index(source) < names.index(target) for source, target, _ in reads)
    assert render_svg(shown)


class _Tied(nn.Module):
    """A table whose rows are read by what embeds and whose whole is read by the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.middle = nn.Embedding(50, 16), nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.middle(self.table(tokens)) @ self.table.weight.T
        return made


@pytest.mark.parametrize("across", ["middle", "(root)"])
def test_a_line_between_devices_has_the_bytes_that_go_over_it(across: str) -> None:
    """By hand: of the table, 12 embedded rows of 16 numbers go to the middle, and all 50 rows to the product behind it;
    12 rows that the middle makes, and the result. These are the transfers that the forward pass waits for."""
    graph = tensortide.capture(_Tied(), torch.randint(0, 50, (3, 4)), loss="sum", optimizer="sgd")
    prepared = ready(graph, cluster(2), PlaceOptions())
    found = placed(prepared, [int(name == across) for name in prepared.problem.names])
    wires = [wire for wire in step_picture(found).wires if wire.kind == "across"]
    lines = {(wire.source.title, target.title): wire.label for wire in wires for target in wire.targets}
    rows, table, result = 4 * 12 * 16, 4 * 50 * 16, 4 * 12 * 50
    expected = {("middle", "(root)"): rows}
    if across == "middle":
        expected["table", "middle"] = rows
    else:
        expected |= {("table", "(root)"): table, ("(root)", "(outside)"): result}
    assert lines == {pair: format_bytes(nbytes) for pair, nbytes in expected.items()}
    run, forward = found.simulated, [op.phase is Phase.FORWARD for op in graph.ops]
    sent = 0
    for number, target in zip(run.sent.tolist(), run.send_target.tolist(), strict=True):
        value = run.step.values.values[number]
        read = any(forward[op] and run.device[op] == target for op in value.readers)
        sent += value.nbytes * (read and (value.writer < 0 or forward[value.writer]))
    assert sent == sum(expected.values()) > 0


def test_more_boxes_than_can_be_read_are_refused() -> None:
    check_count(MOST_BOXES)
    with pytest.raises(GraphError, match=r"at most 150 boxes, and 151 are placed"):
        check_count(MOST_BOXES + 1)
