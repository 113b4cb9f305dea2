"""The steps of a Plan sorted by the ops of its Graph: what a live run has to do before each of them."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.memory.accumulate import ADD_IN_PLACE
from tensortide.memory.lifetimes import Residence, residences
from tensortide.memory.workspace import Workspace
from tensortide.plans import Compute, Copy, Evict, Fetch, Lane, Plan
from tensortide.plans.events.primitives import homes, primitives
from tensortide.plans.instance import instance
from tensortide.plans.legal import moves, problem_of
from tensortide.plans.under_budget.held import followed, with_held
from tensortide.plans.under_budget.tables import tables
from tensortide.replays import replay

if TYPE_CHECKING:
    from tensortide.graph.model import Graph
    from tensortide.plans.model import Step

LONGEST_START = 8
"""As many ops at the start of a step, at most, have to be recognised before the step counts as begun."""


class PlanActions:
    """Actions of ``plan`` on a program that runs the ops of ``graph``, op by op.

    ``before[op]``: its steps between the first run of the op before and that of ``op``, and as a last entry those
    after the last op. Implicit evictions are included: after its last use in the plan a storage is evicted. ``last``:
    the evictions, by op and position, after which the step does not touch the storage any more. ``first``: the op
    before which the plan has to be followed; until then nothing is recomputed or retained, and nothing evicted that is
    used later.

    A program may refer to a storage beyond its last use, as it does to gradients until they are set to None. If what
    the storage was computed from is overwritten meanwhile, it could not be recomputed for the program: then it is
    evicted only when the program has released it. And the program may release a storage from which the plan recomputes
    something later: ``retained`` has such storages for each op, the last one before they are released.

    ``unneeded``: for each op how many, from it on, run as they would without the plan.
    ``plan``: what the program runs by these actions; what could not be evicted is not recomputed.

    Raises PlanError if the plan runs the ops in another order than the graph.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        moving = moves(plan)
        self.before = _grouped(graph, written(graph, plan), {}) if moving else _with_unsaid(graph, plan)
        if not moving:
            _postpone(graph, self.before)
        self.retained = _retained(graph, self.before)
        self.last = _last(graph, self.before)
        retained = (op + 1 for op, storages in enumerate(self.retained) if storages)
        self.first = min(_first(graph, self.before), next(retained, LONGEST_START))
        self.plan = plan if moving else _executed(graph, plan, self.before)
        self.unneeded = [0] * len(graph) if moving else _unneeded(graph, self.before, self.retained)


def followed_peak_bytes(graph: Graph, plan: Plan, *, workspace: Workspace = True) -> int:
    """The peak of a live run that follows ``plan``, which moves no storages, at most: that of its replay, with what the
    program holds longer than the plan needs it. ``workspace``: as of ``timeline``. Raises PlanError as PlanActions."""
    executed = PlanActions(graph, plan).plan
    device, line = executed.lanes[0].device, replay(graph, executed, workspace=workspace)
    held = with_held(instance(graph, device, [0] * len(graph), workspace=workspace), graph, device)
    waits = [
        (storage.death or 0, int(storage.nbytes))
        for storage, residence in zip(graph.storages, residences(graph), strict=True)
        if residence is Residence.NEVER and storage.device == device
    ]
    peak, reached = followed(held, tables(held), plan).peak_bytes, 0
    for op, again, resident in zip(line.run_op, line.is_recompute, line.resident, strict=True):
        reached = reached if again else op
        peak = max(peak, int(resident) + sum([nbytes for death, nbytes in waits if death > reached]))
    return peak


def written(graph: Graph, plan: Plan) -> Sequence[Step]:
    """The steps of a plan that moves storages, with those that it leaves unsaid."""
    stated = problem_of(plan, graph)
    return primitives(stated, plan.lanes[0].steps, homes(stated, plan.home)).steps


def _with_unsaid(graph: Graph, plan: Plan) -> list[list[Step]]:
    uses = graph.index.touches
    steps = plan.lanes[0].steps
    last: dict[int, int] = {}
    for at, step in enumerate(steps):
        if isinstance(step, Compute):
            last.update(dict.fromkeys(uses[step.op], at))
        elif isinstance(step, Evict):
            last.pop(step.storage, None)
    residence = residences(graph)
    unsaid: dict[int, list[Step]] = {}
    for storage, at in last.items():
        if residence[storage] is Residence.LOCAL:
            unsaid.setdefault(at, []).append(Evict(storage))
    return _grouped(graph, steps, unsaid)


