"""Placement units: sets of ops that are placed together, by closure, module or prefix, and what pins them."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, TypeAlias

from tensortide.errors import PlanError, TensortideError
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.graph.module_paths import named_after, within
from tensortide.placements.graphs.closures import SCALAR_BYTES, Sets, closures, forward_ops, makers_of
from tensortide.placements.graphs.hosts import bound_to_host, value_reads
from tensortide.placements.graphs.micro_batches import MicroBatches
from tensortide.request import Opt, Request

STEPS = "Captured steps"
UNITS = f"{STEPS}: the units"
REPLICAS = f"{STEPS}: batches and replicas"
"""Headings of the options of a placed step."""
By: TypeAlias = Literal["module", "closure"]
HOST = " host"
"""End of the names of units that the host runs."""


@dataclass(frozen=True)
class Grouping(Request):
    """Grouping of ops. ``by``: ``module`` makes a unit of each run of forward ops in one module, down to ``depth``
    names of its path (None: all), with the backward and optimizer ops that belong to them; ``closure`` the smallest
    units that may be. ``prefixes``: modules that are one unit each, with all inside. ``most``: units are merged until
    there are no more, but for those of the host. ``free_backward``: backward ops need not follow their forward ops.
    ``keep_random``: ops that draw random numbers share a device."""

    by: Annotated[By, Opt("Units are ops of one module, or (closure) as few as must share a device.")] = "module"
    depth: Annotated[int | None, Opt("Levels of modules that units tell apart (default: all).", least=0)] = None
    prefixes: Annotated[tuple[str, ...], Opt("A module that is one unit.", "--prefix", value="MODULE")] = ()
    most: Annotated[int | None, Opt("Units, at most: more are merged.", "--units", least=1)] = None
    free_backward: Annotated[bool, Opt("Backward ops need not follow their forward ops.")] = False
    keep_random: Annotated[bool, Opt("Ops that draw random numbers share a device.")] = False

    GROUP: ClassVar[str] = UNITS


@dataclass(frozen=True)
class ShardPaths:
    """Shards in a graph: the ``paths`` of their modules, and for ops that belong where another one is (sums,
    concatenations, slices) that op."""

    paths: tuple[str, ...] = ()
    follows: Mapping[int, int] = field(default_factory=dict)


NO_SHARDS = ShardPaths()


@dataclass(frozen=True)
class Units:
    """The units of ``graph``, in the order of their first ops.

    ``of_op``: the unit of each op. ``home``: the unit of each storage, which is on its device; -1 of the workspace of a
    library, which each device that runs its ops has (``device_libraries``).
    ``hosts``: the units of ops that the host must run, and of nothing else: they read a value, or work on the host's
    tensors. None where no device is the host.
    """

    graph: Graph
    names: tuple[str, ...]
    of_op: tuple[int, ...]
    home: tuple[int, ...]
    hosts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def ops(self, unit: int) -> tuple[int, ...]:
        """The ops of a unit, ascending."""
        return tuple(op for op, one in enumerate(self.of_op) if one == unit)

    def named(self, pattern: str) -> tuple[int, ...]:
        """The units that a pin names: by its whole name, or all of a module. Raises TensortideError without any."""
        found = tuple(i for i, name in enumerate(self.names) if name == pattern)
        found = found or tuple(i for i, name in enumerate(self.names) if within(name.partition(" ")[0], pattern))
        if not found:
            raise TensortideError(f"no unit is called {pattern!r}; there are {', '.join(self.names[:8])}, ...")
        return found


def units_of(
    graph: Graph, grouping: Grouping | None = None, shards: ShardPaths = NO_SHARDS, *, host: bool = False
) -> Units:
    """Group the ops of ``graph``, which has no loops. A group never divides a minimum closure. Of ``shards`` each is a
    unit, unless units are closures, or are merged. ``host``: what only the host can run is in units of its own, one for
    each module; without, reads of a value are with the op that makes it."""
    grouping = grouping or Grouping()
    apart = bound_to_host(graph) if host else frozenset(value_reads(graph))
    sets = closures(
        graph,
        free_backward=grouping.free_backward,
        keep_random=grouping.keep_random,
        follows=shards.follows,
        apart=apart,
    )
    if host:
        _join_hosts(graph, sets, apart)
    else:
        _join_reads(graph, sets, apart)
    if grouping.by == "module":
        _join_modules(graph, sets, grouping, shards, apart)
        for path in shards.paths:
            _join_inside(graph, sets, path, apart)
    for prefix in grouping.prefixes:
        _join_inside(graph, sets, prefix, apart)
    if grouping.most is not None:
        _merge(graph, sets, grouping.most, apart if host else ())
    return _numbered(graph, sets, shards, apart if host else ())


def _join_inside(graph: Graph, sets: Sets, prefix: str, apart: Collection[int]) -> None:
    """Join all ops in a module, but for those ``apart``. Raises TensortideError if the module has no ops."""
    inside = [i for i, op in enumerate(graph.ops) if _is_inside(graph, op.module, prefix)]
    if not inside:
        raise TensortideError(f"no op is in a module {prefix!r}")
    together = [op for op in inside if op not in apart]
    for op in together[1:]:
        sets.join(together[0], op)


def _join_hosts(graph: Graph, sets: Sets, hosted: Iterable[int]) -> None:
    """Join what the host runs of each module."""
    first: dict[int, int] = {}
    for op in sorted(hosted):
        sets.join(first.setdefault(graph.ops[op].module, op), op)


def _join_reads(graph: Graph, sets: Sets, reads: Iterable[int]) -> None:
    """Join each read of a value with the last op that makes it, or the first that uses it where none does."""
    makers, users = makers_of(graph), graph.index.users
    for op in reads:
        for storage in graph.index.reads[op]:
            before = [maker for maker in makers[storage] if maker < op]
            sets.join((before or users[storage])[-1 if before else 0], op)


def repeated(units: Units, several: MicroBatches) -> Units:
    """The same units of the step of several micro-batches: each op is in the unit of the op that it repeats."""
    of_op = tuple(units.of_op[op] for op in several.origin)
    return _with_homes(several.graph, units.names, of_op, units.hosts)


def _is_inside(graph: Graph, module: int, prefix: str) -> bool:
    return module != OUTSIDE and within(graph.modules[module].path, prefix)


def _join_modules(graph: Graph, sets: Sets, grouping: Grouping, shards: ShardPaths, apart: Collection[int]) -> None:
    """Join consecutive forward ops of one module, and the backward ops without a forward op to the last one: they begin
    the backward pass. A view goes with what it views, an op between backward pass and optimizer (the norm of a
    gradient) with the largest that it reads. Ops that stand ``apart`` interrupt nothing."""
    followed = forward_ops(graph, apart)
    makers = makers_of(graph)
    turn = next((op for op, record in enumerate(graph.ops) if record.phase is Phase.BACKWARD), len(graph))
    shard = [next((path for path in shards.paths if within(one.path, path)), "") for one in graph.modules]
    last, before = -1, ""
    for op, view in enumerate(graph):
        if view.is_view or view.phase is Phase.OPTIMIZER or op in shards.follows or op in apart:
            continue
        if view.op.module != OUTSIDE and shard[view.op.module]:
            if view.phase is Phase.FORWARD:
                last, before = op, shard[view.op.module]
            continue
        if view.phase is Phase.OTHER and op > turn:
            made = [s for s in graph.index.reads[op] if makers[s] and makers[s][0] not in apart]
            sizes = [(graph.storages[s].nbytes, makers[s][0]) for s in made]
            largest, maker = max(sizes, default=(0, op))
            if largest > SCALAR_BYTES:
                sets.join(op, maker)
            continue
        if view.phase is Phase.BACKWARD:
            if op not in followed and last >= 0 and not grouping.free_backward:
                sets.join(op, last)
            continue
        key = _cut(view.module, grouping.depth)
        if last >= 0 and key == before:
            sets.join(last, op)
        last, before = op, key


def _cut(path: str, depth: int | None) -> str:
    return path if depth is None else ".".join(path.split(".")[:depth])


def _merge(graph: Graph, sets: Sets, most: int, apart: Collection[int]) -> None:
    """Merge units, but for those of ops ``apart``, until there are at most ``most``: first along the edges that carry
    most bytes, as long as no unit grows beyond twice its share of the ops; then the smallest with the one before it."""
    if most < 1:
        raise TensortideError(f"units cannot be merged into {most}")
    size: dict[int, int] = {}
    free = [op not in apart for op in range(len(graph))]
    for op in itertools.compress(range(len(graph)), free):
        root = sets.find(op)
        size[root] = size.get(root, 0) + 1
    carried: dict[tuple[int, int], int] = {}
    makers, users = makers_of(graph), graph.index.users
    for storage, ops in enumerate(users):
        source = makers[storage][0] if makers[storage] else (ops[0] if ops else 0)
        for op in ops:
            a, b = sorted((sets.find(source), sets.find(op)))
            if a != b and free[source] and free[op]:
                carried[a, b] = carried.get((a, b), 0) + int(graph.storages[storage].nbytes)
    share = 2 * len(graph) / most
    for (one, other), _ in sorted(carried.items(), key=lambda item: (-item[1], item[0])):
        a, b = sets.find(one), sets.find(other)
        if len(size) > most and a != b and size[a] + size[b] <= share:
            sets.join(a, b)
            size[min(a, b)] = size.pop(a) + size.pop(b)
    while len(size) > most:
        roots = sorted(size)
        place = min(range(len(roots)), key=lambda i: (size[roots[i]], i))
        a, b = roots[max(place - 1, 0)], roots[max(place, 1)]
        sets.join(a, b)
        size[a] = size[a] + size.pop(b)


def _numbered(graph: Graph, sets: Sets, shards: ShardPaths, hosted: Collection[int]) -> Units:
    number: dict[int, int] = {}
    of_op = tuple(number.setdefault(sets.find(op), len(number)) for op in range(len(graph)))
    members: list[list[int]] = [[] for _ in number]
    for op, unit in enumerate(of_op):
        members[unit].append(op)
    names: list[str] = []
    seen: dict[str, int] = {}
    for unit in range(len(number)):
        name = _name(graph, members[unit], shards) + HOST * (members[unit][0] in hosted)
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} {seen[name]}")
    return _with_homes(graph, tuple(names), of_op, sorted({of_op[op] for op in hosted}))


def _with_homes(graph: Graph, names: tuple[str, ...], of_op: tuple[int, ...], hosts: Sequence[int]) -> Units:
    """A storage is at home with its makers, one that nothing makes or writes with its first reader, of the host only if
    all are, one that no op uses with what it is named after, or else with others of its module."""
    makers, users = makers_of(graph), graph.index.users
    home = []
    for made, used in zip(makers, users, strict=True):
        first = made or [op for op in used if of_op[op] not in hosts] or used
        home.append(of_op[first[0]] if first else -1)
    named = {held.name: unit for held, unit in zip(graph.storages, home, strict=True) if held.name and unit >= 0}
    for name, unit in [*named.items()]:
        named.setdefault(name.rpartition(".")[0], unit)
    for storage, held in enumerate(graph.storages):
        if home[storage] < 0 and names and held.role is not Role.LIBRARY:
            home[storage] = named.get(named_after(held.name, named), 0)
    return Units(graph, names, of_op, tuple(home), tuple(hosts))


def _name(graph: Graph, ops: Sequence[int], shards: ShardPaths) -> str:
    """The innermost module that has all forward ops of a unit that make a tensor and are no views, else that of its
    first op; of a shard its path."""
    own = [op for op in ops if op not in shards.follows] or ops
    made = [op for op in own if graph.ops[op].outputs and not graph[op].is_view]
    forward = [op for op in made if graph.ops[op].phase is Phase.FORWARD] or own[:1]
    modules = {graph.ops[op].module for op in forward}
    path = next((path for path in shards.paths if all(_is_inside(graph, module, path) for module in modules)), None)
    if path is not None:
        return path
    if OUTSIDE in modules:
        return graph.module_path(OUTSIDE)
    paths = [graph.modules[module].path.split(".") for module in modules]
    shared = [names[0] for names in zip(*paths, strict=False) if len({*names}) == 1]
    return ".".join(shared) or "(root)"


def pinned(units: Units, pins: Mapping[str, str], host: int | None, devices: Sequence[str]) -> dict[int, int]:
    """The device of every unit that has no choice: ``pins``, names of devices by that of a unit or module, and the
    host's ops on ``host``. A pin of a module leaves those out, unless the module has nothing else.

    Raises TensortideError for a device that there is not, and for pins that contradict each other: it names the ops.
    """
    found: dict[int, int] = {} if host is None else dict.fromkeys(units.hosts, host)
    why = dict.fromkeys(found, "its ops that only the host runs")
    for name in sorted({*pins.values()} - {*devices}):
        raise PlanError(f"a unit is pinned to {name!r}; the devices are {', '.join(devices)}")
    for pattern, name in pins.items():
        named, device = units.named(pattern), devices.index(name)
        free = [unit for unit in named if host is None or unit not in units.hosts]
        for unit in free or named:
            if found.get(unit, device) != device:
                ops = units.ops(unit)
                listed = ", ".join(f"{op} ({units.graph[op].name})" for op in ops[:4])
                raise TensortideError(
                    f"{pattern!r} is pinned to {name}, but {why[unit]} pins unit {units.names[unit]!r} "
                    f"to {devices[found[unit]]}; its {len(ops)} ops must share a device: {listed}"
                    f"{', ...' * (len(ops) > 4)}"
                )
            found[unit], why[unit] = device, repr(pattern)
    return found
