"""The Timeline of a plan that moves storages: ops, transfers on their copy engines, stalls, and every place's bytes."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from tensortide.errors import NoSuchOp
from tensortide.graph.model import Graph
from tensortide.graph.roles import WORKSPACE, Role
from tensortide.memory.lifetimes import lifetimes
from tensortide.memory.rounding import EXACT
from tensortide.plans import Compute, Copy, Evict, Fetch, Plan
from tensortide.plans.events import Levels, Stall, levels, play, steady_ns
from tensortide.plans.events.played import NOTHING
from tensortide.plans.events.primitives import homes
from tensortide.plans.instance import DEVICE, Instance
from tensortide.timelines.events import Events, Kind
from tensortide.timelines.resident import Resident, resident
from tensortide.timelines.timeline import Playback, StorageTimeline

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints


class PlaceBytes(NamedTuple):
    """Bytes of a place over time: ``total`` and those ``by_role`` hold from ``time_ns[i]`` to ``time_ns[i + 1]``, the
    last until the end of the step."""

    time_ns: Ints
    total: Ints
    by_role: Mapping[str, Ints]


class TransferTimeline(StorageTimeline):
    """A Timeline that follows from the event rules (``plans.events``). ``played`` has every step as it was played.

    The series over ops have for each op run the most bytes that are held from its start to the next one's, at one
    instant; ``lanes`` are the device and the copy engines of the links.
    """

    def __init__(
        self,
        graph: Graph,
        playback: Playback,
        plan: Plan,
        problem: Instance,
        budget_bytes: int | None,
        *,
        serial: bool,
    ) -> None:
        device, times = plan.lanes[0].device, [problem.ops[op].ns for op in playback.ops]
        engines = [f"{link.name} {way}" for link in problem.links for way in ("out", "in")]
        workspace = [problem.ops[op].workspace for op in playback.ops]
        lives = lifetimes(graph)
        super().__init__(graph, lives, "eager", EXACT, device, workspace, times, playback, (device, *engines))
        self.plan, self.problem, self.budget_bytes = plan, problem, budget_bytes
        self.played = play(problem, plan.lanes[0].steps, home=plan.home, budget_bytes=budget_bytes, serial=serial)

    @property
    def makespan_ns(self) -> int:
        """Time from the start of the step to the last end, of ops and of transfers."""
        return self.played.makespan_ns

    @property
    def stalls(self) -> tuple[Stall, ...]:
        """Times in which the next op waited, each with its cause."""
        return self.played.stalls

    @functools.cached_property
    def steady_ns(self) -> int:
        """Time of one step of many: engines that are still busy at the end delay the next."""
        steps, home = self.plan.lanes[0].steps, self.plan.home
        return steady_ns(self.problem, steps, home=home, budget_bytes=self.budget_bytes)

    def _events(self) -> Events:
        import numpy as np

        lanes = {name: number for number, name in enumerate(self.lanes)} | {DEVICE: 0, "": 0}
        rows, ran, played = [], set[int](), self.played
        for i, step in enumerate(played.steps):
            before = played.steps[i - 1] if i else None
            if isinstance(step, Compute):
                kind, index = Kind.RECOMPUTE if step.op in ran else Kind.RUN, step.op
                ran.add(step.op)
            elif isinstance(step, Copy):
                offload = i + 1 < len(played.steps) and played.steps[i + 1] == Evict(step.storage)
                kind, index = Kind.OFFLOAD if offload else Kind.COPY, step.storage
            elif isinstance(step, Fetch):
                kind, index = Kind.FETCH, step.storage
            elif isinstance(step, Evict) and not (played.unsaid[i] or _copies(before, step.storage)):
                kind, index = Kind.EVICT, step.storage
            else:
                continue
            times = (played.start_ns[i], played.end_ns[i], played.resident_bytes[i])
            rows.append((kind, index, lanes[played.engine[i]], *times))
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return Events(*columns)

    # Bytes during each op run

    @functools.cached_property
    def _levels(self) -> Levels:
        return levels(self.played, DEVICE)

    @functools.cached_property
    def _moments(self) -> Ints:
        """For each op run the number of changes after which most bytes are held, of the times until the next run."""
        import numpy as np

        line, steps = self._levels, self.played.steps
        order = list(zip(line.time_ns.tolist(), line.step.tolist(), strict=True))
        runs = [(self.played.start_ns[i], i) for i, step in enumerate(steps) if isinstance(step, Compute)]
        edges = [0, *(bisect.bisect_left(order, run) for run in runs[1:]), len(order)]
        held = np.append([line.before], line.level)
        most = [int(held[first : after + 1].argmax()) for first, after in itertools.pairwise(edges)]
        return (np.array(edges[:-1]) + most)[: len(runs)].astype(np.int64)

    @functools.cached_property
    def resident(self) -> Ints:
        """Bytes resident during each op run and until the next, workspace included."""
        import numpy as np

        held: Ints = np.append([self._levels.before], self._levels.level)[self._moments]
        return held

    @functools.cached_property
    def by_role(self) -> Mapping[str, Ints]:
        """``resident`` split by the role of the storages (those that occur), and ``workspace`` if there is any."""
        split = {role: series[self._moments] for role, series in self._by_role(DEVICE).items()}
        return {role: series for role, series in split.items() if series.any()}

    def place(self, name: str) -> PlaceBytes:
        """The bytes of a place over time: ``device``, or the tier behind the link of that name."""
        import numpy as np

        line = levels(self.played, name)
        time_ns = np.append([0], line.time_ns)
        last = np.flatnonzero(np.append(np.diff(time_ns) > 0, [True]))  # of several changes at one instant
        split = {role: series[last] for role, series in self._by_role(name).items()}
        return PlaceBytes(time_ns[last], np.append([line.before], line.level)[last], split)

    def _by_role(self, place: str) -> dict[str, Ints]:
        """Bytes of each role in a place: before the step, and after each change."""
        import numpy as np

        line, storages = levels(self.played, place), self.recorded.storages
        before = {s: self.problem.storages[s].nbytes for s, at in self._homes.items() if at == place}
        roles = [*(role for role in Role), WORKSPACE]
        number = {role: i for i, role in enumerate(roles)}
        of = np.array([number[storage.role] for storage in storages] + [len(roles) - 1], np.int64)  # -1 is workspace
        found = {}
        for i, role in enumerate(roles):
            start = sum(nbytes for s, nbytes in before.items() if of[s] == i)
            series = start + np.cumsum(np.append([0], np.where(of[line.storage] == i, line.nbytes, 0)))
            if series.any():
                found[str(role)] = series
        return found

    @functools.cached_property
    def _homes(self) -> dict[int, str]:
        return homes(self.problem, self.plan.home)

    def alive(self, at: int | None = None, top: int | None = None) -> tuple[Resident, ...]:
        """Storages resident at the moment that ``resident`` has of op run ``at`` (default: the peak), largest first, at
        most ``top`` of them. Their bytes sum to it less the workspace; a second copy counts with the first."""
        at = self.peak_op if at is None else at
        if not 0 <= at < len(self.graph):
            raise NoSuchOp(f"there is no op {at}: the step has {len(self.graph)} ops")
        line, until = self._levels, int(self._moments[at])
        held = {s: self.problem.storages[s].nbytes for s, place in self._homes.items() if place == DEVICE}
        for s, nbytes in zip(line.storage[:until].tolist(), line.nbytes[:until].tolist(), strict=True):
            held[s] = held.get(s, 0) + nbytes
        held.pop(NOTHING, None)
        largest = sorted((s for s, nbytes in held.items() if nbytes), key=lambda s: (-held[s], s))[:top]
        paths = {module.path: i for i, module in enumerate(self.graph.modules)}
        after = len(self.graph) + 1
        deaths = (after if storage.death is None else storage.death for storage in self.graph.storages)
        death = dict(enumerate(deaths))
        return tuple(resident(self.graph, s, held[s], death[s], paths) for s in largest)


def _copies(step: object, storage: int) -> bool:
    return isinstance(step, Copy) and step.storage == storage
