"""A program followed along its captured Graph by a Plan, which decides what is evicted, recomputed and moved."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

from tensortide.errors import PlanError, PlanLeft
from tensortide.memory.lifetimes import Residence, residences
from tensortide.plans import Compute, Copy, Drop, Evict, Fetch, Plan
from tensortide.plans.events.primitives import homes, primitives
from tensortide.plans.legal import linked, moves, problem_of
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.device import asked_bytes
from tensortide.run.movers import LINKS
from tensortide.run.step_match import LONGEST_START, StepMatch
from tensortide.run.tiers import Tiers, tier_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tensortide.graph.model import Graph
    from tensortide.plans.model import Step
    from tensortide.replays.remat.simulation import Deallocation
    from tensortide.run.movers import Mover
    from tensortide.run.runtime import Runtime


class Follower(StepMatch):
    """Evicts and recomputes what ``plan`` says, which executes ``graph``, op by op and step after step.

    Where the program does another op than the graph, the policy decides for the rest of the step; the first time that
    is said, with a warning. The budget holds in any case: if there is no room, the policy makes it.
    """

    def __init__(self, runtime: Runtime, graph: Graph, plan: Plan, name: str) -> None:
        self.actions = _actions(graph, plan)
        self.last = _last(graph, self.actions) if moves(plan) else set()
        self.name = name
        super().__init__(runtime, graph, _first(graph, self.actions))
        self._warned = False
        self._done = 0

    def begins(self) -> None:
        self._done = 0
        self._deallocate("none")  # the plan says when a storage is released

    def reaches(self, op: int) -> None:
        self.runtime.engine.collect()
        self.runtime.engine.advance()
        self._evict(self.sums.get(op - 1))  # for the plan it is where the sum is
        for at in range(self._done, op + 1):
            for number, action in enumerate(self.actions[at]):
                self._act(action, last=(at, number) in self.last)
        self._done = op + 1

    def _act(self, action: Step, *, last: bool) -> None:
        """Do what the plan says; ``last``: it evicts for good."""
        if isinstance(action, Compute):
            self._recompute(action.op)
        elif isinstance(action, Evict):
            live = self.live.get(action.storage)
            if live is not None:
                self.runtime.engine.arrive(live)
            if last and live is not None and self.runtime.engine.resident[live]:
                self.runtime.engine.spill(live)
            self._evict(live)
        elif isinstance(action, Copy | Fetch | Drop) and action.storage in self.live:
            self._move(action, self.live[action.storage])

    def ends(self) -> None:
        self._deallocate("eager")

    def leaves(self, op: int, expected: str, came: str) -> None:
        self._deallocate("eager")
        if not self._warned:
            self._warned = True
            policy = self.runtime.engine.policy.name
            warnings.warn(
                f"{self.name} does not say what to do here: at op {op} of {len(self.expected)} it expects {expected}, "
                f"and {came} came. For the rest of the step {policy} decides; the next one is followed again. If "
                "the step has changed, plan it again. This is said once.",
                PlanLeft,
                stacklevel=2,
            )

    def _evict(self, live: int | None) -> None:
        engine = self.runtime.engine
        if live is not None and (live in engine.pool or engine.movable(live)):
            engine.evict(live)

    def _move(self, action: Copy | Fetch | Drop, live: int) -> None:
        engine = self.runtime.engine
        if isinstance(action, Copy):
            if engine.resident[live] or live in engine.arriving:
                engine.copy(live, action.link)
        elif isinstance(action, Fetch):
            try:
                engine.fetch(live, action.link)
            except OutOfMemory:
                engine.unlock_all()  # it is fetched when an op asks for it
        else:
            engine.drop(live, action.link)

    def _recompute(self, op: int) -> None:
        engine = self.runtime.engine
        for made, call in dict.fromkeys(self.ran.get(op, ())):
            if call is None or engine.calls[made] is not call:
                continue
            lacking = [value for value in engine.outputs[made] if self._lacks(value)]
            if lacking:
                try:
                    engine.execute(made, lacking[0])
                except (OutOfMemory, RuntimeError) as error:
                    if isinstance(error, RuntimeError) and asked_bytes(error) is None:
                        raise
                    engine.unlock_all()  # it is recomputed when an op asks for it, if then there is room

    def _lacks(self, value: int) -> bool:
        """True if ``value`` is neither resident nor overwritten."""
        engine = self.runtime.engine
        storage = engine.storage[value]
        if engine.defined[value] or engine.dead[storage] or engine.fixed[storage]:
            return False
        values = engine.values[storage]
        return not any(engine.defined[later] for later in values[values.index(value) :])

    def _deallocate(self, how: Deallocation) -> None:
        engine = self.runtime.engine
        engine.rules = dataclasses.replace(engine.rules, deallocation=how)


def tiers_of(plan: Plan, graph: Graph, mover: Mover, folder: Path) -> Tiers | None:
    """The tiers over which ``plan`` moves storages of ``graph``, with room for all that is there at once; None if it
    moves none. Raises RunError if there is no room, PlanError for other links than a live run has."""
    if not moves(plan):
        return None
    if unknown := {*linked(plan)} - {*LINKS}:
        raise PlanError(
            f"the plan moves storages over {', '.join(map(repr, sorted(unknown)))}: a live run has the links "
            f"{' and '.join(map(repr, LINKS))}, memory of the host and a drive"
        )
    nbytes = {i: int(storage.nbytes) for i, storage in enumerate(graph.storages)}
    return Tiers(tier_bytes(_written(graph, plan), plan.home, nbytes), folder, mover)


def _written(graph: Graph, plan: Plan) -> Sequence[Step]:
    """The steps of a plan that moves storages, with those that it leaves unsaid."""
    stated = problem_of(plan, graph)
    return primitives(stated, plan.lanes[0].steps, homes(stated, plan.home)).steps


def _actions(graph: Graph, plan: Plan) -> list[list[Step]]:
    """List, for each op of the graph, the steps of ``plan`` between the first run of the op before it and its own; and
    those after the last op. Implicit evictions are included: after its last use in the plan a storage is evicted.

    Raises PlanError if the plan runs the ops in another order than the graph.
    """
    if moves(plan):
        return _grouped(graph, _written(graph, plan), {})
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


def _last(graph: Graph, actions: list[list[Step]]) -> set[tuple[int, int]]:
    """The evictions after which the step does not touch the storage any more: op, and number among its actions."""
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
    """Number of the op before which the plan has to be followed: until then nothing is recomputed, and nothing evicted
    that is used later."""
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
