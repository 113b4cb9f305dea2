"""Small steps with transfers and recomputation as a constraint model of OR-Tools, from which a plan is read.

Times are integers. An op has a number of *runs*, the first of which must be; a storage a number of *residences* one
after the other, each made by a run, by a fetch, or there before the step; for each state and link a copy and some
fetches. Whatever touches a storage chooses the residence that it lies in. Any schedule that respects engines,
precedence and capacities at all times can be listed by its start times, and is then played no slower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensortide.plans.events import Played
from tensortide.plans.instance import BEFORE, DEVICE, Instance
from tensortide.plans.model import Compute, Copy, Fetch
from tensortide.plans.under_budget.sequence import Token

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class Limits:
    """Most runs of an op, and most fetches of the same contents over a link."""

    runs: int = 3
    fetches: int = 2


@dataclass(slots=True)
class Activity:
    """A run or a transfer in the model."""

    start: Any
    end: Any
    is_there: Any


@dataclass(slots=True)
class Residence:
    """A residence in the model: from its start until its end; ready when what makes it has ended."""

    start: Any
    ready: Any
    end: Any
    is_there: Any


class Model:
    """The model of ``instance`` within ``budget_bytes``, for plans that take from ``bound_ns`` to ``horizon_ns``."""

    def __init__(
        self,
        instance: Instance,
        budget_bytes: int,
        horizon_ns: int,
        *,
        bound_ns: int,
        free: bool,
        recompute: bool,
        limits: Limits,
    ) -> None:
        from ortools.sat.python import cp_model

        self.instance, self.budget, self.horizon, self.limits = instance, budget_bytes, horizon_ns, limits
        self.free, self.recompute = free, recompute
        self.cp: cp_model.CpModel = cp_model.CpModel()
        self.always = self.cp.new_constant(1)
        self.makespan = self.cp.new_int_var(max(instance.base_ns, bound_ns), horizon_ns, "makespan")
        self.device: list[tuple[Any, int]] = []
        self.tiers: dict[str, list[tuple[Any, int]]] = {link.name: [] for link in instance.links}
        self.engines: dict[tuple[str, bool], list[Any]] = {}
        self.runs: list[list[Activity]] = []
        self.copies: dict[tuple[int, int, str], Activity] = {}
        self.fetches: dict[tuple[int, int, str], list[Activity]] = {}
        self.homes: dict[int, dict[str, Any]] = {}
        self.writers = self._writers()
        self._ops()
        for s in range(len(instance.storages)):
            self._storage(s)
        self._capacities()
        self.cp.minimize(self.makespan)

    def tokens(self, value: Any) -> tuple[list[Token], dict[int, str]]:
        """Read the plan off a solution: ``value`` of each variable."""
        listed: list[tuple[int, int, Token]] = []
        for op, runs in enumerate(self.runs):
            listed += [(value(x.start), value(x.end), Compute(op)) for x in runs if value(x.is_there)]
        for (s, _, link), x in self.copies.items():
            if value(x.is_there):
                listed.append((value(x.start), value(x.end), Copy(s, link)))
        for (s, _, link), activities in self.fetches.items():
            listed += [(value(x.start), value(x.end), Fetch(s, link)) for x in activities if value(x.is_there)]
        listed.sort(key=lambda x: x[:2])
        homes = {s: place for s, places in self.homes.items() for place, lit in places.items() if value(lit)}
        return [token for _, _, token in listed], homes

    def hint(self, played: Played) -> None:
        """Begin the search with a plan as played."""
        ran = [0] * len(self.runs)
        state: dict[int, int] = {}
        seen: dict[tuple[int, int, str], int] = {}
        copied: list[tuple[int, int, str]] = []
        for step, start in zip(played.steps, played.start_ns, strict=True):
            if isinstance(step, Compute):
                op = self.instance.ops[step.op]
                state.update(dict.fromkeys((*op.makes, *op.writes), step.op))
                self._hint(self.runs[step.op], ran[step.op], start)
                ran[step.op] += 1
            elif isinstance(step, Copy):
                key = step.storage, state.get(step.storage, BEFORE), step.link
                self._hint([self.copies[key]] if key in self.copies else [], copied.count(key), start)
                copied.append(key)
            elif isinstance(step, Fetch):
                key = step.storage, state.get(step.storage, BEFORE), step.link
                self._hint(self.fetches.get(key, []), seen.get(key, 0), start)
                seen[key] = seen.get(key, 0) + 1
        for number, runs in enumerate(self.runs):
            for activity in runs[max(1, ran[number]) :]:
                self.cp.add_hint(activity.is_there, 0)

    def _hint(self, activities: list[Activity], number: int, start: int) -> None:
        if number < len(activities):
            self.cp.add_hint(activities[number].start, start)
            if activities[number].is_there is not self.always:
                self.cp.add_hint(activities[number].is_there, 1)

    def _writers(self) -> list[list[int]]:
        """For each storage the ops that change its contents, in order."""
        found: list[list[int]] = [[] for _ in self.instance.storages]
        for number, op in enumerate(self.instance.ops):
            for s in (*op.makes, *op.writes):
                found[s].append(number)
        return found

    def _may_repeat(self, number: int) -> bool:
        """Tell whether an op may run again in this model: what is written in place is never made again."""
        op = self.instance.ops[number]
        plain = all(len(self.writers[s]) == 1 for s in op.makes)
        return self.recompute and bool(op.makes) and plain and not (op.once or op.writes or op.blind)

    def _ops(self) -> None:
        cp, everything = self.cp, []
        for number, op in enumerate(self.instance.ops):
            runs: list[Activity] = []
            for k in range(self.limits.runs if self._may_repeat(number) else 1):
                activity, interval = self._activity(op.ns, f"run {number} {k}", always=not k)
                if runs:
                    cp.add(activity.start >= runs[-1].end).only_enforce_if(activity.is_there)
                    cp.add_implication(activity.is_there, runs[-1].is_there)
                everything.append(interval)
                if op.workspace:
                    self.device.append((interval, op.workspace))
                runs.append(activity)
            for earlier in op.after:
                cp.add(runs[0].start >= self.runs[earlier][0].end)
            if number and not self.free:
                cp.add(runs[0].start >= self.runs[-1][0].end)
            self.runs.append(runs)
        cp.add_no_overlap(everything)

    def _activity(self, time_ns: int, name: str, *, always: bool = False) -> tuple[Activity, Any]:
        cp = self.cp
        start, end = cp.new_int_var(0, self.horizon, name), cp.new_int_var(0, self.horizon, name)
        is_there = self.always if always else cp.new_bool_var(name)
        interval = cp.new_optional_interval_var(start, time_ns, end, is_there, name)
        cp.add(end <= self.makespan).only_enforce_if(is_there)
        return Activity(start, end, is_there), interval

    def _storage(self, s: int) -> None:
        storage, cp = self.instance.storages[s], self.cp
        versions = ([BEFORE] if storage.given else []) + self.writers[s]
        if not versions:
            return
        makers = [number for number in self.writers[s] if s in self.instance.ops[number].makes]
        runs = self.runs[makers[0]] if makers else []
        moves = [] if storage.pinned or not storage.nbytes else [link.name for link in self.instance.links]
        homes = self._home(s, moves)
        users = self._users(s)
        fetches = self._transfers(s, versions, moves, homes, users)
        most = 1 + (0 if storage.pinned else max(0, len(runs) - 1)) + min(len(fetches), self.limits.fetches + 1)
        found: list[Residence] = []
        for k in range(most):
            found.append(self._residence(s, found, first=not k and not makers))
        self._made(s, found, runs, fetches, homes)
        for state, activity in users:
            self._inside(activity, found)
            self._in_version(s, versions, state, activity)
        for (other, state, _), copy in self.copies.items():
            if other == s:
                self._inside(copy, found)
                self._in_version(s, versions, state, copy)
        if storage.stays:
            at_device = homes.get(DEVICE, self.always)
            lasts = [cp.new_bool_var("last") for _ in found]
            cp.add(sum(lasts) == at_device)
            for last, x in zip(lasts, found, strict=True):
                cp.add_implication(last, x.is_there)
                cp.add(x.end >= self.makespan).only_enforce_if(last)

    def _users(self, s: int) -> list[tuple[int, Activity]]:
        """The runs that touch a storage, besides what makes it, and the state that they need."""
        found = []
        for number in range(len(self.instance.ops)):
            state = self.instance.states[number].get(s)
            if state is not None:
                found += [(state, activity) for activity in self.runs[number]]
        return found

    def _home(self, s: int, moves: list[str]) -> dict[str, Any]:
        storage = self.instance.storages[s]
        if not storage.persistent or not moves:
            return {}
        places = {place: self.cp.new_bool_var(f"home {s} {place}") for place in (DEVICE, *moves)}
        self.cp.add_exactly_one(places.values())
        self.homes[s] = places
        for link in moves:
            whole = self.cp.new_optional_interval_var(0, self.makespan, self.makespan, places[link], "home")
            self.tiers[link].append((whole, storage.nbytes))
        return places

    def _transfers(
        self, s: int, versions: list[int], moves: list[str], homes: Mapping[str, Any], users: list[tuple[int, Activity]]
    ) -> list[tuple[int, Activity]]:
        """Copies of each state to each tier and fetches of it; returns the fetches with their states."""
        cp, size = self.cp, self.instance.storages[s].nbytes
        found: list[tuple[int, Activity]] = []
        for state in versions:
            for name in moves:
                link = self.instance.link(name)
                copy, interval = self._activity(link.transfer_ns(size), f"copy {s}")
                self.copies[s, state, name] = copy
                self.engines.setdefault((name, False), []).append(interval)
                at_home = homes.get(name)
                source = [copy.is_there, *([at_home] if at_home is not None and state == BEFORE else [])]
                if at_home is not None and state == BEFORE:
                    cp.add_at_most_one(source)
                if at_home is not None and state == versions[-1] != BEFORE:
                    cp.add_implication(at_home, copy.is_there)
                until = cp.new_int_var(0, self.horizon, "until")
                cp.add(until >= copy.end).only_enforce_if(copy.is_there)
                activities: list[Activity] = []
                for _ in range(min(self.limits.fetches, 1 + sum(v == state for v, _ in users))):
                    activity, interval = self._activity(link.transfer_ns(size, inwards=True), f"fetch {s}")
                    self.engines.setdefault((name, True), []).append(interval)
                    cp.add_bool_or(source).only_enforce_if(activity.is_there)
                    cp.add(activity.start >= copy.end).only_enforce_if([activity.is_there, copy.is_there])
                    cp.add(until >= activity.end).only_enforce_if(activity.is_there)
                    if activities:
                        cp.add(activity.start >= activities[-1].end).only_enforce_if(activity.is_there)
                        cp.add_implication(activity.is_there, activities[-1].is_there)
                    self._in_version(s, versions, state, activity)
                    activities.append(activity)
                    found.append((state, activity))
                self.fetches[s, state, name] = activities
                self._on_tier(name, copy, until, at_home, size)
        return found

    def _on_tier(self, name: str, copy: Activity, until: Any, at_home: Any, size: int) -> None:
        if self.instance.link(name).capacity_bytes is None:
            return
        cp = self.cp
        takes = copy.is_there
        if at_home is not None:
            takes = cp.new_bool_var("takes")
            cp.add_bool_or([takes, at_home, ~copy.is_there])
            cp.add_implication(takes, copy.is_there)
        length = cp.new_int_var(0, self.horizon, "held")
        self.tiers[name].append((cp.new_optional_interval_var(copy.start, length, until, takes, "held"), size))

    def _residence(self, s: int, before: list[Residence], *, first: bool) -> Residence:
        cp, size = self.cp, self.instance.storages[s].nbytes
        start, ready, end, length = (cp.new_int_var(0, self.horizon, f"residence {s}") for _ in range(4))
        is_there = cp.new_bool_var(f"residence {s}")
        interval = cp.new_optional_interval_var(start, length, end, is_there, f"residence {s}")
        cp.add(end >= ready).only_enforce_if(is_there)
        if first:
            cp.add(start == 0).only_enforce_if(is_there)
        if before:
            cp.add(start >= before[-1].end).only_enforce_if(is_there)
            if len(before) > 1:
                cp.add_implication(is_there, before[-1].is_there)
        if size:
            self.device.append((interval, size))
        return Residence(start, ready, end, is_there)

    def _made(
        self,
        s: int,
        found: list[Residence],
        runs: list[Activity],
        fetches: list[tuple[int, Activity]],
        homes: Mapping[str, Any],
    ) -> None:
        """Each residence is made by one run or fetch, each fetch makes one, and so does a run unless one is there."""
        cp, storage = self.cp, self.instance.storages[s]
        makes: list[list[Any]] = [[] for _ in found]
        given = storage.given
        if given:
            cp.add(found[0].is_there == homes.get(DEVICE, 1))
            cp.add(found[0].ready == 0)
        for number, activity in [*((0, x) for x in runs), *((1, x) for _, x in fetches)]:
            chosen = []
            for k, x in enumerate(found):
                if given and not k:
                    continue
                lit = cp.new_bool_var("makes")
                cp.add_implication(lit, x.is_there)
                cp.add(x.start == activity.start).only_enforce_if(lit)
                cp.add(x.ready == activity.end).only_enforce_if(lit)
                makes[k].append(lit)
                chosen.append(lit)
            if number or activity is runs[0]:
                cp.add(sum(chosen) == activity.is_there)
            else:
                second = cp.new_bool_var("second")
                cp.add(sum(chosen) + second == activity.is_there)
                length = self.instance.ops[self.writers[s][0]].ns
                interval = cp.new_optional_interval_var(activity.start, length, activity.end, second, "second")
                self.device.append((interval, storage.nbytes))
                if storage.pinned:
                    cp.add(sum(chosen) == 0)
        for k, x in enumerate(found):
            if not (given and not k):
                cp.add(sum(makes[k]) == x.is_there)

    def _inside(self, activity: Activity, found: list[Residence]) -> None:
        """A run or copy lies in a residence, after it is ready."""
        cp = self.cp
        chosen = []
        for x in found:
            lit = cp.new_bool_var("in")
            cp.add_implication(lit, x.is_there)
            cp.add(activity.start >= x.ready).only_enforce_if(lit)
            cp.add(activity.end <= x.end).only_enforce_if(lit)
            chosen.append(lit)
        cp.add(sum(chosen) == activity.is_there)

    def _in_version(self, s: int, versions: list[int], state: int, activity: Activity) -> None:
        """Place what needs a state after the op that writes it, and before the next one that does."""
        at = versions.index(state)
        if at and s in self.instance.ops[state].writes:
            self.cp.add(activity.start >= self.runs[state][0].end).only_enforce_if(activity.is_there)
        for later in versions[at + 1 : at + 2]:
            writer = self.runs[later][0]
            if writer is not activity:
                self.cp.add(activity.end <= writer.start).only_enforce_if(activity.is_there)

    def _capacities(self) -> None:
        cp = self.cp
        cp.add_cumulative([x for x, _ in self.device], [size for _, size in self.device], self.budget)
        for intervals in self.engines.values():
            cp.add_no_overlap(intervals)
        again = [(x.is_there, op.ns) for op, runs in zip(self.instance.ops, self.runs, strict=True) for x in runs[1:]]
        cp.add(self.makespan >= self.instance.base_ns + sum(is_there * ns for is_there, ns in again))
        for link in self.instance.links:
            held = self.tiers[link.name]
            if link.capacity_bytes is not None and held:
                cp.add_cumulative([x for x, _ in held], [size for _, size in held], link.capacity_bytes)
