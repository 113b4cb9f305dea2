"""Modules to shard, as the command line names them (``h.*.mlp=output:2``): along which axis of the step, and which of
its ops are divided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, TypeAlias, get_args

import msgspec

from tensortide.cost import count
from tensortide.errors import DegreesError
from tensortide.graph.model import OUTSIDE, Graph, Phase, Role
from tensortide.graph.module_paths import named_after, within
from tensortide.parallelism.axes import Axis
from tensortide.parallelism.shards.axis_split import AxisSplit, Facts, is_update
from tensortide.parallelism.sites import located

Along: TypeAlias = Literal["batch", "output", "reduction"]


class Shard(msgspec.Struct, frozen=True):
    """Modules to shard: those whose path is ``module``, in which ``*`` stands for any name between two dots, ``along``
    their batch, output channels or reduction, in so many ``parts``.

    Raises DegreesError for another dimension and for less than two parts.

    Examples:
        >>> Shard.parse("h.*.mlp=output:2")
        Shard(module='h.*.mlp', along='output', parts=2)
    """

    module: str
    along: Along
    parts: int

    def __post_init__(self) -> None:
        if self.along not in get_args(Along):
            raise DegreesError(f"{self}: a module is sharded along {', '.join(get_args(Along))}, not {self.along!r}")
        if self.parts < 2:
            raise DegreesError(f"{self}: a module is sharded in 2 parts or more")

    def __str__(self) -> str:
        return f"{self.module}={self.along}:{self.parts}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``MODULE=ALONG:PARTS``. Raises DegreesError for other text."""
        module, equals, rest = text.rpartition("=")
        along, colon, parts = rest.partition(":")
        if not (module and equals and colon and parts.isdecimal()):
            raise DegreesError(f"--shard takes MODULE=ALONG:PARTS, as in h.*.mlp=output:2, not {text!r}")
        return cls(module, along, int(parts))  # type: ignore[arg-type]  # checked there

    def matches(self, path: str) -> bool:
        """Return whether the module at ``path`` (``""`` is the root, which is asked for as ``(root)``) is meant."""
        if not path:
            return self.module == "(root)"
        names, wanted = path.split("."), self.module.split(".")
        return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


def sizes_of(size: int, parts: int) -> tuple[int, ...]:
    """The sizes of ``parts`` of an axis of ``size``: what is left over goes to the first ones, one each."""
    share, rest = divmod(size, parts)
    return tuple(share + (part < rest) for part in range(parts))


class Region(NamedTuple):
    """A module whose ops are divided as ``split`` has it: the module's path, and the op that decided the axis."""

    module: str
    along: Along
    split: AxisSplit
    op: int

    @property
    def label(self) -> str:
        """The module for display."""
        return self.module or "(root)"

    def shard(self, part: int) -> str:
        """The path of one shard: that of a module inside the module."""
        return f"{self.module}.shard{part}".removeprefix(".")


class Divided(NamedTuple):
    """The ``regions`` of a step, the region ``of`` each op that belongs to one, and the storages that exist before the
    step and are only ever seen in parts (``given``, with the region).

    ``beside``: states of these that have not the axis, such as counts of steps, of which every shard has its own.
    ``kept``: ops that run whole because they write what exists before the step and is seen whole.
    """

    regions: tuple[Region, ...]
    of: dict[int, Region]
    given: dict[int, Region]
    beside: dict[int, Region]
    kept: frozenset[int]

    def why_whole(self, index: int) -> str:
        """The reason why an op of a region is not done part by part; empty if it is."""
        if index in self.kept:
            return "it writes what is seen whole elsewhere"
        return self.of[index].split.why_whole(index)

    def by_part(self, index: int) -> bool:
        """Return whether the op at ``index`` is done part by part."""
        return index in self.of and not self.why_whole(index)


