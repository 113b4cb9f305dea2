"""Modules to divide into shards, found one after the other: each try is a short search, and what helps is kept."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

from tensortide.errors import NothingFits, TensortideError
from tensortide.graph.model import OUTSIDE, Graph
from tensortide.graph.module_paths import pattern, within
from tensortide.parallelism.shards import Shard
from tensortide.parallelism.shards.regions import Along
from tensortide.placements.graphs.durations import op_times
from tensortide.placements.graphs.options import PlaceOptions
from tensortide.placements.graphs.placed_step import Ready, ready
from tensortide.shown import Show
from tensortide.timing.clusters import Cluster

if TYPE_CHECKING:
    from tensortide.placements.search import Search

MODULES, SHORT = 8, 100
"""Modules that are tried, at most, those of one place in repeated blocks as one; placements tried for each division."""
ROOT = "(root)"
ALONG: tuple[Along, ...] = ("output", "batch")

_Score: TypeAlias = tuple[float, float]
"""Bytes above the memory of devices, and the time of a step, ns: less is better."""


class Tried(NamedTuple):
    """A division that was tried: the share of the work that its modules have, the step that a short search found (None:
    it could not be divided, as ``why`` says, or fits nowhere), bytes above the memory, and whether it was kept."""

    shards: tuple[Shard, ...]
    work_share: Annotated[float, Show("of the work")]
    step_ns: Annotated[float | None, Show("Step, short search")]
    over_bytes: float
    kept: Annotated[bool, Show("Kept")]
    why: Annotated[str, Show("Why not", fold=True)] = ""

    @property
    def modules(self) -> Annotated[str, Show("Modules", "path", fold=True)]:
        """The shards as a request has them."""
        return ", ".join(map(str, self.shards))


class AutoSharded(NamedTuple):
    """The ``shards`` that were kept, those given first, and all that were ``tried``, in order."""

    shards: tuple[Shard, ...]
    tried: tuple[Tried, ...]


def auto_shards(
    graph: Graph,
    cluster: Cluster,
    options: PlaceOptions,
    *,
    by: Search | None = None,
    budget: int = SHORT,
    seed: int = 0,
) -> AutoSharded:
    """Find modules of ``graph`` whose shards lower the time of a step on ``cluster``, or memory that devices lack.

    Greedy, over modules by their share of the work, those of one type that differ in numbers alone (``a.0.b``) as one.
    Each is divided among all devices along the output channels and along the batch, beside what was kept before, or in
    place of modules that it lies in or that lie in it; a search of ``budget`` placements says what a step takes, and
    what lowers it is kept. ``options.shards`` are kept in any
    case.
    """
    parts, kept, tried = len(cluster) // options.data, dict[_Modules, tuple[Shard, ...]](), list[Tried]()
    if parts < 2:
        return AutoSharded(options.shards, ())
    score = _score(graph, cluster, options, by, budget, seed)
    for modules in _candidates(graph, cluster):
        apart = {other: shards for other, shards in kept.items() if not modules.nested(other)}
        for along in ALONG:
            shards = tuple(Shard(name, along, parts) for name in modules.names)
            every = (*options.shards, *itertools.chain(*apart.values()), *shards)
            try:
                found = _score(graph, cluster, replace(options, shards=every), by, budget, seed)
            except TensortideError as error:
                tried.append(Tried(shards, modules.share, None, 0.0, False, str(error)))
                continue
            better = found < score
            step_ns = None if math.isinf(found[1]) else found[1]
            tried.append(Tried(shards, modules.share, step_ns, found[0], better))
            if better:
                kept, score = {**apart, modules: shards}, found
    return AutoSharded((*options.shards, *itertools.chain(*kept.values())), tuple(tried))


def _score(graph: Graph, cluster: Cluster, options: PlaceOptions, by: Search | None, budget: int, seed: int) -> _Score:
    """The best placement of a short search; infinite if what is always resident does not fit."""
    from tensortide.placements.search.best import Best

    try:
        prepared: Ready = ready(graph, cluster, options)
    except NothingFits:
        return math.inf, math.inf
    problem = prepared.problem
    found = (by or Best()).search(problem, budget, seed)
    run = problem.simulator.run(found.placement)
    return float(sum(run.over_bytes)), float(run.makespan_ns)


class _Modules(NamedTuple):
    """Modules of one type: the ``names`` by which requests have them, their ``paths``, their share of the work."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    share: float

    def nested(self, other: _Modules) -> bool:
        """Return whether one of them lies in one of the ``other``, or the other way."""
        return any(within(a, b) or within(b, a) for a in self.paths for b in other.paths)


def _candidates(graph: Graph, cluster: Cluster) -> Iterator[_Modules]:
    """Yield modules by their share of the work on the fastest device, largest first, those inside them counted: paths,
    or a pattern of all that differ in numbers alone where these have one type."""
    times = min(op_times(graph, cluster).ns, key=sum)
    kinds = {module.path: module.type for module in graph.modules}
    work: defaultdict[tuple[str, str], int] = defaultdict(int)
    paths: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for record, ns in zip(graph.ops, times, strict=True):
        for path in _ancestry(graph.modules[record.module].path) if record.module != OUTSIDE else ():
            if path in kinds:
                work[pattern(path), kinds[path]] += ns
                paths[pattern(path), kinds[path]][path] = None
    types = Counter(name for name, _ in {(pattern(path), kind) for path, kind in kinds.items()})
    for key in sorted(work, key=lambda key: (-work[key], key))[:MODULES]:
        alike = types[key[0]] == 1 and len(paths[key]) > 1
        names = (key[0],) if alike else tuple(path or ROOT for path in paths[key])
        yield _Modules(names, tuple(paths[key]), work[key] / max(sum(times), 1))


def _ancestry(path: str) -> Iterator[str]:
    """Yield ``path`` and the modules that it lies in, the root last."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""
