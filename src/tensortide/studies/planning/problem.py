"""Problem of the planner: a step, a budget, what plans may do, and how long to look for one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from tensortide.plans.instance import Instance, instance
from tensortide.plans.model import Plan
from tensortide.plans.order.minimal import WORK, footprint
from tensortide.plans.planned import FirstRuns
from tensortide.plans.remat.schedule import Recording
from tensortide.plans.under_budget.held import with_held
from tensortide.plans.under_budget.idle import IdleIntervals, Least, idle_intervals, least, least_with_transfers
from tensortide.plans.under_budget.known import Known
from tensortide.plans.under_budget.search import EFFORT, Stopped, Watch
from tensortide.plans.under_budget.tables import Tables, tables
from tensortide.replays.remat.simulator import Simulator
from tensortide.search_limit import SearchLimit
from tensortide.studies.planning.partitioner import sequences
from tensortide.timing.links import Link

_OF_STEP = frozenset({"instance", "tables", "idle", "least", "recorded_peak_bytes", "simulator", "partitions"})
"""Facts that depend on the step and on what plans may do, not on budget and limits."""
_ORDER_WORK = WORK // 4
"""Limit of the search for the order of the least peak, whose steps take about as long as playing an op."""
_PARTITIONING = 0.25
"""Share of the limit after which PyTorch's partitioner is given no further setting."""
_OPS_PER_PARTITION = 1_000
"""A setting of the partitioner takes about as long as playing the step so many times."""
BOUND_WORK = 10**8
"""Limit of the linear program of a bound, in ops played; an iteration takes about as long as playing the step."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A step to be planned: ``recording`` on ``device`` within ``budget_bytes``.

    ``links``: to the tiers that storages may move to. ``order``: whether ops run for the first time in recorded order,
    or in any that their dependencies allow. ``recompute``: whether ops may run again; ``keep_random``: those that draw
    random numbers may not. ``pinned``: storages that are neither moved nor evicted. ``workspace``: count what kernels
    take inside an op. ``effort``: how long to improve plans, in millions of ops played; ``limit``: of the search, its
    work in ops played. ``known``: plans by name that the result is to be no slower than, beside online policies unless
    ``policies`` is False, and PyTorch's partitioner unless ``partitioner`` is. ``held``: what the program of the step
    cannot evict is resident, as in a run that follows the plan. ``watch``: called with the best time so
    far and the bound; ends the search by returning False.
    """

    recording: Recording
    device: str
    budget_bytes: int
    links: tuple[Link, ...] = ()
    order: FirstRuns = "recorded"
    recompute: bool = True
    keep_random: bool = False
    pinned: Container[int] = ()
    workspace: bool = True
    effort: float = EFFORT
    limit: SearchLimit = field(default_factory=SearchLimit)
    known: Mapping[str, Plan] = field(default_factory=dict)
    policies: bool = True
    partitioner: bool = True
    held: bool = False
    watch: Watch | None = None
    began: float = field(default_factory=time.monotonic)

    @cached_property
    def instance(self) -> Instance:
        """The planning instance of the step."""
        made = instance(
            self.recording.graph,
            self.device,
            self.recording.durations_ns,
            links=self.links,
            workspace=self.workspace,
            pinned=self.pinned,
            keep_random=self.keep_random,
        )
        if self.held:
            made = with_held(made, self.recording.graph, self.device)
        if self.recompute:
            return made
        return msgspec.structs.replace(made, ops=tuple(msgspec.structs.replace(op, once=True) for op in made.ops))

    @cached_property
    def tables(self) -> Tables:
        """The instance as arrays."""
        return tables(self.instance)

    @cached_property
    def idle(self) -> IdleIntervals:
        """The idle intervals of the step in recorded order."""
        return idle_intervals(self.instance, self.tables)

    @cached_property
    def least(self) -> Least:
        """Bytes that any plan needs."""
        if self.links or self.order == "free":
            return least_with_transfers(self.instance, recorded=self.order == "recorded")
        return least(self.instance, self.tables, self.idle)

    @cached_property
    def simulator(self) -> Simulator:
        """The player of online policies."""
        return Simulator(self.recording, workspace=self.workspace, device=self.device)

    @cached_property
    def partitions(self) -> list[Known]:
        """Plans of PyTorch's partitioner, at as many of its settings as the limit allows."""
        found: list[Known] = []
        limit, graph = self.limit.part(_PARTITIONING), self.recording.graph
        made = sequences(graph, self.instance, self.tables, look=self.look) if self.partitioner else ()
        with contextlib.suppress(Stopped):
            self.look()
            for each in made:
                found.append(each)
                limit.spend(_OPS_PER_PARTITION * len(graph))
                if limit.spent:
                    break
                self.look()
        return found

    @cached_property
    def least_order(self) -> tuple[int, ...]:
        """The order of the ops that takes the least bytes, as far as half of the limit that is left allows."""
        limit = self.limit.part(0.5, work=_ORDER_WORK)
        steps = int(limit.work_left)
        found = footprint(
            self.recording.graph,
            device=self.device,
            workspace=self.workspace,
            work_limit=steps,
            time_limit_s=limit.seconds_left,
            watch=lambda lower, upper: self.goes_on(),
        )
        limit.spend(steps)
        return found.order

    @cached_property
    def recorded_peak_bytes(self) -> int:
        """The peak of the step as recorded."""
        return int(self.idle.need.max(initial=0))

    @property
    def is_run(self) -> bool:
        """True if a run of the program can follow its plans that move nothing."""
        return self.order == "recorded" and not self.links and self.recording.graph.meta.is_program

    @property
    def plan_class(self) -> str:
        """The class of plans that a bound holds for, in words."""
        first = "first runs in recorded order" if self.order == "recorded" else "any order"
        again = ["recomputation"] if self.recompute else []
        return ", ".join((first, *again, *(f"moves over {link.name}" for link in self.links))) or first

    def under(self, budget_bytes: int, **limits: Any) -> Problem:
        """The same step under another budget and with other ``limits``: what is known of the step is kept."""
        return self._sharing(_OF_STEP, budget_bytes=budget_bytes, **limits)

    def in_recorded_order(self, *, share: float) -> Problem:
        """The same step with first runs in recorded order, in a share of the limit."""
        return self._sharing(_OF_STEP - {"least"}, order="recorded", limit=self.limit.part(share))

    def without_links(self, *, share: float, **limits: Any) -> Problem:
        """The same step with every storage on the device, in a share of the limit and with other ``limits``."""
        shared = {"simulator", "tables", "idle", "least_order", "partitions"}
        return self._sharing(shared, links=(), began=time.monotonic(), limit=self.limit.part(share), **limits)

    def followed(self, known: Mapping[str, Plan]) -> Problem:
        """The same step as a program runs it that follows the plan."""
        return self._sharing({"simulator", "partitions"}, held=True, policies=False, partitioner=False, known=known)

    def narrowed(self, links: tuple[Link, ...], *, recompute: bool) -> Problem:
        """The same step over fewer links, or without recomputation."""
        once = [op if recompute else msgspec.structs.replace(op, once=True) for op in self.instance.ops]
        shared = {"least", "recorded_peak_bytes", "simulator", "partitions"}
        narrow = self._sharing(shared, links=links, recompute=recompute)
        narrow.__dict__["instance"] = msgspec.structs.replace(self.instance, ops=tuple(once), links=links)
        return narrow

    def goes_on(self) -> bool:
        """Ask the listener whether to go on, before there is a plan."""
        return self.watch is None or self.watch(None, self.instance.base_ns)

    def look(self) -> None:
        """Raise Stopped if the search is to end, before there is a plan of its own."""
        if self.limit.spent or not self.goes_on():
            raise Stopped

    def _sharing(self, facts: Iterable[str], **changes: Any) -> Problem:
        other = replace(self, **changes)
        other.__dict__.update({name: self.__dict__[name] for name in facts if name in self.__dict__})
        return other
