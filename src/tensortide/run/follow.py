"""A program followed along its captured Graph by a Plan, which decides what is evicted, recomputed and moved."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from tensortide.errors import PlanError, PlanLeft
from tensortide.memory.workspace import workspace_bytes
from tensortide.plans import Compute, Copy, Drop, Evict, Fetch, Plan
from tensortide.plans.legal import linked, moves
from tensortide.plans.unfollowed import crowded, departed
from tensortide.replays.plan_actions import PlanActions, followed_peak_bytes, written
from tensortide.replays.remat.simulation import OutOfMemory
from tensortide.run.device import asked_bytes
from tensortide.run.movers import LINKS
from tensortide.run.step_listener import StepListener
from tensortide.run.step_match import Seen
from tensortide.run.tiers import Tiers, tier_bytes
from tensortide.timelines import timeline
from tensortide.timelines.events import Kind

if TYPE_CHECKING:
    from pathlib import Path

    from tensortide.graph.model import Graph
    from tensortide.plans.model import Step
    from tensortide.replays.remat.simulation import Deallocation
    from tensortide.run.block import Block
    from tensortide.run.movers import Mover
    from tensortide.run.runtime import Runtime


class Follower(StepListener):
    """Evicts and recomputes what ``plan`` says, which executes ``graph``, op by op and step after step.

    Where the program does another op than the graph, the policy decides for the rest of the step; the first time that
    is said, with a warning. The budget holds in any case: if there is no room, the policy makes it.
    """

    def __init__(self, runtime: Runtime, graph: Graph, plan: Plan, name: str) -> None:
        self.runtime, self.graph, self.plan = runtime, graph, plan
        self.actions = PlanActions(graph, plan)
        self.name = name
        self.steps = self.left = 0
        """Steps that were followed to their end, and those that were not."""
        self.unfollowed = ""
        """The reason why the first of those was not."""
        self.run_bytes: int | None = None
        """Bytes that a step takes that follows the plan, where one had too little room for it."""
        self._before_bytes = 0
        self._workspace = workspace_bytes(graph, str(runtime.device)).tolist()
        """Bytes of each op's kernel, as measured where it has run in a step that was followed."""
        self._before = [
            [(action, (at, number) in self.actions.last) for number, action in enumerate(actions)]
            for at, actions in enumerate(self.actions.before)
        ]
        """What is done before each op, and whether that evicts for good."""
        self._warned = False
        self._done = 0
        steps = itertools.chain.from_iterable(self.actions.before)
        self._planned = Counter(step.op for step in steps if isinstance(step, Compute))
        """The ops that the plan recomputes, and how often."""
        self._recomputed: Counter[int] = Counter()
        self._other_rules = dataclasses.replace(runtime.engine.rules, deallocation="none")
        self._retained: list[Block] = []
        """Storages that the plan needs longer than the program."""

    def begins(self) -> None:
        self._done = 0
        self._recomputed.clear()
        self._deallocate("none")  # the plan says when a storage is released

    def reaches(self, op: int) -> None:
        self.runtime.engine.collect()
        self.runtime.engine.advance()
        for at in range(self._done, op + 1):
            for action, last in self._before[at]:
                self._act(action, last=last)
        self._done = op + 1

    def takes(self, op: int, seen: Seen) -> None:
        self._workspace[op] = seen.workspace_bytes
        if not op:
            self._before_bytes = seen.before_bytes
        for storage in self.actions.retained[op]:
            live = self.match.live[storage]
            if self.runtime.engine.resident[live]:
                self._retained.append(self.runtime.engine.retain(live))

    def unneeded(self, op: int) -> int:
        return self.actions.unneeded[op]

    def rests(self) -> None:
        self._deallocate("eager")  # what the program releases, the plan has no use for

    def wakes(self) -> None:
        self._deallocate("none")

    def _act(self, action: Step, *, last: bool) -> None:
        """Do what the plan says; ``last``: it evicts for good."""
        if isinstance(action, Compute):
            self._recompute(action.op)
        elif isinstance(action, Evict):
            live = self.match.live.get(action.storage)
            if live is not None:
                self._evict(live, last=last)
        elif isinstance(action, Copy | Fetch | Drop) and action.storage in self.match.live:
            self._move(action, self.match.live[action.storage])

    def hears(self, kind: int, index: int, began_ns: int, ended_ns: int, resident_bytes: int) -> None:
        if kind == Kind.RECOMPUTE:
            self._recomputed[index] += 1

    def ends(self) -> None:
        if extra := (self._recomputed - self._planned).total():  # the policy had to make room
            self.left += 1
            self._had_no_room(extra)
        else:
            self.steps += 1
        self._release()

    def _had_no_room(self, extra: int) -> None:
        """Keep the reason, and what the plan takes beside what the program has that the captured step does not."""
        if self.unfollowed:
            return
        budget_bytes = self.runtime.engine.budget
        if not moves(self.plan):
            start_bytes = timeline(self.graph, device=str(self.runtime.device), workspace=False).start_bytes
            outside_bytes = max(0, self._before_bytes - start_bytes)
            self.run_bytes = followed_peak_bytes(self.graph, self.plan, workspace=self._workspace) + outside_bytes
        self.unfollowed = crowded(extra, budget_bytes, self.run_bytes)

    def _release(self) -> None:
        """Release again what the program releases, and what it has released already."""
        self._deallocate("eager")
        for block in self._retained:
            if block.storage not in self.runtime.engine.waiting:
                block.unretain()
        self._retained.clear()

    def leaves(self, op: int, expected: str, came: str) -> None:
        self.left += 1
        self._release()
        policy = self.runtime.engine.policy.name
        why = departed(self.name, op, len(self._before), expected, came, policy)
        self.unfollowed = self.unfollowed or why
        if not self._warned:
            self._warned = True
            warnings.warn(f"{why} This is said once.", PlanLeft, stacklevel=2)

    def _evict(self, live: int, *, last: bool) -> None:
        engine = self.runtime.engine
        engine.arrive(live)
        if live in engine.spared:  # a gradient that came while the plan rested
            engine.unspare([live])
        if last and engine.resident[live]:
            engine.spill(live)
            engine.renounce(live)
            engine.collect()
        if live in engine.pool or engine.movable(live):
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
        for made, call in dict.fromkeys(self.match.ran.get(op, ())):
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
        if engine.rules.deallocation != how:
            engine.rules, self._other_rules = self._other_rules, engine.rules


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
    return Tiers(tier_bytes(written(graph, plan), plan.home, nbytes), folder, mover)