def _grouped(graph: Graph, steps: Sequence[Step], unsaid: dict[int, list[Step]]) -> list[list[Step]]:
    actions: list[list[Step]] = [[] for _ in range(len(graph) + 1)]
    reached = 0
    for at, step in enumerate(steps):
        if isinstance(step, Compute) and step.op >= reached:
            if step.op > reached:
                raise PlanError(
                    f"the plan runs op {step.op} before op {reached}: a program that runs keeps its order, and "
                    "so must a plan that it follows"
                )
            reached += 1
        else:
            actions[reached].append(step)
        actions[reached] += unsaid.get(at, [])
    return actions


def _postpone(graph: Graph, actions: list[list[Step]]) -> None:
    """Repeat the last eviction of each storage where the program releases it, for what could not be evicted before; and
    drop evictions of what cannot be recomputed later, as what it was computed from is overwritten before: in this step,
    or in the next one before that releases it."""
    sources, renewed = _sources(graph), _renewed(graph)
    facts, end = graph.index, len(graph)
    overwritten = [
        sum(1 << storage for storage in {*writes} - {*made} - {*blind})
        for writes, made, blind in zip(facts.writes, facts.allocated, facts.blind, strict=True)
    ]

    def lost(storage: int, ops: range, at: int | None = None) -> bool:
        hits = ((op if at is None else at, overwritten[op] & sources[storage]) for op in ops)
        there = {source for source, op in evicted.items() if op >= ops.stop and recomputed.get(source, op) >= ops.stop}
        return any(hit and hit & _behind(graph, storage, op, there) for op, hit in hits)

    recomputed: dict[int, int] = {}
    evicted: dict[int, int] = {}
    """The op before which each storage is evicted next."""
    for op in range(end, -1, -1):
        for number, action in reversed([*enumerate(actions[op])]):
            if isinstance(action, Compute):
                recomputed.update(dict.fromkeys(facts.writes[action.op], op))
            elif isinstance(action, Evict):
                storage = action.storage
                until = recomputed.get(storage, _release(graph, storage))
                stays = storage not in recomputed and lost(storage, range(renewed.get(storage, 0)), end)
                if stays or lost(storage, range(op, min(until, end))):
                    del actions[op][number]
                else:
                    evicted[storage] = op
                if storage not in recomputed and until > op and not stays:
                    actions[until].append(action)


def _executed(graph: Graph, plan: Plan, actions: list[list[Step]]) -> Plan:
    """The Plan of ``actions``: recomputations that find all that they write as it is, or overwritten since, are left
    out, and what the program still holds at the end goes then."""
    steps: list[Step] = []
    residence = residences(graph)
    given = (i for i, s in enumerate(graph.storages) if s.birth is None and residence[i] is not Residence.NEVER)
    written = dict.fromkeys(given, -1)
    """The op that wrote each resident storage last."""
    for op, before in enumerate(actions):
        for action in before:
            if isinstance(action, Compute):
                if all(written.get(storage, -1) >= action.op for storage in graph.index.writes[action.op]):
                    continue
                written.update(dict.fromkeys(graph.index.writes[action.op], action.op))
            elif isinstance(action, Evict) and written.pop(action.storage, None) is None:
                continue
            steps.append(action)
        if op < len(graph):
            written.update(dict.fromkeys(graph.index.writes[op], op))
            steps.append(Compute(op))
    steps += [Evict(storage) for storage in written if residence[storage] is Residence.LOCAL]
    return Plan(plan.graph, (Lane(plan.lanes[0].device, tuple(steps)),))


def _release(graph: Graph, storage: int) -> int:
    """Return the op before which the program releases ``storage``."""
    death = graph.storages[storage].death
    return len(graph) if death is None else death


def _renewed(graph: Graph) -> dict[int, int]:
    """For each gradient that outlives the step the op of the next step before which the program releases it."""
    given = {s.name: s.death or 0 for s in graph.storages if s.birth is None and s.role.row.renewed}
    return {i: given.get(s.name, 0) for i, s in enumerate(graph.storages) if s.death is None and s.role.row.renewed}


