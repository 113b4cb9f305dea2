"""What the order of a step decides, as plain integers: ops with their dependencies, storages with their users.

An order is a permutation of the ops that respects the dependencies. Between two ops the step has done a *down-set*: a
set of ops that holds every dependency of its members. The bytes resident then depend on that set alone,

    held(D) = base + sum of nbytes[b] over the blocks b with birth[b] in D and not all of users[b] in D

and while op v runs from D there are ``held(D) + needs[v]``. ``held`` is submodular, held(A | B) + held(A & B) <=
held(A) + held(B): what running an op adds can only shrink as more other ops are done. Safe moves (``lists``), minimum
cuts (``cuts``) and the exact search (``search``) rest on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.memory.workspace import workspace_bytes
from tensortide.plans.lifetimes import Life, lives, users


class Problem:
    """The ordering problem of a graph on ``device``; ``problem`` makes it.

    ``before[v]`` and ``after[v]`` are direct dependencies and dependents of op v. A *block* is a storage whose life the
    order decides: ``storage[b]`` is its index in the graph, ``birth[b]`` the op that allocates it, ``users[b]`` all ops
    that touch it, that one included, ascending; the number of ops stands for a user that never runs, which is how what
    the step leaves behind stays. ``uses[v]`` are the blocks that op v touches, ``born[v]`` the bytes it allocates,
    ``needs[v]`` those and its workspace. ``persistent`` are the storages resident throughout, ``base`` their bytes;
    ``footprint`` is the sum of all.
    """

    __slots__ = (
        "after", "base", "before", "birth", "born", "device", "footprint", "nbytes", "needs", "persistent", "storage",
        "users", "uses",
    )  # fmt: skip

    def __init__(self, device: str, before: list[list[int]], workspace: Iterable[int]) -> None:
        self.device = device
        self.before = before
        self.after: list[list[int]] = [[] for _ in before]
        for op, earlier in enumerate(before):
            for dependency in earlier:
                self.after[dependency].append(op)
        self.needs = [int(extra) for extra in workspace]
        self.born = [0] * len(before)
        self.uses: list[list[int]] = [[] for _ in before]
        self.storage: list[int] = []
        self.birth: list[int] = []
        self.users: list[tuple[int, ...]] = []
        self.nbytes: list[int] = []
        self.persistent: list[int] = []
        self.base = 0
        self.footprint = 0

    def __len__(self) -> int:
        return len(self.before)

    def add(self, storage: int, nbytes: int, touching: list[int], *, kept: bool) -> None:
        """Add a storage whose life the order decides; the first of ``touching`` allocates it."""
        for op in touching:
            self.uses[op].append(len(self.birth))
        self.born[touching[0]] += nbytes
        self.needs[touching[0]] += nbytes
        self.storage.append(storage)
        self.birth.append(touching[0])
        self.users.append((*touching, len(self)) if kept else tuple(touching))
        self.nbytes.append(nbytes)

    def levels(self, order: Sequence[int]) -> list[int]:
        """Bytes resident during each op of ``order``."""
        left = [len(touching) for touching in self.users]
        held, series = self.base, []
        for op in order:
            series.append(held + self.needs[op])
            held += self.born[op]
            for block in self.uses[op]:
                left[block] -= 1
                if not left[block]:
                    held -= self.nbytes[block]
        return series

    def peak(self, order: Sequence[int]) -> int:
        """Most bytes resident during any op of ``order``; ``base`` if there is none."""
        return max(self.levels(order), default=self.base)

    def resident(self, order: Sequence[int]) -> list[list[int]]:
        """The storages of the graph that are resident during each op of ``order``, ascending, whatever their sizes."""
        series = [list(self.persistent) for _ in order]
        for block, (first, last) in enumerate(self._spans(order)):
            for storages in series[first : last + 1]:
                storages.append(self.storage[block])
        return [sorted(storages) for storages in series]

    def resident_at(self, order: Sequence[int], position: int) -> list[int]:
        """The storages of the graph that are resident during the op at ``position`` of ``order``, ascending."""
        spans = enumerate(self._spans(order))
        return sorted(self.persistent + [self.storage[b] for b, (first, last) in spans if first <= position <= last])

    def _spans(self, order: Sequence[int]) -> list[tuple[int, int]]:
        """First and last position in ``order`` at which each block is resident."""
        at = {op: position for position, op in enumerate(order)}
        end = len(order) - 1
        return [(at[touching[0]], max(at.get(op, end) for op in touching)) for touching in self.users]

    def ancestors(self, op: int) -> set[int]:
        """The ops that ``op`` must follow, directly or not."""
        return _reached(op, self.before)

    def descendants(self, op: int) -> set[int]:
        """The ops that must follow ``op``, directly or not."""
        return _reached(op, self.after)


def _reached(op: int, edges: Sequence[Sequence[int]]) -> set[int]:
    found: set[int] = set()
    stack = [op]
    while stack:
        for near in edges[stack.pop()]:
            if near not in found:
                found.add(near)
                stack.append(near)
    return found


def problem(graph: Graph, device: str, *, workspace: bool = True) -> Problem:
    """The ordering problem of ``graph`` on ``device``, under the lifetimes of ``plan.lifetimes``.

    Ops on other devices take part in the order and hold nothing here. Raises PlanError for a graph with loops: the ops
    of a body run once per iteration, so they have no order before the loops are written out (``together.stated``).
    """
    if graph.loops:
        raise PlanError(f"the ops of a step with loops have no order: write out {graph.loops[0].name!r} first")
    extra = workspace_bytes(graph, device) if workspace else [0] * len(graph)
    made = Problem(device, dependencies(graph), extra)
    touched = users(graph)
    for index, life in enumerate(lives(graph, touched)):
        storage = graph.storages[index]
        if storage.device != device or life is Life.NEVER:
            continue
        nbytes = int(storage.nbytes)
        made.footprint += nbytes
        if life is Life.ALWAYS:
            made.persistent.append(index)
            made.base += nbytes
        else:
            made.add(index, nbytes, touched[index], kept=life is Life.KEPT)
    return made


def dependencies(graph: Graph) -> list[list[int]]:
    """The ops that each op of ``graph`` must follow, ascending; enough of them that all others are implied.

    An op follows the op that made each of its input tensors (a view too), and as recorded: the writes of a storage
    come before its later reads, its reads before the later writes, its writes one after the other. The allocation of a
    storage is its first write; one that is written in parts is ordered as a whole. Random ops and collectives that
    write no common storage may change places.
    """
    owner = [tensor.storage for tensor in graph.tensors]
    made: dict[int, int] = {}
    written = {s: storage.birth for s, storage in enumerate(graph.storages) if storage.birth is not None}
    read_since: dict[int, list[int]] = {}
    before: list[list[int]] = []
    for index, op in enumerate(graph.ops):
        read = {owner[tensor] for tensor in op.inputs}
        writes = {owner[op.inputs[slot]] for slot in graph.calls[op.call].mutated}
        writes.update(s for s in map(owner.__getitem__, op.outputs) if s not in read)
        earlier = {made[tensor] for tensor in op.inputs if tensor in made}
        earlier.update(written[s] for s in read | writes if s in written)
        for storage in writes:
            earlier.update(read_since.pop(storage, ()))
            written[storage] = index
        for storage in read - writes:
            read_since.setdefault(storage, []).append(index)
        made.update(dict.fromkeys(op.outputs, index))
        before.append(sorted(earlier - {index}))
    return before
