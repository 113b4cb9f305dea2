"""A placement in the words of other tools: a device map of modules, and where a pipeline is split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensortide.errors import PlanError
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role, within
from tensortide.placements.graphs.simulate import Simulated


def device_map(run: Simulated) -> dict[str, str]:
    """The device of every module that has parameters or buffers, as ``accelerate.dispatch_model`` takes it.

    A module stands for all inside it that are on its device; tied weights count in each module that has them. Raises
    PlanError for a module whose own parameters are on several devices, which such a map cannot say.
    """
    place = run.place
    names = [device.name for device in run.step.cluster.devices]
    found: dict[str, str] = {}
    for name, storage in _weights(run.step.graph):
        module = name.rpartition(".")[0]
        device = names[place[run.step.units.home[storage]]]
        if found.setdefault(module, device) != device:
            raise PlanError(f"parameters of module {module!r} are on {found[module]} and {device}")
    return _merged(found)


def _weights(graph: Graph) -> Iterator[tuple[str, int]]:
    """Yield the storage of every parameter and buffer with its name, tied ones with each of their names."""
    kinds = (Role.PARAMETER, Role.BUFFER)
    for storage, held in enumerate(graph.storages):
        if held.role in kinds:
            yield held.name, storage
    for entry in graph.named:
        storage = graph.tensors[entry.tensor].storage
        if entry.role in kinds and graph.storages[storage].role in kinds:
            yield entry.name, storage


def _merged(devices: dict[str, str]) -> dict[str, str]:
    """``devices`` with the outermost modules that stand for all inside them."""
    outer = {path.rpartition(".")[0] for path in devices}
    while outer:
        for path in sorted(outer, key=len, reverse=True):
            inside = {device for module, device in devices.items() if within(module, path)}
            if len(inside) == 1:
                devices = {module: device for module, device in devices.items() if not within(module, path)}
                devices[path] = inside.pop()
        outer = {path.rpartition(".")[0] for path in outer if path}
    return dict(sorted(devices.items()))


def split_points(run: Simulated) -> tuple[str, ...]:
    """The modules with which a new stage begins, as ``torch.distributed.pipelining`` takes them
    (``split_spec={name: SplitPoint.BEGINNING}``).

    Raises PlanError if a stage begins inside of what runs in a module before it, or if a device has several stages.
    """
    graph = run.step.graph
    forward = [op for op, record in enumerate(graph.ops) if record.phase is Phase.FORWARD and not graph[op].is_view]
    ops = [op for op in forward if graph.ops[op].module != OUTSIDE]
    devices = [int(run.device[op]) for op in ops]
    starts = [i for i in range(1, len(ops)) if devices[i] != devices[i - 1]]
    if len({*devices}) != len(starts) + 1:
        raise PlanError("a device has several stages of the forward pass: the pipeline cannot be split in two places")
    return tuple(_begins(graph, ops[:start], ops[start]) for start in starts)


def _begins(graph: Graph, before: Sequence[int], op: int) -> str:
    """The outermost module that begins with ``op``: no op ``before`` is in it."""
    path = graph.modules[graph.ops[op].module].path.split(".")
    earlier = [graph.modules[graph.ops[each].module].path for each in before]
    for depth in range(1, len(path) + 1):
        name = ".".join(path[:depth])
        if name and not _any_within(earlier, name):
            return name
    raise PlanError(f"a stage begins at op {op} ({graph[op].name}), within module {'.'.join(path) or '(root)'!r}")


def _any_within(paths: Iterable[str], module: str) -> bool:
    return any(within(path, module) for path in paths)