def _behind(graph: Graph, storage: int, at: int, there: Set[int]) -> int:
    """The storages from which ``storage`` is recomputed at op ``at``, as bits: the program's own are there, or are
    brought back before what they are made of is overwritten; so are those that the plan keeps ``there``; and others are
    recomputed themselves."""
    facts, found = graph.index, 0
    queue = [storage]
    for near in queue:
        for op in facts.users[near]:
            if op >= at or near not in facts.writes[op]:
                continue
            for source in facts.needs[op]:
                if source != storage and not found & 1 << source:
                    found |= 1 << source
                    if _release(graph, source) <= at and source not in there:
                        queue.append(source)
    return found


def _sources(graph: Graph) -> list[int]:
    """For each storage, those from which its contents in the end are computed, directly or not, as bits."""
    found = [0] * len(graph.storages)
    for needs, writes in zip(graph.index.needs, graph.index.writes, strict=True):
        mask = 0
        for storage in needs:
            mask |= found[storage] | 1 << storage
        for storage in writes:
            found[storage] |= mask & ~(1 << storage)
    return found


def _retained(graph: Graph, actions: list[list[Step]]) -> list[list[int]]:
    """For each op the storages to retain once it has run: the program releases them right after it, and the plan
    recomputes something from them before it evicts them."""
    found: list[list[int]] = [[] for _ in actions]
    resident: set[int] = set()
    released: set[int] = set()
    """Storages that the program has released and the plan not evicted."""
    for op, before in enumerate(actions):
        released |= resident & {*graph.index.released[op]}
        for action in before:
            if isinstance(action, Evict):
                resident.discard(action.storage)
                released.discard(action.storage)
            elif isinstance(action, Compute):
                touched = graph.index.touches[action.op]
                for storage in released.intersection(touched):
                    found[(graph.storages[storage].death or 0) - 1].append(storage)
                    released.discard(storage)
        resident.update(graph.index.touches[op] if op < len(graph) else ())
    return found


def _unneeded(graph: Graph, actions: list[list[Step]], retained: list[list[int]]) -> list[int]:
    """For each op the number of ops from it on, but for the last one, before which the plan recomputes nothing and
    evicts nothing that is not released already, after which nothing is retained, and which sum no gradients in
    place: that is done here."""
    again: set[int] = set()
    """Storages that are resident although the program has released them."""
    idle: list[bool] = []
    for op in range(len(graph)):
        again.difference_update(graph.index.released[op])
        again.update(retained[op - 1] if op else ())
        due = bool(retained[op]) or graph.calls[graph.ops[op].call].op == ADD_IN_PLACE
        for action in actions[op]:
            if isinstance(action, Compute):
                due = True
                again.update(graph.index.writes[action.op])
            elif isinstance(action, Evict):
                due = due or action.storage in again or _release(graph, action.storage) > op
                again.discard(action.storage)
        idle.append(not due)
    found = [0] * len(graph)
    for op in range(len(graph) - 2, -1, -1):
        found[op] = found[op + 1] + 1 if idle[op] else 0
    return found


def _last(graph: Graph, actions: list[list[Step]]) -> set[tuple[int, int]]:
    later: set[int] = set()
    found = set()
    for op in range(len(graph), -1, -1):
        later.update(graph.index.touches[op] if op < len(graph) else ())
        for number, action in reversed([*enumerate(actions[op])]):
            if isinstance(action, Compute):
                later.update(graph.index.touches[action.op])
            elif isinstance(action, Copy | Fetch):
                later.add(action.storage)
            elif isinstance(action, Evict) and action.storage not in later:
                found.add((op, number))
    return found


def _first(graph: Graph, actions: list[list[Step]]) -> int:
    uses = graph.index.touches
    evicted: dict[int, int] = {}
    first = LONGEST_START
    for op, before in enumerate(actions):
        for action in before:
            if isinstance(action, Evict):
                evicted.setdefault(action.storage, op)
            else:
                first = min(first, op)
        if op < len(uses):
            first = min([first, *(evicted[storage] for storage in uses[op] if storage in evicted)])
    return first