def divided(facts: Facts, shards: Sequence[Shard]) -> Divided:
    """Find what ``shards`` ask for.

    Raises DegreesError for a request that matches no module, modules that are asked for twice or lie inside each other,
    and a module that cannot be sharded so: the message has the op and the reason.
    """
    graph = facts.graph
    macs = [0 if cost.cost is None else int(cost.cost.macs) for cost in count(graph).costs]
    splits: dict[tuple[Axis, tuple[int, ...]], AxisSplit] = {}
    regions: list[Region] = []
    for path, shard in _modules(graph, shards):
        axis, op = _axis_of(facts, path, shard, macs)
        sizes = sizes_of(facts.analysis.axes.size[axis], shard.parts)
        split = splits.setdefault((axis, sizes), AxisSplit(facts, axis, sizes))
        if why := split.why_whole(op):
            raise DegreesError(_cannot(path, shard, _once(located(graph, op), why)))
        regions.append(Region(path, shard.along, split, op))
    found = Divided(tuple(regions), {}, {}, {}, frozenset())
    for region in regions:
        for index, record in enumerate(graph.ops):
            if _inside(graph, record.module, region.module):
                found.of[index] = region
    inside = dict(found.of)
    while True:
        given = _own_storages(facts, found)
        kept = frozenset(index for index in found.of if _writes_whole(facts, found, given, index))
        if kept <= found.kept:
            return found._replace(given=given, beside=_beside(graph, given))
        found = Divided(found.regions, dict(inside), {}, {}, found.kept | kept)


def _beside(graph: Graph, given: Mapping[int, Region]) -> dict[int, Region]:
    """The states that have not the axis of parameters in shards, if ops that write them do that alone."""
    found = {
        storage: given[held]
        for held, family in families(graph).items()
        if held in given
        for storage in family - given.keys()
        if graph.storages[storage].birth is None
    }
    for index in range(len(graph.ops)):
        touched = graph.index.touches[index]
        if not found.keys() >= set(touched):
            for storage in graph.index.writes[index]:
                found.pop(storage, None)
    return found


def _writes_whole(facts: Facts, found: Divided, given: Mapping[int, Region], index: int) -> bool:
    """Return whether an op, done part by part, would write parts of what exists before the step and is seen whole."""
    graph = facts.graph
    if not found.by_part(index):
        return False
    return any(graph.storages[s].birth is None and s not in given for s in graph.index.writes[index])


def _modules(graph: Graph, shards: Sequence[Shard]) -> Iterator[tuple[str, Shard]]:
    """The modules that requests mean, each with its request."""
    ran = {record.module for record in graph.ops if record.phase is Phase.FORWARD and record.module != OUTSIDE}
    paths = {graph.modules[module].path for module in ran}
    names = {".".join(path.split(".")[:depth]) for path in paths for depth in range(path.count(".") + 2)} | {""}
    found: dict[str, Shard] = {}
    for shard in shards:
        matched = [path for path in sorted(names) if shard.matches(path)]
        if not matched:
            known = ", ".join(sorted(filter(None, names))[:8])
            raise DegreesError(f"--shard {shard}: no module of the step is called so; there are {known}, ...")
        for path in matched:
            if path in found:
                raise DegreesError(f"--shard {shard}: {path or '(root)'} is sharded already, by {found[path]}")
            found[path] = shard
    for path, shard in found.items():
        for other in found:
            if other != path and within(path, other):
                raise DegreesError(
                    f"--shard {shard}: {path} lies in {other or '(root)'}, which is sharded already, by {found[other]}"
                )
    order = {path: min(i for i, op in enumerate(graph.ops) if _inside(graph, op.module, path)) for path in found}
    return iter(sorted(found.items(), key=lambda item: order[item[0]]))


def _inside(graph: Graph, module: int, path: str) -> bool:
    return module != OUTSIDE and within(graph.modules[module].path, path)


def _axis_of(facts: Facts, path: str, shard: Shard, macs: Sequence[int]) -> tuple[Axis, int]:
    """The axis of a module, and the op that has it: the first product, or where there is none the op with the largest
    result."""
    graph = facts.graph
    forward = [
        index
        for index, op in enumerate(graph.ops)
        if op.phase is Phase.FORWARD and not facts.is_view[index] and op.outputs and _inside(graph, op.module, path)
    ]
    if not forward:
        raise DegreesError(_cannot(path, shard, "its forward pass has views alone"))
    largest = max(forward, key=lambda index: (graph.tensors[graph.ops[index].outputs[0]].numel, -index))
    op = next((index for index in forward if macs[index]), largest)
    where, why = located(graph, op), ""
    inside = {index for index, record in enumerate(graph.ops) if _inside(graph, record.module, path)}
    possible: list[tuple[int, Axis]] = []
    for axis in dict.fromkeys(_candidates(facts, op, shard.along)):
        size, needs = facts.analysis.axes.size[axis], facts.needs.get(axis, {})
        if op not in needs and size >= shard.parts:
            possible.append((len(inside & needs.keys()), axis))
        elif not why:
            why = needs.get(op, f"{where}: an axis of {size} has no {shard.parts} parts")
    if possible:  # the first of those that least ops of the module need whole
        return min(possible, key=lambda item: item[0])[1], op
    kind = {"batch": "batch", "output": "output channels", "reduction": "dimension that it sums over"}[shard.along]
    raise DegreesError(_cannot(path, shard, why or f"{where} has no {kind}"))


