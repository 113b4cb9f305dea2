"""A step under a memory budget, prepared once, played for any policy and budget; and searches over such runs: the best
of many policies, the smallest budget that is enough, and what no policy goes below."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, NamedTuple

from tensortide.errors import PlanError
from tensortide.executors import cores
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.policies import DEFAULT_POLICY, POLICIES, Heuristic, Policy, Random
from tensortide.plans.remat.schedule import Event, Recording, Schedule, schedule
from tensortide.replays.remat.collecting import BanishingEngine, CollectingEngine
from tensortide.replays.remat.engine import Engine
from tensortide.replays.remat.simulation import UNLIMITED, Deallocation, RematOutcome, Rules, Simulation
from tensortide.shown import Show

if TYPE_CHECKING:
    from tensortide.memory.workspace import Workspace
    from tensortide.plans.remat.schedule import Schedule
    from tensortide.replays.remat.fast.state import Prepared


class Simulator:
    """One recorded step, ready to be played under any budget by any policy.

    ``deallocation`` says what happens when the program releases a storage. ``eager``: it is evicted at once and can be
    recomputed. ``none``: nothing, it is evicted like any other. ``banish``: it is dropped for good as soon as nothing
    evicted is made of it, and what is made of it is pinned. ``ignore``: releases are not reported.

    ``compat`` plays by the rules of DTR's simulator, to the byte; the log must have been read with copy on write. They
    differ from ours in this: a view has to be rederived after an eviction; a dead storage
    stays until it is evicted; constants are never freed but by banishing; banishing leaks locks; the clock starts at
    1 ns; ratios of budgets refer to the peak under banishing. Raises GraphError as ``schedule`` does.
    """

    recording: Recording
    schedule: Schedule

    def __init__(
        self,
        recording: Recording,
        *,
        compat: bool = False,
        deallocation: Deallocation = "eager",
        workspace: Workspace = True,
        device: str = "",
    ) -> None:
        self.recording, self.compat, self.deallocation = recording, compat, deallocation
        self.workspace: Workspace = workspace if not compat else False
        self.schedule = schedule(recording, views=compat, workspace=self.workspace, device=device)
        self._others = {deallocation: self}

    def by(self, deallocation: Deallocation) -> Simulator:
        """The same step, played with ``deallocation``."""
        if deallocation not in self._others:
            others, device = self._others, self.schedule.device
            others[deallocation] = Simulator(
                self.recording, compat=self.compat, deallocation=deallocation, workspace=self.workspace, device=device
            )
            others[deallocation]._others = others
        return self._others[deallocation]

    @functools.cached_property
    def _heard(self) -> Schedule:
        if self.deallocation != "ignore":
            return self.schedule
        heard = self.schedule.kinds != Event.RELEASE
        return dataclasses.replace(
            self.schedule, kinds=self.schedule.kinds[heard], indexes=self.schedule.indexes[heard]
        )

    @functools.cached_property
    def _ready(self) -> Prepared:
        from tensortide.replays.remat.fast.state import prepared

        return prepared(self._heard)

    @functools.cached_property
    def baseline_bytes(self) -> Annotated[int, Show("without the budget", level=1)]:
        """Peak without a budget: what ratios refer to."""
        if self.compat:
            return BanishingEngine(self.schedule, policy("lru"), Rules(clock_ns=1, collect=False)).run().peak_bytes
        return self.by("eager").unlimited_bytes

    @functools.cached_property
    def unlimited_bytes(self) -> int:
        """Peak without a budget, under this ``deallocation``: within that many bytes nothing is ever evicted."""
        return self.run("lru").peak_bytes

    def run(
        self,
        policy: str | Policy,
        budget_bytes: int | None = None,
        *,
        overhead_limit: float | None = None,
        compiled: bool | None = None,
        exhaustive: bool = False,
        overrun_bytes: int | None = None,
    ) -> Simulation:
        """Play the step.

        ``overhead_limit``: the run is given up when recomputation takes more than ``overhead_limit - 1`` times the
        step. ``compiled``: None takes the compiled engine where there is one for the policy and Numba is installed.
        ``exhaustive``: it looks at every candidate of every eviction, as the plain engine does: the same run, with the
        number of accesses that it takes without bounds. ``overrun_bytes``: as far over the budget kernels'
        workspace may go at once, and farther where nothing is left to evict, as live; None: the run ends there. Raises
        PlanError for an unknown policy or limit.
        """
        chosen = _policy(policy)
        if budget_bytes is not None and budget_bytes < 0:
            raise PlanError(f"a budget of {budget_bytes} bytes is no budget")
        if overhead_limit is not None and not overhead_limit >= 1:
            raise PlanError(f"an overhead limit of {overhead_limit} is below 1, the step without recomputation")
        limited = budget_bytes is not None and (self.compat or budget_bytes < self.unlimited_bytes)
        rules = Rules(
            budget_bytes=budget_bytes if budget_bytes is not None and limited else UNLIMITED,
            remat_limit_ns=int(min(UNLIMITED, self.schedule.model_ns * ((overhead_limit or float("inf")) - 1))),
            deallocation=self.deallocation,
            clock_ns=int(self.compat),
            collect=not self.compat,
            exhaustive=exhaustive,
            overrun_bytes=overrun_bytes,
        )
        fast = self.has_kernel(chosen) if compiled is None else compiled
        outcome = self._fast(chosen, rules) if fast else self.plain(self._heard, chosen, rules).run()
        return Simulation(
            schedule=self.schedule,
            policy=chosen.name,
            budget_bytes=budget_bytes,
            overhead_limit=overhead_limit,
            workspace=self.workspace,
            rules=rules,
            **vars(outcome),
        )

    def has_kernel(self, policy: Policy) -> bool:
        """Return whether the compiled engine can play ``policy``."""
        named = type(policy) in (Heuristic, Random)
        return named and self.deallocation != "banish" and importlib.util.find_spec("numba") is not None

    def _fast(self, policy: Policy, rules: Rules) -> RematOutcome:
        if not isinstance(policy, Heuristic | Random) or self.deallocation == "banish":
            raise PlanError(f"the compiled engine does not play {policy.name!r} with {self.deallocation!r}")
        from tensortide.replays.remat.fast.state import run

        return run(self._heard, policy, rules, self._ready)

    @property
    def plain(self) -> type[Engine]:
        """The plain engine for these rules."""
        if not self.compat:
            return CollectingEngine
        return BanishingEngine if self.deallocation == "banish" else Engine


def _policy(given: str | Policy) -> Policy:
    return policy(given) if isinstance(given, str) else given


AUTO = "auto"
"""The best of many policies (``best``)."""
_SEEDS = 4
"""Seeds that are tried of a policy that draws lots."""
_BANISHING_OPS = 20_000
"""Longest step on which banishing, which only the plain engine plays, is tried too."""
_PARTS = 512
"""Budgets that are tried are multiples of a power of two that is at least this part of the largest."""


def play(
    simulator: Simulator, policy: str, budget_bytes: int | None, *, overhead_limit: float | None = None
) -> tuple[Simulation, tuple[Simulation, ...]]:
    """The run by ``policy``; of ``auto`` the best one, and all runs."""
    if policy == AUTO:
        return best(simulator, budget_bytes, overhead_limit=overhead_limit)
    return simulator.run(policy, budget_bytes, overhead_limit=overhead_limit), ()


def candidates() -> tuple[str, ...]:
    """The policies that are tried, the default one first; of equals the first wins."""
    plain = (name for name, row in POLICIES.items() if not row.seeded and name != DEFAULT_POLICY)
    return (
        DEFAULT_POLICY,
        *plain,
        *(f"{n}:{seed}" for n, row in POLICIES.items() if row.seeded for seed in range(_SEEDS)),
    )


def best(
    simulator: Simulator, budget_bytes: int | None = None, *, overhead_limit: float | None = None
) -> tuple[Simulation, tuple[Simulation, ...]]:
    """The run that takes the least time, of equals the one with fewer evictions; and all runs, in the order tried.

    Every policy of the table is played, and, where the rules allow and the step is short, the local one with
    banishing. So the result is never slower than ``dtr-eq``, and ends whenever one of them does; if none does, it is
    the run of ``dtr-eq``.
    """
    names = [name for name in candidates() if simulator.deallocation != "banish" or _plays_banishing(name, simulator)]

    def play(name: str) -> Simulation:
        return simulator.run(name, budget_bytes, overhead_limit=overhead_limit)

    first = play(names[0])
    with ThreadPoolExecutor(cores()) as pool:
        runs = [first, *pool.map(play, names[1:])]
    if simulator.deallocation == "eager" and not simulator.compat and len(simulator.schedule.cost_ns) <= _BANISHING_OPS:
        runs.append(simulator.by("banish").run("dtr-local", budget_bytes, overhead_limit=overhead_limit))
    ended = [run for run in runs if run.status == "ok"]
    found = min(ended, key=lambda run: (run.clock_ns, run.evictions), default=first)
    return found, tuple(runs)


def _plays_banishing(name: str, simulator: Simulator) -> bool:
    """Tell whether DTR's first runtime, which keeps no classes and no regions, can play it where its rules count."""
    row = POLICIES.get(policy(name).name)
    return not simulator.compat or (row is not None and row.banishes)


