"""Saved tensors to move to the host: those of a captured step, and a choice of them that fits a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tensortide.graph.model import Graph, Phase, Role
from tensortide.memory.lifetimes import Residence
from tensortide.plans.model import Copy, Fetch, Offload, Plan
from tensortide.studies.torch_file.choice import Choice, Moved, Saved, text
from tensortide.studies.torch_file.levels import Levels
from tensortide.timing.links import Link

if TYPE_CHECKING:
    from tensortide.studies.torch_file.levels import Ints

_MARK = "aten.alias.default"
_PROBE = f'''
def _marked(self, tensor):
    """Run an op by which a saved tensor is found in the captured step."""
    torch.ops.{_MARK}(tensor.detach())
    return tensor.detach()


def _around(self, forward):
    hooked = unmarked(self, forward)

    def run(*args, **kwargs):
        torch.ops.{_MARK}(torch.empty(0))
        return hooked(*args, **kwargs)

    return run


unmarked = Offload.around
Offload.pack, Offload.around = _marked, _around
'''


_KINDS = {Role.PARAMETER: "parameters", Role.OPTIMIZER_STATE: "optimizer state", Role.GRADIENT: "gradients"}


@dataclass(frozen=True)
class Candidate:
    """A storage that can be away while the ops ``gone`` to ``back`` - 1 of the captured step run."""

    storage: int
    nbytes: int
    saved: tuple[Saved, ...]
    gone: int
    back: int


def probe(choice: Choice) -> str:
    """The text of a file that does ``choice`` and marks every saved tensor."""
    some = Choice(choice.checkpoints, (Moved((("", 0),), 1),), choice.roots)
    return text(some, "") + _PROBE


def candidates(marked: Graph, device: str) -> list[Candidate]:
    """Return what can move, of the step ``marked`` of a probe; nothing if its model runs several times."""
    saved: dict[int, list[Saved]] = {}
    counts: Counter[str] = Counter()
    runs = 0
    for op in marked.ops:
        if marked.calls[op.call].op != _MARK or op.phase is not Phase.FORWARD:
            continue
        tensor = marked.tensors[op.inputs[0]]
        if not tensor.numel:
            runs += 1
            continue
        path = marked.modules[op.module].path if op.module >= 0 else ""
        saved.setdefault(tensor.storage, []).append((path, counts[path]))
        counts[path] += 1
    return [*_movable(marked, device, saved)] if runs == 1 else []


def _movable(marked: Graph, device: str, saved: dict[int, list[Saved]]) -> Iterator[Candidate]:
    levels_of = Levels(marked, device, [0] * len(marked), workspace=False)
    for storage, keys in saved.items():
        users = marked.index.users[storage]
        back = next((user for user in users if marked.ops[user].phase is Phase.BACKWARD), None)
        nbytes = levels_of.nbytes[storage]
        if back is None or not nbytes or levels_of.residence[storage] is not Residence.LOCAL:
            continue
        gone = max((user for user in users if user < back), default=back) + 1
        if gone < back:
            yield Candidate(storage, nbytes, tuple(keys), gone, back)


@dataclass(frozen=True)
class Clock:
    """Times of the ops of the captured step, as the start of each; and the link."""

    starts_ns: Sequence[int]
    link: Link

    def idle_ns(self, candidate: Candidate) -> int:
        """Return how long it is not used, beyond what its transfers take."""
        nbytes = candidate.nbytes
        moves = self.link.transfer_ns(nbytes) + self.link.transfer_ns(nbytes, inwards=True)
        return self.starts_ns[candidate.back] - self.starts_ns[candidate.gone] - moves


Scheduled: TypeAlias = "list[tuple[Candidate, Candidate | None]]"
"""What moves, each with the saved tensor whose use begins its transfer back (None: its own)."""


def moves(
    level: Ints, every: Sequence[Candidate], first: frozenset[int], clock: Clock, budget_bytes: int
) -> tuple[tuple[Moved, ...], bool]:
    """The moves by which ``level`` (of ``Levels``) is within the budget that stall the step least, as predicted, and of
    those the fewest bytes; and whether there are any: if not, everything moves.

    ``first``: storages to be moved before others. More moves than the budget asks for leave room to begin transfers
    back early.
    """
    largest = max(each.nbytes for each in every)
    found = [
        some
        for preferred in (frozenset[int](), first)
        for room in (0, largest, 2 * largest)
        if (some := chosen(level, every, clock, budget_bytes - room, preferred)) is not None
    ]
    scheduled = [schedule(level, some, every, clock, budget_bytes) for some in found or [[*every]]]
    best = min(scheduled, key=lambda some: (stall_ns(some, clock), sum(each.nbytes for each, _ in some)))
    moved = (Moved(each.saved, each.nbytes, None if at is None else at.saved[0]) for each, at in best)
    return tuple(moved), bool(found)


def chosen(
    level: Ints, some: Sequence[Candidate], clock: Clock, budget_bytes: int, first: Container[int] = ()
) -> list[Candidate] | None:
    """Candidates without which ``level`` is within the budget: the storages ``first`` before others, and those that are
    idle longest for their size. None if there are none."""
    level = level.copy()
    left = sorted(some, key=lambda each: (each.storage not in first, -each.nbytes * max(clock.idle_ns(each), 1)))
    found: list[Candidate] = []
    while (worst := int(level.argmax())) >= 0 and level[worst] > budget_bytes:
        best = next((each for each in left if 2 * each.gone <= worst < 2 * each.back), None)
        if best is None:
            return None
        left.remove(best)
        found.append(best)
        level[2 * best.gone : 2 * best.back] -= best.nbytes
    for each in sorted(found, key=lambda each: each.nbytes):
        span = slice(2 * each.gone, 2 * each.back)
        if level[span].max(initial=0) + each.nbytes <= budget_bytes:
            level[span] += each.nbytes
            found.remove(each)
    return found


def schedule(
    level: Ints, found: Sequence[Candidate], every: Sequence[Candidate], clock: Clock, budget_bytes: int
) -> Scheduled:
    """The candidates ``found``; each transfer back begins so early that it is hidden, as far as there is room, when
    another of ``every`` saved tensor is used. They share the link one after the other."""
    level = level.copy()
    for each in found:
        level[2 * each.gone : 2 * each.back] -= each.nbytes
    # The latest start of each transfer, from the last one on: it ends where the next begins, or where it is used.
    latest: dict[int, int] = {}
    free = clock.starts_ns[-1]
    for each in sorted(found, key=lambda each: -each.back):
        arrival = min(free, clock.starts_ns[each.back])
        free = latest[each.storage] = arrival - clock.link.transfer_ns(each.nbytes, inwards=True)
    uses = sorted(every, key=lambda other: -other.back)
    result: Scheduled = []
    for each in sorted(found, key=lambda each: each.back):
        trigger = _trigger(level, each, uses, clock, latest[each.storage], budget_bytes)
        if trigger is not None:
            level[2 * trigger.back : 2 * each.back] += each.nbytes
        result.append((each, trigger))
    return result


def _trigger(
    level: Ints, each: Candidate, uses: Sequence[Candidate], clock: Clock, latest_ns: int, budget_bytes: int
) -> Candidate | None:
    """The saved tensor whose use begins the transfer of ``each``: the last that is used by ``latest_ns``, or the first
    from which on there is room."""
    best = None
    for other in uses:
        if not each.gone < other.back < each.back:
            continue
        if int(np.max(level[2 * other.back : 2 * each.back], initial=0)) + each.nbytes > budget_bytes:
            break
        best = other
        if clock.starts_ns[other.back] <= latest_ns:
            break
    return best


def stall_ns(scheduled: Scheduled, clock: Clock) -> int:
    """Return how long a step waits for the transfers, one after the other each way."""
    left: dict[int, int] = {}
    free = 0
    for each, _ in sorted(scheduled, key=lambda pair: pair[0].gone):
        free = left[each.storage] = max(free, clock.starts_ns[each.gone]) + clock.link.transfer_ns(each.nbytes)
    free, late = 0, 0
    for each, trigger in scheduled:
        asked = clock.starts_ns[(trigger or each).back] + late
        free = max(asked, free, left[each.storage]) + clock.link.transfer_ns(each.nbytes, inwards=True)
        late = max(late, free - clock.starts_ns[each.back])
    return late


def moved_by(plan: Plan | None) -> set[int]:
    """Storages that ``plan`` moves, or that are at home elsewhere."""
    steps = () if plan is None else (step for lane in plan.lanes for step in lane.steps)
    moved = {step.storage for step in steps if isinstance(step, Copy | Offload | Fetch)}
    return moved.union(() if plan is None else plan.home)


def unmoved(graph: Graph, storages: Collection[int]) -> dict[str, int]:
    """Bytes of ``storages``, which no hook of saved tensors moves, by what they are; most first."""
    found: Counter[str] = Counter()
    for storage in storages:
        one = graph.storages[storage]
        found[_KINDS.get(one.role, "tensors not saved for the backward pass")] += int(one.nbytes)
    return dict(found.most_common())


def transfers_of(graph: Graph, pool_bytes: int) -> tuple[dict[int, int], dict[int, int]]:
    """Return by place of the pool (its start) the op of the captured step that copies to it, and the first that copies
    back."""
    out: dict[int, int] = {}
    back: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        if graph.calls[op.call].op != "aten.copy_.default":
            continue
        to, source = (graph.tensors[t] for t in op.inputs[:2])
        if is_pool(graph, to.storage, pool_bytes):
            out.setdefault(to.offset * to.itemsize, number)
        elif is_pool(graph, source.storage, pool_bytes):
            back.setdefault(source.offset * source.itemsize, number)
    return out, back


def is_pool(graph: Graph, storage: int, pool_bytes: int) -> bool:
    """True for the pool of a file: it exists before the step, and no tensor of numbers has its odd size."""
    one = graph.storages[storage]
    return one.birth is None and int(one.nbytes) == pool_bytes
