"""A step under a memory budget: prepared once, played for any policy and budget."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from typing import TYPE_CHECKING

from tensortide.errors import PlanError
from tensortide.plans.remat.choice import policy
from tensortide.plans.remat.policies import Heuristic, Policy, Random
from tensortide.plans.remat.recording import Event, Recording
from tensortide.plans.remat.schedule import Schedule, schedule
from tensortide.replays.remat.banishing import BanishingEngine
from tensortide.replays.remat.collecting import CollectingEngine
from tensortide.replays.remat.engine import Engine
from tensortide.replays.remat.outcome import UNLIMITED, Deallocation, Outcome, Rules
from tensortide.replays.remat.simulation import Simulation

if TYPE_CHECKING:
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

    def __init__(
        self,
        recording: Recording,
        *,
        compat: bool = False,
        deallocation: Deallocation = "eager",
        workspace: bool = True,
        device: str = "",
    ) -> None:
        self.recording, self.compat, self.deallocation = recording, compat, deallocation
        self.workspace = workspace and not compat
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
        from tensortide.replays.remat.fast.run import prepared

        return prepared(self._heard)

    @functools.cached_property
    def baseline_bytes(self) -> int:
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
            remat_limit_ns=UNLIMITED if overhead_limit is None else int(self.schedule.model_ns * (overhead_limit - 1)),
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

    def _fast(self, policy: Policy, rules: Rules) -> Outcome:
        if not isinstance(policy, Heuristic | Random) or self.deallocation == "banish":
            raise PlanError(f"the compiled engine does not play {policy.name!r} with {self.deallocation!r}")
        from tensortide.replays.remat.fast.run import run

        return run(self._heard, policy, rules, self._ready)

    @property
    def plain(self) -> type[Engine]:
        """The plain engine for these rules."""
        if not self.compat:
            return CollectingEngine
        return BanishingEngine if self.deallocation == "banish" else Engine


def _policy(given: str | Policy) -> Policy:
    return policy(given) if isinstance(given, str) else given
