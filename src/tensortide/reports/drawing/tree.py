"""What a picture shows: boxes in nested frames, in the order of the ops, and the tensors that go between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tensortide.errors import GraphError
from tensortide.graph import OUTSIDE, Graph, Phase, Role
from tensortide.graph.model import describe

MOST_BOXES = 150
"""Most boxes of a picture; a larger graph is folded by module."""
_FEW_LINES = 4


@dataclass(eq=False)
class Box:
    """An op, an input, or a folded module: its title, smaller lines below it, and how it looks."""

    title: str
    lines: tuple[str, ...] = ()
    kind: str = "op"


@dataclass(eq=False)
class Frame:
    """Boxes and frames inside a labelled frame, in order."""

    title: str
    kind: str
    items: list[Box | Frame] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class DrawnWire:
    """A tensor from the box that makes it to those that read it; none: it leaves the step. ``kind`` is how it looks."""

    label: str
    source: Box
    targets: tuple[Box, ...]
    kind: str = ""


@dataclass(frozen=True)
class Picture:
    """A root frame, the wires, and a caption."""

    root: Frame
    wires: tuple[DrawnWire, ...]
    caption: str


def picture(graph: Graph) -> Picture:
    """Make the picture of ``graph``: every op, or folded by module as far as needed.

    Raises GraphError for a graph that is too large even so, and for one without ops.
    """
    if not len(graph):
        raise GraphError("the graph has no ops: there is nothing to draw")
    paths = [_path(graph, op) for op in range(len(graph))]
    fewest = len(graph)
    for depth in (None, *range(max(map(len, paths)), 0, -1)):
        groups = _groups(paths, depth)
        fewest = min(fewest, len(groups))
        if len(groups) <= MOST_BOXES:
            return _drawn(graph, paths, groups, depth)
    raise GraphError(
        f"a picture has at most {MOST_BOXES} boxes: this graph has {len(graph):,} ops, and {fewest:,} boxes folded by "
        "module. Draw a smaller one: fewer layers, or a part of it (tensortide.graph.edits)"
    )


def _path(graph: Graph, index: int) -> tuple[tuple[str, str], ...]:
    """The frames around an op, outermost first: kind and title."""
    op = graph.ops[index]
    frames = [("phase", op.phase.value + (" (recomputed)" if op.recompute else ""))]
    loops: list[tuple[str, str]] = []
    at = op.loop
    while at != OUTSIDE:
        loop = graph.loops[at]
        trips = f"? (counted {loop.trips})" if loop.assumed else f"{loop.trips}"
        loops.append(("loop", f"loop {loop.name} x{trips}"))
        at = loop.parent
    arms: list[tuple[str, str]] = []
    at = op.branch
    while at != OUTSIDE:
        branch = graph.branches[at]
        arms.append(("branch", f"conditional {branch.conditional}, arm {branch.arm}"))
        at = branch.parent
    frames += [*reversed(loops), *reversed(arms)]
    if op.module != OUTSIDE:
        module = graph.modules[op.module]
        parts = module.path.split(".") if module.path else []
        frames += [("module", part) for part in parts[:-1]]
        frames += [("module", f"{part} ({module.type})" if module.type else part) for part in parts[-1:]]
    return tuple(frames)


def _groups(paths: Sequence[tuple[tuple[str, str], ...]], depth: int | None) -> list[list[int]]:
    """Runs of ops that one box stands for: single ops, or those in one module below ``depth`` frames."""
    groups: list[list[int]] = []
    for op, path in enumerate(paths):
        cut = _cut(path, depth)
        if cut and groups and paths[groups[-1][0]][:cut] == path[:cut]:
            groups[-1].append(op)
        else:
            groups.append([op])
    return groups


def _cut(path: tuple[tuple[str, str], ...], depth: int | None) -> int:
    """How many frames around an op one box stands for: 0 for a box of its own. Folding leaves the optimizer one box."""
    if depth is None:
        return 0
    if path[0][1] == Phase.OPTIMIZER:
        return 1
    return depth if len(path) >= depth and path[depth - 1][0] in ("module", "phase") else 0


def _drawn(
    graph: Graph, paths: Sequence[tuple[tuple[str, str], ...]], groups: Sequence[Sequence[int]], depth: int | None
) -> Picture:
    root = Frame(graph.meta.workload, "step")
    boxes: dict[int, Box] = {}
    inputs = _inputs(graph, root)
    open_frames: list[Frame] = [root]
    open_path: list[tuple[str, str]] = []
    for ops in groups:
        folded = len(ops) > 1
        path = paths[ops[0]][: _cut(paths[ops[0]], depth) - 1] if folded else paths[ops[0]]
        shared = next((i for i, (a, b) in enumerate(zip(open_path, path, strict=False)) if a != b),
                      min(len(open_path), len(path)))  # fmt: skip
        del open_frames[shared + 1 :], open_path[shared:]
        for kind, title in path[shared:]:
            open_frames[-1].items.append(inner := Frame(title, kind))
            open_frames.append(inner)
            open_path.append((kind, title))
        box = _folded(graph, ops, paths[ops[0]][len(path)][1]) if folded else _box(graph, ops[0])
        open_frames[-1].items.append(box)
        boxes |= dict.fromkeys(ops, box)
    caption = f"{graph.meta.workload}: {len(graph):,} ops"
    if depth is not None:
        caption += f", folded by module to {len(groups):,} boxes"
    return Picture(root, tuple(_bundled(_wires(graph, boxes, inputs))), caption)


def _inputs(graph: Graph, root: Frame) -> dict[int, Box]:
    """Boxes of the step's inputs, by storage: those that ops read."""
    found: dict[int, Box] = {}
    for op in graph.ops:
        for tensor in op.inputs:
            storage = graph.storages[home := graph.tensors[tensor].storage]
            if storage.birth is None and storage.role is Role.INPUT and home not in found:
                found[home] = Box(storage.name or "input", (), "input")
    root.items += found.values()
    return found