def op_bytes(schedule: Schedule, compat: bool, *, constants: bool = True) -> Iterator[int]:
    """For each op the bytes of what it reads, makes and takes while it runs.

    ``compat``: as DTR's simulator counts, everything that it reads counts where it was made, views as nothing. Else
    storages count in full and once; without ``constants`` those that cannot be recomputed do not.
    """
    nbytes, owner, size = schedule.nbytes.tolist(), schedule.storage.tolist(), schedule.storage_bytes.tolist()
    fixed = schedule.fixed.tolist()
    for (read, made), extra in zip(schedule.ops(), schedule.extra_bytes.tolist(), strict=True):
        if compat:
            needed = sum(nbytes[value] for value in read)
        else:
            needed = sum(size[s] for s in {owner[value] for value in read} if constants or not fixed[s])
        yield needed + extra + sum(nbytes[value] for value in made)


class Demand(NamedTuple):
    """Bytes that an op of the step needs with what must stay (-1: it stands for what exists before the step)."""

    size_bytes: Annotated[int, Show("at least", level=1)]
    op: int


def least_bytes(schedule: Schedule) -> Demand:
    """Return the most demanding op, with its inputs, outputs and workspace, and the storages that are neither
    recomputable nor ever released. No policy ends with less. ``(0, -1)`` without ops."""
    owner, size, root = schedule.storage.tolist(), schedule.storage_bytes.tolist(), schedule.root.tolist()
    fixed, extra = schedule.fixed.tolist(), schedule.extra_bytes.tolist()
    stays = [schedule.graph.storages[origin].death is None for origin in schedule.storage_origin.tolist()]
    most, worst, staying = 0, -1, 0
    for op, (read, made) in enumerate(schedule.ops()):
        fresh = {owner[value] for value in made if root[owner[value]] == value}
        touched = {owner[value] for value in (*read, *made)}
        needs = staying + extra[op] + sum(size[s] for s in touched if s in fresh or not (fixed[s] and stays[s]))
        if needs > most:
            most, worst = needs, op
        staying += sum(size[s] for s in fresh if fixed[s] and stays[s])
    return Demand(most, int(schedule.origin[worst]) if most else -1)


def smallest_budget(
    simulator: Simulator,
    policy: str | Policy,
    *,
    overhead_limit: float | None = None,
    above: int = 0,
    watch: Callable[[int], None] = lambda budget: None,
) -> Simulation:
    """Find by bisection the smallest budget with which ``policy`` ends, and return its run; if even the step's own peak
    is not enough, the run with that, whose status says so.

    Budgets up to ``above`` are known not to work. A policy that ends with some budget may fail with a larger one: what
    is found works, the one tried last below it does not, and others were not looked at. ``watch`` is called with
    each budget tried.
    """
    found = simulator.run(policy, simulator.baseline_bytes, overhead_limit=overhead_limit)
    if found.status != "ok":
        return found
    step = 1 << max(0, (simulator.baseline_bytes // _PARTS).bit_length() - 1)
    low = max(above, least_bytes(simulator.schedule)[0] - 1) // step
    high = -(-found.peak_bytes // step)
    while high - low > 1:
        middle = (low + high) // 2
        watch(middle * step)
        run = simulator.run(policy, middle * step, overhead_limit=overhead_limit)
        if run.status == "ok":
            found, high = run, middle
        else:
            low = middle
    return found
