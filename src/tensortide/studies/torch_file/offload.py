"""Saved tensors to move to the host: those of a captured step, and a choice of them that fits a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tensortide.graph.model import Graph, Phase
from tensortide.memory.lifetimes import Residence
from tensortide.studies.torch_file.choice import Choice, Moved, Saved, text
from tensortide.studies.torch_file.levels import Levels
from tensortide.timing.machine import Link

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
    """What can move, of the step ``marked`` of a probe; nothing if its model runs several times."""
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
        """How long it is not used, beyond what its transfers take."""
        nbytes = candidate.nbytes
        moves = self.link.transfer_ns(nbytes) + self.link.transfer_ns(nbytes, inwards=True)
        return self.starts_ns[candidate.back] - self.starts_ns[candidate.gone] - moves


def chosen(level: Ints, some: Sequence[Candidate], clock: Clock, budget_bytes: int) -> list[Candidate] | None:
    """Candidates without which ``level`` (of ``Levels``) is within the budget: first those that are idle longest for
    their size. None if there are none."""
    level = level.copy()
    left = sorted(some, key=lambda each: -each.nbytes * max(clock.idle_ns(each), 1))
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


def moved(
    level: Ints, found: Sequence[Candidate], every: Sequence[Candidate], clock: Clock, budget_bytes: int, *, ahead: bool
) -> tuple[Moved, ...]:
    """The candidates ``found`` as they are moved; with ``ahead``, each transfer back begins so early that it is hidden,
    as far as there is room, when another of ``every`` saved tensor is used."""
    level = level.copy()
    for each in found:
        level[2 * each.gone : 2 * each.back] -= each.nbytes
    result = []
    for each in sorted(found, key=lambda each: each.back):
        trigger = _trigger(level, each, every, clock, budget_bytes) if ahead else None
        if trigger is not None:
            level[2 * trigger.back : 2 * each.back] += each.nbytes
        result.append(Moved(each.saved, each.nbytes, None if trigger is None else trigger.saved[0]))
    return tuple(result)


def _trigger(
    level: Ints, each: Candidate, every: Sequence[Candidate], clock: Clock, budget_bytes: int
) -> Candidate | None:
    """The saved tensor whose use begins the transfer of ``each``: the last that leaves enough time for it, or the
    first from which on there is room."""
    wanted = clock.starts_ns[each.back] - clock.link.transfer_ns(each.nbytes, inwards=True)
    best = None
    for other in sorted(every, key=lambda other: -other.back):
        if not each.gone < other.back < each.back:
            continue
        if int(np.max(level[2 * other.back : 2 * each.back], initial=0)) + each.nbytes > budget_bytes:
            break
        best = other
        if clock.starts_ns[other.back] <= wanted:
            break
    return best


def transfers_of(graph: Graph, pool_bytes: int) -> tuple[dict[int, int], dict[int, int]]:
    """By place of the pool (its start), the op of the captured step that copies to it, and the first that copies
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