def _box(graph: Graph, op: int) -> Box:
    view = graph[op]
    names = {entry.tensor: entry.name for entry in reversed(graph.named)}
    lines = []
    for tensor in dict.fromkeys(view.op.inputs):
        storage = graph.storages[graph.tensors[tensor].storage]
        if storage.birth is None and storage.role is not Role.INPUT:
            lines.append(f"{names.get(tensor) or storage.name or storage.role.value} {describe(graph.tensors[tensor])}")
    if len(lines) > _FEW_LINES:
        lines = [*lines[: _FEW_LINES - 1], f"and {len(lines) - _FEW_LINES + 1} more"]
    title = view.op.label or view.name.removesuffix(".default").removeprefix("aten.")
    return Box(title, tuple(lines), "view" if view.is_view else "op")


def _folded(graph: Graph, ops: Sequence[int], title: str) -> Box:
    return Box(title, (f"{len(ops):,} ops",), "module")


def _bundled(wires: Iterable[DrawnWire]) -> Iterator[DrawnWire]:
    """Join the tensors that go from one box to the same others."""
    groups: dict[tuple[Box, frozenset[Box]], list[DrawnWire]] = {}
    for wire in wires:
        groups.setdefault((wire.source, frozenset(wire.targets)), []).append(wire)
    for first, *others in groups.values():
        label = first.label if not others else f"{1 + len(others)} tensors"
        yield DrawnWire(label if len(others) != 1 else f"{first.label}, {others[0].label}", first.source, first.targets)


def _wires(graph: Graph, boxes: dict[int, Box], inputs: dict[int, Box]) -> Iterator[DrawnWire]:
    """Tensors between boxes: from the op that made or wrote them last, to those that read them."""
    maker: dict[int, int] = {}
    writer: dict[int, int] = {}
    readers: dict[tuple[Box, int], dict[Box, None]] = {}
    for index, op in enumerate(graph.ops):
        for tensor in op.inputs:
            home = graph.tensors[tensor].storage
            made = max(maker.get(tensor, -1), writer.get(home, -1))
            source = boxes[made] if made >= 0 else inputs.get(home)
            if source is not None and source is not boxes[index]:
                readers.setdefault((source, tensor), {})[boxes[index]] = None
        for slot in graph.calls[op.call].mutated:
            writer[graph.tensors[op.inputs[slot]].storage] = index
        maker |= dict.fromkeys(op.outputs, index)
    for tensor, index in maker.items():
        if graph.storages[graph.tensors[tensor].storage].role is Role.OUTPUT:
            readers.setdefault((boxes[index], tensor), {})
    for (source, tensor), targets in readers.items():
        yield DrawnWire(describe(graph.tensors[tensor]), source, tuple(targets))