def _candidates(facts: Facts, index: int, along: Along) -> Iterator[Axis]:
    """The axes of an op that a request may mean, the likeliest first.

    The reduction is what partial results are summed over. Output channels are axes that the first output shares with a
    parameter, those of the last dimension first; without parameters those of the last dimension, or of dimension 1 if
    there are four or more (channels, heads). The batch is what no parameter has.
    """
    axes, op = facts.analysis.axes, facts.graph.ops[index]
    if along == "reduction":
        for partial in facts.analysis.partials.get(index, ()):
            yield from axes.leaves(partial.axes)
        return
    dims = facts.analysis.dims[op.outputs[0]]
    if along == "batch":
        yield from (leaf for leaf in axes.leaves(dims) if leaf not in facts.of_parameters)
        return
    own = {leaf for t in op.inputs for leaf in facts.leaves[t] if leaf in facts.of_parameters}
    channels = [leaf for dim in reversed(dims) for leaf in axes.leaves([dim]) if leaf in own]
    last = dims[1] if len(dims) > 3 else dims[-1] if len(dims) > 1 else None
    yield from channels or axes.leaves([] if last is None else [last])


def _own_storages(facts: Facts, found: Divided) -> dict[int, Region]:
    """The parameters, gradients, states and buffers that regions alone use, each divided among its shards; what updates
    them joins the region ``of`` its ops.

    A parameter that another module reads too, or one with an update that needs the whole of it, stays whole.
    """
    graph = facts.graph
    given: dict[int, Region] = {}
    for held, family in families(graph).items():
        users = [i for i in graph.index.users[held] if not is_update(graph.ops[i].phase) and not facts.is_view[i]]
        regions = {id(found.of[i].split): found.of[i] for i in users if i in found.of}
        if len(regions) != 1 or not all(map(found.by_part, users)):
            continue
        (region,) = regions.values()
        if region.split.slab(held) is None:
            continue
        joined = _updates(facts, region, {held, *family}, found)
        if joined is not None:
            found.of.update(dict.fromkeys(joined, region))
            whole = {held, *family}
            own = {s for s in whole if graph.storages[s].birth is None and region.split.slab(s) is not None}
            given.update(dict.fromkeys(own, region))
    return given


def families(graph: Graph) -> dict[int, set[int]]:
    """For the storage of each parameter and buffer those of its gradients and optimizer state, which are named after
    it."""
    roles = (Role.PARAMETER, Role.BUFFER)
    names = {held.name: s for s, held in enumerate(graph.storages) if held.role in roles and held.name}
    found: dict[int, set[int]] = {storage: set() for storage in names.values()}
    for storage, held in enumerate(graph.storages):
        owned = held.role in (Role.GRADIENT, Role.OPTIMIZER_STATE)
        if owned and (name := named_after(held.name, names)):
            found[names[name]].add(storage)
    return found


def _updates(facts: Facts, region: Region, family: set[int], found: Divided) -> list[int] | None:
    """The ops outside modules that work on a ``family`` of storages and can be divided as it is; None if one writes it
    that cannot be."""
    graph, split = facts.graph, region.split
    reached = {s for s in family if split.slab(s) is not None}
    joined: list[int] = []
    for index, op in enumerate(graph.ops):
        if op.phase is Phase.FORWARD or reached.isdisjoint(graph.index.touches[index]):
            continue
        whole = index in found.kept or split.why_whole(index)
        if found.of.get(index, region).split is not split or whole:
            if not reached.isdisjoint(graph.index.writes[index]) and not facts.is_view[index]:
                return None
            continue
        if index not in found.of:
            if op.phase is Phase.BACKWARD and reached.isdisjoint(graph.index.writes[index]):
                continue
            joined.append(index)
        if is_update(op.phase):
            owner = graph.index.owner
            reached |= {owner[t] for t in op.outputs if split.carries(t) and split.slab(owner[t]) is not None}
    return joined


def _cannot(path: str, shard: Shard, why: str) -> str:
    return f"--shard {shard}: {path or '(root)'} cannot be sharded along its {shard.along}: {why}"


def _once(where: str, why: str) -> str:
    """A reason with the op that it is about."""
    return why if where in why else f"{where}: {why}"
