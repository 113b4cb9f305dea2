"""The check of a Plan of several lanes: every op once, on a lane that has what it reads; a receive for every send."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from tensortide.errors import PlanError
from tensortide.graph.model import Graph
from tensortide.plans.instance import BEFORE
from tensortide.plans.model import Compute, Copy, Drop, Evict, Fetch, Offload, Plan, Receive, Send, Step


class Crossing(NamedTuple):
    """A storage that one lane sends to another: the numbers of both steps in their lanes, and the state of it."""

    storage: int
    source: int
    sent: int
    target: int
    received: int
    state: int


class Walked(NamedTuple):
    """The lane on which each storage is at home, and all that crosses, in the order in which lanes receive it."""

    home: dict[int, int]
    crossings: tuple[Crossing, ...]


class _Position:
    """A lane as it is walked: where it stands, and the state of every storage that is on it (the op that wrote it), and
    of every copy on a tier, by storage and link."""

    def __init__(self) -> None:
        self.at = 0
        self.states: dict[int, int] = {}
        self.tiers: dict[tuple[int, str], int] = {}


def check_lanes(plan: Plan, graph: Graph, *, moves: bool = False) -> Walked:
    """Walk the lanes of ``plan`` side by side. ``moves``: lanes may move storages to tiers of theirs and back.

    A lane waits at a ``Receive`` until the lane it names has sent the storage. An op must find what it reads as the
    recorded step had it, on its own lane; only the lane where a storage is at home writes it. What exists before the
    step is at home on the one lane that uses or sends it without having received it. Every op runs once: these plans do
    not recompute.

    Raises PlanError for a plan of another graph, and one that names the lane and the step: for an op that runs twice or
    never, a value that is missing or outdated, sends without receives, and lanes that wait for each other.
    """
    if plan.graph != graph.index.digest:
        raise PlanError("the plan was made for another graph")
    walker = _Walker(plan, graph, moves)
    walker.walk()
    return Walked(walker.home, tuple(walker.crossings))


class _Walker:
    def __init__(self, plan: Plan, graph: Graph, moves: bool) -> None:
        self.plan, self.graph, self.moves = plan, graph, moves
        self.lanes = [_Position() for _ in plan.lanes]
        self.posted: defaultdict[tuple[int, int, int], deque[tuple[int, int]]] = defaultdict(deque)
        """By storage, source and target the state of what was sent, and the number of the step."""
        self.crossings: list[Crossing] = []
        self.home: dict[int, int] = {}
        self.ran: set[int] = set()
        self.expected = _states(graph)

    def walk(self) -> None:
        moved = True
        while moved:
            moved = False
            for number, lane in enumerate(self.lanes):
                steps = self.plan.lanes[number].steps
                while lane.at < len(steps) and self._take(number, lane):
                    lane.at += 1
                    moved = True
        for number, lane in enumerate(self.lanes):
            steps = self.plan.lanes[number].steps
            if lane.at < len(steps):
                sends = "sends before it waits itself" if self._comes(steps[lane.at], number) else "sends"
                raise self._error(number, f"waits for ever: {steps[lane.at]}, which no lane {sends}")
        left = next((key for key, states in self.posted.items() if states), None)
        if left is not None:
            raise PlanError(f"lane {left[1]} sends storage {left[0]} to lane {left[2]}, which does not receive it")
        missing = next((op for op in range(len(self.graph)) if op not in self.ran), None)
        if missing is not None:
            raise PlanError(f"the plan never computes op {missing} ({self.graph[missing].name})")

    def _comes(self, step: Step, number: int) -> bool:
        """True if the lane that ``step`` of lane ``number`` waits for would send it later."""
        if not isinstance(step, Receive):
            return False
        return Send(step.storage, number) in self.plan.lanes[step.lane].steps[self.lanes[step.lane].at :]

    def _take(self, number: int, lane: _Position) -> bool:
        """Take the next step of a lane; False if it has to wait."""
        step = self.plan.lanes[number].steps[lane.at]
        if isinstance(step, Compute):
            self._compute(number, lane, step.op)
        elif isinstance(step, Send):
            self._check_numbers(number, step)
            state = self._state(number, lane, step.storage)
            if state is None:
                raise self._error(number, f"sends storage {step.storage}, which is not on the lane", step.storage)
            self.posted[step.storage, number, step.lane].append((state, lane.at))
        elif isinstance(step, Receive):
            self._check_numbers(number, step)
            sent = self.posted[step.storage, step.lane, number]
            if not sent:
                return False
            if self.home.get(step.storage) == number:
                raise self._error(number, f"receives storage {step.storage}, which is at home there", step.storage)
            state, at = sent.popleft()
            self.crossings.append(Crossing(step.storage, step.lane, at, number, lane.at, state))
            lane.states[step.storage] = state
        elif isinstance(step, Evict):
            if lane.states.pop(step.storage, None) is None:
                raise self._error(number, f"evicts storage {step.storage}, which is not on the lane", step.storage)
        elif self.moves:
            self._move(number, lane, step)
        else:
            raise self._error(number, f"is {step}: plans of several lanes compute, send, receive and evict")
        return True

    def _compute(self, number: int, lane: _Position, op: int) -> None:
        if not 0 <= op < len(self.graph):
            raise self._error(number, f"computes op {op} of {len(self.graph)}")
        name = self.graph[op].name
        if op in self.ran:
            raise self._error(number, f"computes op {op} ({name}), which ran before")
        index = self.graph.index
        for storage, wanted in self.expected[op].items():
            found = self._state(number, lane, storage)
            if found != wanted:
                seen = "is not on the lane" if found is None else f"was last written by op {found}"
                raise self._error(number, f"computes op {op} ({name}): storage {storage} {seen}", storage)
        for storage in index.writes[op]:
            if self.home.setdefault(storage, number) != number:
                raise self._error(
                    number,
                    f"computes op {op} ({name}), which writes storage {storage}, at home on lane {self.home[storage]}",
                    storage,
                )
            lane.states[storage] = op
        self.ran.add(op)

    def _move(self, number: int, lane: _Position, step: Copy | Offload | Fetch | Drop) -> None:
        """Take a step that moves a storage between a lane and a tier of its own."""
        s, link = step.storage, step.link
        if not 0 <= s < len(self.graph.storages):
            raise self._error(number, f"is {step}: there are {len(self.graph.storages)} storages")
        if isinstance(step, Copy | Offload):
            state = self._state(number, lane, s)
            if state is None:
                raise self._error(number, f"copies storage {s}, which is not on the lane", s)
            lane.tiers[s, link] = state
            if isinstance(step, Offload):
                del lane.states[s]
        elif (s, link) not in lane.tiers:
            raise self._error(number, f"is {step}: {link} has no copy of storage {s}", s)
        elif isinstance(step, Drop):
            del lane.tiers[s, link]
        elif s in lane.states:
            raise self._error(number, f"fetches storage {s}, which is on the lane", s)
        else:
            lane.states[s] = lane.tiers[s, link]

    def _state(self, number: int, lane: _Position, storage: int) -> int | None:
        """The state of a storage on a lane; what exists before the step is at home where it is used first."""
        if storage not in lane.states and self.graph.storages[storage].birth is None and storage not in self.home:
            self.home[storage] = number
            lane.states[storage] = BEFORE
        return lane.states.get(storage)

    def _check_numbers(self, number: int, step: Send | Receive) -> None:
        if not 0 <= step.storage < len(self.graph.storages):
            raise self._error(number, f"is {step}: there are {len(self.graph.storages)} storages")
        if not 0 <= step.lane < len(self.lanes) or step.lane == number:
            raise self._error(number, f"is {step}: no other lane has that number")

    def _error(self, number: int, what: str, storage: int | None = None) -> PlanError:
        at = self.lanes[number].at
        return PlanError(
            f"lane {number} ({self.plan.lanes[number].device}), step {at} {what}", step=at, storage=storage
        )


def _states(graph: Graph) -> list[dict[int, int]]:
    """For each op the state that the recorded step has each storage in that the op reads or writes."""
    state = {storage: BEFORE for storage, held in enumerate(graph.storages) if held.birth is None}
    found: list[dict[int, int]] = []
    for reads, writes in zip(graph.index.reads, graph.index.writes, strict=True):
        op = len(found)
        found.append({storage: state[storage] for storage in (*reads, *writes) if storage in state})
        state.update(dict.fromkeys(writes, op))
    return found
