"""A placement in the words of other tools: a device map of modules, and where a pipeline is split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tensortide.errors import PlanError
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.graph.module_paths import within
from tensortide.placements.graphs.closures import forward_ops
from tensortide.placements.graphs.simulate import Simulated
from tensortide.placements.graphs.tables import Step

if TYPE_CHECKING:
    from tensortide.placements.graphs.placed_step import PlacedStep, Ready

BEGINNING = "BEGINNING"
"""The ``SplitPoint`` before a module."""
MOST_NAMED = 3
"""Modules that a note names."""
_PIN = "pin otherwise (--pin)"
"""The advice where pins alone rule a file out."""


def device_map(run: Simulated) -> dict[str, int | str]:
    """The device of every module that has parameters or buffers, as ``accelerate.dispatch_model`` takes it: the number
    of a GPU, in the order of the cluster, or ``cpu``.

    A module stands for all inside it that are on its device; tied weights count in each module that has them. Raises
    PlanError for a module whose own parameters are on several devices, which such a map cannot say; for modules on a
    CPU beside GPUs, which ``accelerate`` only keeps there; and for a module that itself computes with what modules
    inside it leave on different devices, where ``accelerate`` moves nothing (``_devices_by``). What else it cannot say
    is in ``map_notes``.
    """
    devices, merged = run.step.cluster.devices, _device_by_module(run.step, run.place)
    _devices_by(run.step, merged)
    gpus = [device for device, each in enumerate(devices) if each.row.kind != "cpu"]
    return {module: gpus.index(device) if device in gpus else "cpu" for module, device in merged.items()}


def check_map_pins(ready: Ready) -> None:
    """Raise PlanError if, by what is pinned alone, no placement has a device map. What modules compute with is checked
    if all units with parameters or buffers are pinned."""
    step, place = ready.problem.step, _pinned(ready)
    _check_shards(ready, place, _PIN)
    devices = _device_by_module(step, place, _PIN)
    if all(place[step.units.home[storage]] is not None for _, storage in _weights(step.graph)):
        _devices_by(step, devices, _PIN)


def check_point_pins(ready: Ready) -> None:
    """Raise PlanError if, by what is pinned alone, no placement has split points. Where a stage begins is checked if
    the units before and after are pinned."""
    step, place = ready.problem.step, _pinned(ready)
    _check_shards(ready, place, _PIN)
    for before, op in _stages(step, place, _PIN):
        _begins(step.graph, before, op, _PIN)


def _pinned(ready: Ready) -> list[int | None]:
    """The device to which each unit is pinned."""
    return [ready.problem.pins.get(unit) for unit in range(len(ready.problem.names))]


def _device_by_module(step: Step, place: Sequence[int | None], advice: str = "") -> dict[str, int]:
    """The device of the outermost modules with weights, by the device of each unit (None: not known yet). Raises as
    ``device_map``, with ``advice`` instead of the usual one."""
    graph, devices = step.graph, step.cluster.devices
    found: dict[str, int] = {}
    for name, storage in _weights(graph):
        module, device = name.rpartition(".")[0], place[step.units.home[storage]]
        if device is not None and found.setdefault(module, device) != device:
            named = f"{devices[found[module]].name} and {devices[device].name}"
            own = advice or (f"make it one unit (--prefix {module})" if module else "pin them to one (--pin)")
            raise PlanError(
                f"{_contents(graph, module)} of module {module or '(root)'!r} are on {named}, and accelerate keeps a "
                f"module on one device: {own}"
            )
    hosts = sorted({device for device in found.values() if devices[device].row.kind == "cpu"})
    if hosts and len({*found.values()}) > 1:
        named = ", ".join(devices[device].name for device in hosts)
        raise PlanError(
            f"modules are on {named} and on other devices, and accelerate runs those of the CPU on a GPU: "
            f"{advice or 'leave the CPU out of the cluster, or pin modules to GPUs (--pin)'}"
        )
    return _merged(found)


def _contents(graph: Graph, module: str) -> str:
    """Say what a module holds itself: parameters, buffers, or both."""
    roles = {graph.storages[storage].role for name, storage in _weights(graph) if name.rpartition(".")[0] == module}
    return " and ".join(f"{role.value}s" for role in (Role.PARAMETER, Role.BUFFER) if role in roles)


def _devices_by(step: Step, devices: dict[str, int], advice: str = "") -> dict[int, int]:
    """The device on which ``accelerate`` runs each forward op of a module under the map ``devices``. Raises PlanError
    if the op reads what lies on different ones, with ``advice`` instead of the usual one.

    What a module is called with comes to its device; what modules inside it return stays where it was computed, and a
    weight where its module is.
    """
    graph = step.graph
    main = next(iter(devices.values()), 0)

    def device_at(path: str) -> int | None:
        entry = max((each for each in devices if within(path, each)), key=len, default=None)
        return main if entry is None and not path else None if entry is None else devices[entry]

    owners: dict[int, list[str]] = {}
    for name, storage in _weights(graph):
        owners.setdefault(storage, []).append(name.rpartition(".")[0])
    ran: dict[int, int] = {}
    left: dict[int, tuple[str, int]] = {}
    for op, record in enumerate(graph.ops):
        if record.phase is not Phase.FORWARD or record.module == OUTSIDE:
            continue
        path = graph.modules[record.module].path
        read: dict[int, str] = {}
        for storage in graph.index.reads[op]:
            if storage in owners:
                if path not in owners[storage]:  # its own come with a module
                    owner = owners[storage][0]
                    read.setdefault(device_at(owner) or 0, f"a weight of {owner!r}")
                continue
            made_in, device = left.get(storage, (None, main))
            what = f"results of {made_in!r}" if made_in else "its inputs"
            read.setdefault(_brought(path, made_in, device, device_at), what)
        if len(read) > 1:
            one, other = (f"{what} on {step.cluster.devices[at].name}" for at, what in [*read.items()][:2])
            larger = f"make it one unit (--depth {path.count('.') + 1}, or --prefix {path})"
            raise PlanError(
                f"module {path or '(root)'!r} itself computes with {one} and {other}, which accelerate leaves there: "
                f"{advice or (larger if path else 'pin them to one (--pin)')}"
            )
        own = device_at(path)
        ran[op] = next(iter(read), main if own is None else own)
        left.update(dict.fromkeys(graph.index.writes[op], (path, ran[op])))
    return ran


def _brought(path: str, made_in: str | None, device: int, device_at: Callable[[str], int | None]) -> int:
    """The device on which an op of module ``path`` finds what was made in module ``made_in`` on ``device``."""
    parts = path.split(".") if path else []
    for depth in range(len(parts), -1, -1):
        module = ".".join(parts[:depth])
        if made_in is not None and within(made_in, module):
            return device  # made inside: it does not enter the module
        own = device_at(module)
        if own is not None:
            return own
    return device


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


def _merged(devices: dict[str, int]) -> dict[str, int]:
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


def map_notes(found: PlacedStep) -> Iterator[str]:
    """Say what of a Plan its device map cannot, and what ``accelerate`` does instead. Raises as ``device_map``."""
    run, graph = found.simulated, found.simulated.step.graph
    devices = [device.name for device in run.step.cluster.devices]
    moved = {
        graph.modules[graph.ops[op].module].path: f"{devices[at]}, not {devices[int(run.device[op])]}"
        for op, at in _devices_by(run.step, _device_by_module(run.step, run.place)).items()
        if _computes(graph, op) and at != run.device[op]
    }
    if moved:
        tied = _tied(graph)
        each = [
            f"{path or '(root)'!r} on {where}" + (f" (its weight is that of {tied[path]!r})" if path in tied else "")
            for path, where in moved.items()
        ]
        more = f" and {len(each) - MOST_NAMED} more" if len(each) > MOST_NAMED else ""
        yield (
            "Under the device map accelerate runs on another device than the Plan: "
            f"{', '.join(each[:MOST_NAMED])}{more}. It runs a module where its weights are, or else its inputs, so "
            "times and peaks differ from those above."
        )
    backward = sum(run.device[op] != run.device[of] for op, of in forward_ops(graph).items())
    if backward:
        yield (
            "A device map has no backward pass: autograd runs ops where their forward ops ran, "
            f"{backward} of them not as planned."
        )
    if found.ready.problem.batches > 1:
        yield (
            "A device map has no micro-batches: accelerate runs the batch whole, one device after another, so the step "
            "takes longer and needs the memory of all its activations."
        )
    elif any((np.diff(run.start_ns[run.device == device]) < 0).any() for device in {*run.place}):
        yield "A device map has no order of ops: accelerate runs them as the program does, not as the Plan does."
    if found.ready.replicas is not None:
        yield f"The device map is of group 0: for group k add k x {len(devices)} to each device number."


def _tied(graph: Graph) -> dict[str, str]:
    """The module at which a tied weight has its home, for each other module that uses it."""
    first: dict[int, str] = {}
    modules = ((name.rpartition(".")[0], storage) for name, storage in _weights(graph))
    pairs = ((module, first.setdefault(storage, module)) for module, storage in modules)
    return {module: home for module, home in pairs if module != home}


def check_whole(found: PlacedStep) -> None:
    """Raise PlanError for a module in shards on several devices, which no other tool divides so."""
    _check_shards(found.ready, found.simulated.place, "leave out its --shard, or pin it to one device (--pin)")


def _check_shards(ready: Ready, place: Sequence[int | None], advice: str) -> None:
    """Raise PlanError for a module in shards on several devices, by that of each unit (None: not known yet)."""
    where: dict[str, set[int]] = {}
    for name, device in zip(ready.problem.names, place, strict=True):
        for module in ready.sharded.modules:
            if device is not None and any(within(name.partition(" ")[0], shard) for shard in module.shards):
                where.setdefault(module.module, set()).add(device)
    for path, devices in where.items():
        if len(devices) > 1:
            raise PlanError(
                f"module {path!r} is in shards on {len(devices)} devices, which other tools cannot express: {advice}"
            )


def split_points(run: Simulated) -> dict[str, str]:
    """The modules with which a new stage begins, each with the name of its ``SplitPoint``: what the ``split_spec`` of
    ``torch.distributed.pipelining.pipeline`` says of each.

    Raises PlanError if a stage begins inside of what runs in a module before it, or if a device has several stages.
    """
    return {_begins(run.step.graph, before, op): BEGINNING for before, op in _stages(run.step, run.place)}


def _stages(step: Step, place: Sequence[int | None], advice: str = "") -> list[tuple[list[int], int]]:
    """For each stage but the first the forward ops before it and the op that begins it. ``place``: the device of each
    unit, None if it is not pinned; only stages that begin between two ops with a device are listed. Raises PlanError if
    a device has several stages, with ``advice`` instead of the usual one."""
    graph = step.graph
    # the first forward pass: other micro-batches repeat it, from the first stage on, with the same devices
    end = next((op for op, record in enumerate(graph.ops) if record.phase is Phase.BACKWARD), len(graph.ops))
    ops = [op for op in range(end) if _computes(graph, op) and graph.ops[op].module != OUTSIDE]
    devices = [place[step.units.of_op[op]] for op in ops]
    known = [device for device in devices if device is not None]
    if known and len({*known}) != 1 + sum(one != other for one, other in pairwise(known)):
        raise PlanError(
            "a device has several stages of the forward pass, and a pipeline has one for each: "
            f"{advice or 'search with --algorithm contiguous --option loops=1'}"
        )
    starts = [i for i in range(1, len(ops)) if None not in devices[i - 1 : i + 1] and devices[i - 1] != devices[i]]
    return [(ops[:start], ops[start]) for start in starts]


def _computes(graph: Graph, op: int) -> bool:
    """True for an op of the forward pass that makes a tensor and is no view."""
    return graph.ops[op].phase is Phase.FORWARD and bool(graph.ops[op].outputs) and not graph[op].is_view


def _begins(graph: Graph, before: Sequence[int], op: int, advice: str = "") -> str:
    """The outermost module that begins with ``op``: no op ``before`` is in it. Raises PlanError if there is none, with
    ``advice`` instead of the usual one."""
    path = graph.modules[graph.ops[op].module].path.split(".")
    earlier = [graph.modules[graph.ops[each].module].path for each in before]
    for depth in range(1, len(path) + 1):
        name = ".".join(path[:depth])
        if name and not _any_within(earlier, name):
            return name
    within_module = ".".join(path)
    larger = f"make it one unit (--prefix {within_module})" if within_module else "use larger units (--depth, --prefix)"
    raise PlanError(
        f"a stage begins at op {op} ({graph[op].name}), within module {within_module or '(root)'!r}: {advice or larger}"
    )


def _any_within(paths: Iterable[str], module: str) -> bool:
    return any(within(path, module) for path in paths)
