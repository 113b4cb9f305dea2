"""Modules that a file can checkpoint: their forward passes, and what speaks against recomputing some of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tensortide.graph.effects import draws_random, has_generator, runs_once
from tensortide.graph.model import OUTSIDE, Graph, Phase
from tensortide.graph.module_paths import pattern, within
from tensortide.memory.lifetimes import Residence, residences
from tensortide.studies.torch_file.choice import Kept

CONTAINERS = ("ModuleList", "ModuleDict")
"""Classes of modules that have no forward pass."""
CAST = "aten._to_copy.default"
"""An op of which autocast runs more in a recomputation: its casts of parameters last until a forward pass ends."""
MOST_IN_ROWS = 32
"""Most modules of an ``nn.Sequential`` of which all rows are tried; of more, only equal parts."""


@dataclass(frozen=True)
class Call:
    """One forward pass of a module: its ``ops``, ascending. The gradient ops ``first`` to ``last`` use what it saved:
    it is recomputed before the first of them. ``gathered``: parameters that a hook gathers before the forward pass, and
    others again for its gradients."""

    ops: tuple[int, ...]
    first: int
    last: int
    gathered: frozenset[int] = frozenset()

    @property
    def end(self) -> int:
        """The number after that of its last op."""
        return self.ops[-1] + 1


@dataclass(frozen=True)
class Region:
    """A module that can be checkpointed, or a row of modules of an ``nn.Sequential``: ``members``, the first to the
    last. ``random``: it draws random numbers; ``updated``: buffers that it updates. Regions of one ``group`` are alike.
    """

    path: str
    calls: tuple[Call, ...]
    random: bool
    updated: tuple[str, ...]
    members: tuple[str, ...]
    group: str

    @cached_property
    def ops(self) -> frozenset[int]:
        """Forward ops of all calls."""
        return frozenset(itertools.chain.from_iterable(call.ops for call in self.calls))

    def covers(self, path: str) -> bool:
        """Tell whether the module at ``path`` is the region, or inside it."""
        return any(within(path, member) for member in self.members)

    def overlaps(self, other: Region) -> bool:
        """Tell whether a module is in both."""
        return any(map(self.covers, other.members)) or any(map(other.covers, self.members))


@dataclass(frozen=True)
class Refusal:
    """A module that cannot be checkpointed, and why."""

    path: str
    reason: str


class Modules:
    """The modules of a captured step, without loops, by their ops; those of ``once`` may not run a second time, and
    storages that are ``pinned`` stay resident. ``starts``: by path, first ops of forward passes, of modules that run
    several times in a row."""

    def __init__(
        self,
        graph: Graph,
        once: Container[int] = (),
        pinned: Container[int] = (),
        starts: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        self.graph, self.once, self.pinned, self.starts = graph, once, pinned, starts or {}
        self.paths = [None if op.module == OUTSIDE else graph.modules[op.module].path for op in graph.ops]
        self.residence = residences(graph)
        self.forward = [number for number, op in enumerate(graph.ops) if op.phase is Phase.FORWARD]
        """Ops of the forward pass in order."""

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Paths of whole models."""
        paths = {path for path in self.paths if path is not None}
        if "" in {module.path for module in self.graph.modules}:
            return ("",)
        known = {module.path for module in self.graph.modules}
        return tuple(sorted({next(p for p in _prefixes(path) if p in known) for path in paths}))

    @cached_property
    def every(self) -> tuple[str, ...]:
        """Paths of all modules that run, outermost first."""
        paths = {path for path in self.paths if path is not None}
        known = {module.path for module in self.graph.modules}
        every = {prefix for path in paths for prefix in _prefixes(path) if prefix in known}
        every -= {module.path for module in self.graph.modules if module.type in CONTAINERS}
        return tuple(sorted(every, key=lambda path: (path.count("."), path)))

    @cached_property
    def found(self) -> tuple[Region | Refusal, ...]:
        """Every module that runs and keeps something for the backward pass, outermost first; then rows of them that
        can be checkpointed."""
        alone = tuple(each for path in self.every if (each := self._region(path, (path,), pattern(path))) is not None)
        rows = itertools.chain.from_iterable(map(self._rows, self.every))
        return (*alone, *rows)

    def regions(self) -> tuple[Region, ...]:
        """Modules that can be checkpointed."""
        return tuple(each for each in self.found if isinstance(each, Region))

    def _rows(self, path: str) -> Iterator[Region]:
        """Rows of modules of the ``nn.Sequential`` at ``path``: fewer than all, and more than one."""
        order = self._order(path)
        for start, end in itertools.combinations(range(len(order) + 1), 2):
            size, members = end - start, order[start:end]
            is_part = not start % size  # of a division into equal parts, as long as they go
            if 1 < size < len(order) and (is_part or len(order) <= MOST_IN_ROWS):
                name = f"{members[0]} to {members[-1]}"
                found = self._region(name, members, f"{path}: {size} each" if is_part else name)
                if isinstance(found, Region):
                    yield found

    def _order(self, path: str) -> tuple[str, ...]:
        """Modules of the ``nn.Sequential`` at ``path`` in the order in which they run; empty for another module, or
        where one runs several times."""
        if path not in self._sequential:
            return ()
        depth = path.count(".") + 2 if path else 1
        children = [".".join((self.paths[op] or "").split(".")[:depth]) for op in next(self.runs((path,)))]
        order = tuple(child for child, _ in itertools.groupby(children))
        return order if len({*order, path}) > len(order) else ()

    @cached_property
    def _sequential(self) -> frozenset[str]:
        return frozenset(module.path for module in self.graph.modules if module.type == "Sequential")

    def _region(self, path: str, members: tuple[str, ...], group: str) -> Region | Refusal | None:
        """The module at ``path``, or a row of them; None for one that keeps nothing for the backward pass."""
        calls = [call for ops in self.runs(members) if (call := self._call(members, ops)) is not None]
        if not calls:
            return None
        reason = next((reason for call in calls if (reason := self._against(call) or self._stays(members, call))), "")
        if reason:
            return Refusal(path, reason)
        ops = [op for call in calls for op in call.ops]
        calls_of = [self.graph.calls[self.graph.ops[op].call] for op in ops]
        updated = {self._named[storage] for op in ops for storage in self._given_written(op)}
        return Region(path, tuple(calls), any(map(draws_random, calls_of)), tuple(sorted(updated)), members, group)

    def _inside(self, op: int, members: Sequence[str]) -> bool:
        path = self.paths[op]
        return path is not None and any(within(path, member) for member in members)

    def runs(self, members: tuple[str, ...]) -> Iterator[tuple[int, ...]]:
        """Their ops, one forward pass after the other: ops of other modules come between, or a start that is known."""
        inside = (self._inside(op, members) for op in self.forward)
        starts = self.starts.get(members[0], ()) if len(members) == 1 else ()
        for is_inside, group in itertools.groupby(zip(self.forward, inside, strict=True), key=lambda pair: pair[1]):
            if is_inside:
                ops = [op for op, _ in group]
                cuts = [place for place, op in enumerate(ops) if place and op in starts]
                for start, end in itertools.pairwise([0, *cuts, len(ops)]):
                    yield tuple(ops[start:end])

    def repeats(self, ops: Sequence[int]) -> bool:
        """Tell whether ``ops`` are the same several times, as of a module that runs several times in a row."""
        names = [(self.paths[op], self.graph.calls[self.graph.ops[op].call].op) for op in ops]
        first = [place for place, name in enumerate(names) if place and name == names[0]]
        return any(len(names) % period == 0 and names[period:] == names[:-period] for period in first)

    def _call(self, members: Sequence[str], run: Sequence[int]) -> Call | None:
        graph, facts = self.graph, self.graph.index
        hooked = self._hooked(members[0], run) if len(members) == 1 else 0
        ops, gathered = run[hooked:], {storage for op in run[:hooked] for storage in facts.allocated[op]}
        if not ops:
            return None
        born = {storage for op in ops for storage in facts.allocated[op]}
        if members[0] in self.starts:  # what it returns is saved by its next forward pass, too
            inside = set(ops)
            private = {
                s for s in born if all(u in inside or graph.ops[u].phase is not Phase.FORWARD for u in facts.users[s])
            }
            born = private or born
        using = sorted({user for storage in born for user in facts.users[storage] if user > ops[-1]})
        own = [op for op in using if graph.ops[op].phase is Phase.BACKWARD and self._inside(op, members)]
        return Call(tuple(ops), own[0], own[-1], frozenset(gathered)) if own else None

    def _hooked(self, path: str, run: Sequence[int]) -> int:
        """Return how many ops of ``run`` are of hooks that communicate before the forward pass of the module at
        ``path``, as those of ``fully_shard``: a file replaces its ``forward``, around which hooks stay."""
        ahead = itertools.takewhile(lambda place: self.paths[run[place]] == path, range(len(run)))
        calls = ((place, self.graph.calls[self.graph.ops[run[place]].call]) for place in ahead)
        return max((place + 1 for place, call in calls if runs_once(call)), default=0)

    def keys(self, region: Region) -> dict[int, Kept]:
        """The name of each op of ``region`` for a policy, the same in each of its forward passes."""
        found = {}
        for call in region.calls:
            runs: Counter[tuple[str, str]] = Counter()
            for op in call.ops:
                at = (self.paths[op] or "", self.graph.calls[self.graph.ops[op].call].op)
                found[op] = (*at, runs[at])
                runs[at] += 1
        return found

    def _given_written(self, op: int) -> list[int]:
        """Return what it writes, or updates blindly, that existed before the step."""
        facts, storages = self.graph.index, self.graph.storages
        return [storage for storage in {*facts.writes[op], *facts.blind[op]} if storages[storage].birth is None]

    @cached_property
    def _named(self) -> dict[int, str]:
        """Names of storages that modules own."""
        owner = self.graph.index.owner
        return {owner[each.tensor]: each.name for each in self.graph.named if not each.trainable}

    def _stays(self, members: Sequence[str], call: Call) -> str:
        """Say that a pinned result waits for the backward pass of the module; empty if none does."""
        for op in call.ops:
            for storage in self.graph.index.allocated[op]:
                users = self.graph.index.users[storage]
                if storage in self.pinned and any(u >= call.first and self._inside(u, members) for u in users):
                    return "what it saves is pinned (--pin)"
        return ""

    def _against(self, call: Call) -> str:
        """Return why the forward pass cannot run twice; empty if it can."""
        graph, facts, inside = self.graph, self.graph.index, set(call.ops)
        born = {storage for op in call.ops for storage in facts.allocated[op]}
        for op in call.ops:
            name = graph.calls[graph.ops[op].call].op
            if op in self.once:
                return f"{name} runs once only"
            if has_generator(graph.calls[graph.ops[op].call]):
                return f"{name} draws from a generator of its own, whose state checkpoints do not restore"
            for storage in {*facts.writes[op], *facts.blind[op]} - born:
                if graph.storages[storage].birth is not None or storage not in self._named:
                    return f"{name} changes what the module is given"
                users = [user for user in facts.users[storage] if user in inside]
                if any(storage not in (*facts.writes[user], *facts.blind[user]) for user in users):
                    return f"{self._named[storage]} is changed and used"
        for op in call.ops:
            for storage in facts.reads[op]:
                if storage in born or self.residence[storage] is Residence.ALWAYS:
                    continue
                writers = [
                    u for u in facts.users[storage] if call.ops[-1] < u <= call.last and storage in facts.writes[u]
                ]
                if writers:
                    return "what the module is given changes before its backward pass"
        return ""


def _prefixes(path: str) -> Iterator[str]:
    """Path of every module around ``path``, outermost first, and itself."""
    yield ""
    parts = path.split(".") if path else []
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
