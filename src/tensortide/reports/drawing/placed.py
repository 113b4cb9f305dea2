"""A placement drawn over what is placed: layers or units as boxes in the colour of their device, each with its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tensortide.errors import GraphError
from tensortide.reports.drawing.tree import MOST_BOXES, Box, Frame, Picture, Wire

if TYPE_CHECKING:
    from tensortide.placements import Simulation
    from tensortide.placements.graphs import PlacedStep

COLORS = 8
"""Devices that differ in colour: more take the same ones in turn."""


def check_count(placed: int) -> None:
    """Raise GraphError if so many layers or units are more than a picture shows."""
    if placed > MOST_BOXES:
        raise GraphError(
            f"a picture has at most {MOST_BOXES} boxes, and {placed:,} are placed: draw fewer (units of a captured "
            "step: --depth, --units)"
        )


def net_picture(run: Simulation) -> Picture:
    """Draw the layers of a network, with the shapes of what they make. Raises GraphError if there are too many."""
    layers = run.net.layers(run.settings.batch_size)
    shapes = ["x".join(map(str, layer.output)) for layer in layers]
    caption = f"{run.net.name} on {run.cluster.name}: {run.jumps} of {run.edges} edges between devices"
    return _picture(
        caption,
        [layer.name for layer in layers],
        [*zip(shapes, run.net.children, strict=True)],
        run.placement,
        run.lanes[: len(run.cluster.devices)],
    )


def step_picture(placed: PlacedStep) -> Picture:
    """Draw the units of a captured step: what a unit reads of those before it, gradients left out.

    Raises GraphError if there are too many.
    """
    graph, problem, run = placed.ready.graph, placed.ready.problem, placed.simulated
    readers: list[dict[int, None]] = [{} for _ in problem.names]
    for unit, reader in problem.edges.tolist():
        if unit < reader:
            readers[unit][reader] = None
    devices = [device.name for device in run.step.cluster.devices]
    caption = f"{graph.meta.workload} on {run.step.cluster.name}: units of the step, gradients left out"
    return _picture(caption, problem.names, [("", tuple(each)) for each in readers], run.place, devices)


def _picture(
    caption: str,
    names: Sequence[str],
    outputs: Sequence[tuple[str, Iterable[int]]],
    place: Sequence[int],
    devices: Sequence[str],
) -> Picture:
    """Draw boxes called ``names``, which stand behind all that they read.

    ``outputs``: by box, what it makes and the boxes that read it. One line goes to the readers on its own device, and
    one to those on each other device.
    """
    check_count(len(names))
    boxes = [
        Box(name, (devices[device],), f"device{device % COLORS}") for name, device in zip(names, place, strict=True)
    ]
    wires = []
    for number, (label, readers) in enumerate(outputs):
        by_device: dict[int, list[Box]] = {}
        for reader in readers:
            by_device.setdefault(int(place[reader]), []).append(boxes[reader])
        for device, targets in by_device.items():
            kind = "" if device == place[number] else "across"
            wires.append(Wire(label, boxes[number], tuple(targets), kind))
    return Picture(Frame("", "step", [*boxes]), tuple(wires), caption)
