"""Modules that a file can checkpoint: their forward passes, and what speaks against recomputing some of them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tensortide.graph.effects import draws_random, has_generator, runs_once
from tensortide.graph.model import OUTSIDE, Graph, Phase
from tensortide.graph.module_paths import pattern, within
from tensortide.memory.lifetimes import Residence, residences
from tensortide.studies.torch_file.choice import Kept

Pass: TypeAlias = tuple[str, tuple[int, ...]]
"""A forward pass of a module, by its path: its ops."""

CONTAINERS = ("ModuleList", "ModuleDict")
"""Classes of modules that have no forward pass."""
CAST = "aten._to_copy.default"
"""An op of which autocast runs more in a recomputation: its casts of parameters last until a forward pass ends."""
MOST_IN_ROWS = 32
"""Most modules in a row of which all parts are tried; of more, only equal parts."""


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
    """A module that can be checkpointed, or a row of modules of which each runs on the result of the one before:
    ``members``, the first to the last. ``random``: it draws random numbers; ``updated``: buffers that it updates.
    Regions that share one of ``groups`` are alike."""

    path: str
    calls: tuple[Call, ...]
    random: bool
    updated: tuple[str, ...]
    members: tuple[str, ...]
    groups: tuple[str, ...]

    @cached_property
    def ops(self) -> frozenset[int]:
        """Forward ops of all calls."""
        return frozenset(itertools.chain.from_iterable(call.ops for call in self.calls))

    def covers(self, path: str) -> bool:
        """Tell whether the module at ``path`` is the region, or inside it."""
        return any(within(path, member) for member in self.members)

    def overlaps(self, other: Region) -> bool:
        """Tell whether an op is in both."""
        return not self.ops.isdisjoint(other.ops)


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
    def _end(self) -> int:
        """The number after that of the last op of the backward pass."""
        return max((number + 1 for number, op in enumerate(self.graph.ops) if op.phase is Phase.BACKWARD), default=0)

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
        found = (self._region(path, (path,), (pattern(path),), self.runs(path)) for path in self.every)
        alone = tuple(each for each in found if each is not None)
        parents = dict.fromkeys(each for path in self.every for each in [*_prefixes(path)][:-1] if each in self._known)
        rows = [row for parent in parents for row in self._rows(parent) if isinstance(row, Region)]
        modules = {each.ops for each in alone if isinstance(each, Region)}
        return (*alone, *(row for row in rows if row.ops not in modules))

    @cached_property
    def overlapping(self) -> dict[str, frozenset[str]]:
        """By the path of each module that can be checkpointed, the others that run some of its ops."""
        regions = self.regions()
        return {
            one.path: frozenset(each.path for each in regions if each is not one and each.overlaps(one))
            for one in regions
        }

    def regions(self) -> tuple[Region, ...]:
        """Modules that can be checkpointed."""
        return tuple(each for each in self.found if isinstance(each, Region))

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.every)

    def _rows(self, parent: str) -> Iterator[Region | Refusal | None]:
        """Rows of the outermost modules inside ``parent``, more than one, whose first one runs nowhere else."""
        passes = [
            (name, tuple(ops)) for name, ops in itertools.groupby(self.forward, lambda op: self._child(parent, op))
        ]
        times = Counter(name for name, _ in passes)
        rows: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
        groups: dict[tuple[str, ...], tuple[str, ...]] = {}
        for chain in self._chains(passes):
            for start, end in itertools.combinations(range(len(chain) + 1), 2):
                size, row = end - start, chain[start:end]
                is_part = not start % size  # of a division into equal parts, as long as they go
                if size > 1 and (is_part or len(chain) <= MOST_IN_ROWS):
                    members = tuple(name for name, _ in row)
                    rows.setdefault(members, []).append(tuple(op for _, ops in row for op in ops))
                    name = f"{pattern(parent)}: " + " to ".join(
                        each[len(parent) :] for each in (members[0], members[-1])
                    )
                    groups[members] = (f"{parent}: {size} each", name) if is_part else (name,)
        for members, runs in rows.items():
            if times[members[0]] == len(runs):
                yield self._region(f"{members[0]} to {members[-1]}", members, groups[members], runs)

    def _child(self, parent: str, op: int) -> str:
        """The outermost module inside ``parent`` that runs ``op``; empty if none does."""
        path = self.paths[op]
        inside = _prefixes(path) if path is not None and within(path, parent) else ()
        return next((each for each in inside if each in self._known and within(each, parent) and each != parent), "")

    def _chains(self, passes: Sequence[Pass]) -> Iterator[Sequence[Pass]]:
        """Divide forward passes of modules where a module runs on more, or less, than the result of the one before."""
        start = 0
        for place, (name, ops) in enumerate(passes):
            if place and not (name and passes[place - 1][0] and self._feeds(passes[place - 1][1], ops)):
                yield passes[start:place]
                start = place
        yield passes[start:]

    def _feeds(self, ops: Sequence[int], following: Sequence[int]) -> bool:
        """Tell whether what ``ops`` make is all that ``following`` are given, and neither another op nor the program
        has it later."""
        graph, facts = self.graph, self.graph.index
        made = {tensor for op in ops for tensor in graph.ops[op].outputs}
        passed = {tensor for op in following for tensor in graph.ops[op].outputs}
        given = {tensor for op in following for tensor in graph.ops[op].inputs} - passed
        if not all(tensor in made or facts.owner[tensor] in self._owned for tensor in given):
            return False
        for tensor in made - passed:
            storage = facts.owner[tensor]
            users = [user for user in facts.users[storage] if user > ops[-1] and user not in following]
            others = [user for user in users if graph.ops[user].phase is not Phase.BACKWARD]
            if any(tensor in graph.ops[user].inputs for user in others):
                return False
            if tensor in given and graph.storages[storage].death not in range(self._end + 1):
                return False
        return True

    def _region(
        self, path: str, members: tuple[str, ...], groups: tuple[str, ...], runs: Iterable[tuple[int, ...]]
    ) -> Region | Refusal | None:
        """The module at ``path``, or a row of them, by its forward passes; None for one that keeps nothing for the
        backward pass."""
        calls = [call for ops in runs if (call := self._call(members, ops)) is not None]
        if not calls:
            return None
        reason = next((reason for call in calls if (reason := self._against(call) or self._stays(members, call))), "")
        if reason:
            return Refusal(path, reason)
        ops = [op for call in calls for op in call.ops]
        calls_of = [self.graph.calls[self.graph.ops[op].call] for op in ops]
        updated = {self._named[storage] for op in ops for storage in self._given_written(op)}
        return Region(path, tuple(calls), any(map(draws_random, calls_of)), tuple(sorted(updated)), members, groups)

    def _inside(self, op: int, members: Sequence[str]) -> bool:
        path = self.paths[op]
        return path is not None and any(within(path, member) for member in members)

    def runs(self, path: str) -> Iterator[tuple[int, ...]]:
        """The ops of a module, one forward pass after the other: other ops come between, or a start that is known."""
        starts = self.starts.get(path, ())
        for is_inside, group in itertools.groupby(self.forward, lambda op: self._inside(op, (path,))):
            if is_inside:
                ops = [*group]
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
        end = ops[-1]
        born -= {  # what others overwrite is theirs
            s
            for s in born
            if any(u > end and graph.ops[u].phase is Phase.FORWARD and s in facts.writes[u] for u in facts.users[s])
        }
        if members[0] in self.starts:  # what it returns is saved by its next forward pass, too
            inside = set(ops)
            private = {
                s for s in born if all(u in inside or graph.ops[u].phase is not Phase.FORWARD for u in facts.users[s])
            }
            born = private or born
        using = sorted({user for storage in born for user in facts.users[storage] if user > end})
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
    def _owned(self) -> frozenset[int]:
        """Storages of parameters and buffers."""
        return frozenset(self.graph.index.owner[each.tensor] for each in self.graph.named)

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
