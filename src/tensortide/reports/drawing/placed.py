"""A placement drawn over what is placed: layers or units as boxes in the colour of their device, each with its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.graph import Phase
from tensortide.placements.graphs.values import GIVEN
from tensortide.reports.drawing.tree import MOST_BOXES, Box, DrawnWire, Frame, Picture
from tensortide.studies.placement.placed import StepPlacement
from tensortide.studies.placement.placed_net import PlacedNet
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.placements import Net, Simulation
    from tensortide.placements.genes import OnDevices
    from tensortide.placements.graphs import PlacedStep
    from tensortide.studies.placement.outcome import Placed

_ACROSS = "dashed where sent from one device to another"
COLORS = 8
"""Devices that differ in colour: more take the same ones in turn."""


def check_count(placed: int) -> None:
    """Raise GraphError if so many layers or units are more than a picture shows."""
    if placed > MOST_BOXES:
        raise GraphError(
            f"a picture has at most {MOST_BOXES} boxes, and {placed:,} are placed: draw fewer (units of a captured "
            "step: --depth, --units)"
        )


def picture_of(placed: Placed) -> Picture:
    """Draw a placed network or captured step. Raises GraphError if it has too many layers or units."""
    if isinstance(placed, PlacedNet):
        return net_picture(placed.simulated, placed.subject.net, placed.placement)
    assert isinstance(placed, StepPlacement), "a workload has no picture"
    return step_picture(placed.found)


def net_picture(run: Simulation, net: Net, place: Sequence[OnDevices]) -> Picture:
    """Draw the layers of ``net``, placed as ``place`` says, with the shapes of what they make. Raises GraphError if
    there are too many."""
    layers = net.layers(run.settings.batch_size)
    shapes = ["x".join(map(str, layer.output)) for layer in layers]
    caption = f"{net.name} on {run.cluster.name}: {run.jumps} of {run.edges} edges between devices, {_ACROSS}"
    return _picture(
        caption,
        [layer.name for layer in layers],
        [[(child, shape) for child in own] for shape, own in zip(shapes, net.children, strict=True)],
        place,
        run.lanes[: len(run.cluster.devices)],
    )


def step_picture(placed: PlacedStep) -> Picture:
    """Draw the units of a captured step: what each reads in the forward pass of those before it, and the bytes that its
    device reads of them.

    Raises GraphError if there are too many.
    """
    graph, problem, run = placed.ready.graph, placed.ready.problem, placed.simulated
    devices = [device.name for device in run.step.cluster.devices]
    caption = f"{graph.meta.workload} on {run.step.cluster.name}: units of the step and their forward pass, {_ACROSS}"
    return _picture(caption, problem.names, _forward(placed), run.place, devices)


def _forward(placed: PlacedStep) -> list[list[tuple[int, str]]]:
    """List for each unit the later units whose forward pass reads its values, with the bytes that all on one device
    read: a value goes to a device once."""
    graph, step, place = placed.ready.graph, placed.simulated.step, placed.simulated.place
    forward = [op.phase is Phase.FORWARD for op in graph.ops]
    readers: list[dict[int, None]] = [{} for _ in placed.ready.problem.names]
    sizes = Counter[tuple[int, int]]()
    for value in step.values.values:
        if value.free or (value.writer != GIVEN and not forward[value.writer]):
            continue
        unit = step.units.home[value.storage]
        later = [step.units.of_op[op] for op in value.readers if forward[op] and step.units.of_op[op] > unit]
        readers[unit].update(dict.fromkeys(later))
        for device in {place[reader] for reader in later}:
            sizes[unit, device] += value.nbytes
    return [
        [(reader, format_bytes(sizes[unit, place[reader]])) for reader in each] for unit, each in enumerate(readers)
    ]


def _picture(
    caption: str,
    names: Sequence[str],
    outputs: Sequence[Iterable[tuple[int, str]]],
    place: Sequence[OnDevices],
    devices: Sequence[str],
) -> Picture:
    """Draw boxes called ``names``, which stand behind all that they read.

    ``outputs``: by box, the boxes that read it, each with the label of the line to it. One line goes to the readers on
    its own device, and one to those on each other device. A box that devices share has the colour of the first.
    """
    check_count(len(names))
    own = [one if isinstance(one, tuple) else (int(one),) for one in place]
    boxes = [
        Box(name, tuple(devices[one] for one in of), f"device{of[0] % COLORS}")
        for name, of in zip(names, own, strict=True)
    ]
    wires = []
    for number, readers in enumerate(outputs):
        by_device: dict[tuple[tuple[int, ...], str], list[Box]] = {}
        for reader, label in readers:
            by_device.setdefault((own[reader], label), []).append(boxes[reader])
        for (device, label), targets in by_device.items():
            kind = "" if device == own[number] else "across"
            wires.append(DrawnWire(label, boxes[number], tuple(targets), kind))
    return Picture(Frame("", "step", [*boxes]), tuple(wires), caption)
