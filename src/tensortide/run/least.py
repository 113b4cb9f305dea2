"""The least memory budget of a step: by bisection in the simulator, confirmed by live runs at it and below it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tensortide.errors import BudgetInfeasible, RunError
from tensortide.plans.remat.schedule import recorded
from tensortide.replays.remat.simulator import Simulator, least_bytes, smallest_budget
from tensortide.run.budget import Budget
from tensortide.run.measure import Measured, elsewhere_bytes, measured, run_steps
from tensortide.run.program import Program
from tensortide.shown import Show
from tensortide.units import format_bytes

if TYPE_CHECKING:
    from tensortide.graph import Graph
    from tensortide.plans.remat.policies import Policy
    from tensortide.run.traced import LiveStep

LONGEST = 10.0
"""Most times the step, in time, that a run at the least budget may take."""
TWICE = 2.0
"""Times the step beyond which a budget counts as slow (``SlowBudget``)."""
STEP = 0.03
"""Share by which a budget is changed from one live run to the next."""
SEEN = 4
"""Steps of the first run: optimizer state, sums of gradients, first calls, and then."""
MOST_RUNS = 8
"""Live runs until the search ends where it is."""


@dataclass(frozen=True, slots=True)
class Least:
    """The least budget of a step. ``measured``: the steps under it. ``simulated_bytes``: the least budget by the
    simulator, with at most ``LONGEST`` times the step's time; ``fast_bytes``: with at most ``TWICE``.
    ``plain_peak_bytes``: the peak without evictions. ``failed_bytes``: the largest budget that was tried and did not
    suffice (None: no run failed), and ``failure``, the reason. ``op_bytes``: the inputs, results and workspace of the
    most demanding op, ``op``, with all that can never be evicted."""

    measured: Measured
    simulated_bytes: Annotated[int, Show("Least by the simulator")]
    fast_bytes: Annotated[int, Show("Least for a fast step", remark="recomputes no longer, simulated")]
    plain_peak_bytes: Annotated[int, Show("Peak without evictions")]
    failed_bytes: Annotated[int | None, Show("Too small")]
    failure: str
    op: str
    op_bytes: Annotated[int, Show("Most demanding op")]
    varies: str = ""
    """Difference between one call of the step and another, if there is any."""

    @property
    def rest_bytes(self) -> Annotated[int, Show("the step itself", level=1)]:
        """Bytes of the budget beside all that was resident before."""
        return self.measured.budget_bytes - self.measured.before_bytes


def least(
    program: Program,
    graph: Graph,
    policy: str,
    device: str | None,
    steps: int,
    *,
    plain: bool = True,
    progress: Callable[[str], None] = lambda message: None,
) -> Least:
    """Find the least budget under which ``program``, of which ``graph`` is a step, can be trained with ``policy``.

    The step is measured once under a budget of ``auto``, and simulated with what was measured. Raises RunError where no
    budget suffices.
    """
    progress("steps without evictions")
    step, varies = _seen(program, graph, policy, device)
    progress("simulating")
    simulator, extra = _simulator(step), elsewhere_bytes(step)
    simulated = (smallest_budget(simulator, policy, overhead_limit=LONGEST).budget_bytes or 0) + extra

    runs = itertools.count(1)

    def tried(nbytes: int) -> Measured | str:
        gc.collect()
        progress(f"live run {next(runs)} of at most {MOST_RUNS}, under {format_bytes(nbytes)}")
        try:
            budget = Budget(nbytes, policy, device=device)
            found = measured(program, budget, steps, plain=plain)
        except BudgetInfeasible as error:
            return str(error).partition(":\n")[0]
        times = found.step.recompute_ns / max(1, found.step.base_ns)
        return found if times <= LONGEST - 1 else f"recomputation takes {times:.0f} times as long as the step"

    enough, failed_bytes, failure = _confirmed(tried, simulated)
    op_bytes, op = least_bytes(simulator.schedule)
    return Least(
        measured=enough,
        simulated_bytes=simulated,
        fast_bytes=fast_bytes(step, policy),
        plain_peak_bytes=simulator.unlimited_bytes + extra,
        failed_bytes=failed_bytes,
        failure=failure,
        op=step.recorded[op].name if op >= 0 else "",
        op_bytes=op_bytes + extra,
        varies=varies,
    )


def fast_bytes(step: LiveStep, policy: str | Policy) -> int:
    """The least budget, by the simulator, under which recomputation takes less than ``step`` itself."""
    run = smallest_budget(_simulator(step), policy, overhead_limit=TWICE)
    return (run.budget_bytes or 0) + elsewhere_bytes(step)


def _simulator(step: LiveStep) -> Simulator:
    durations = recorded(step.recorded, step.durations_ns)
    return Simulator(durations, workspace=step.workspace, device=step.device)


def _seen(program: Program, graph: Graph, policy: str, device: str | None) -> tuple[LiveStep, str]:
    """One step as it runs where memory is plentiful, and how steps differ from call to call."""
    probe = Budget("auto", policy, graph=graph, device=device)
    ops = run_steps(program, probe, SEEN)[1:]  # the first creates optimizer state
    matched = len(probe.steps)
    if not matched:
        raise RunError(
            f"no step of {program.target} ran the ops of the captured one: its least budget cannot be searched for"
        )
    varies = ""
    if len(set(ops)) > 1:
        varies = f"{len(ops)} calls ran {', '.join(map(str, ops))} ops"
    elif matched < len(ops) - 1:  # one shows which gradients are summed out of place under a budget
        varies = f"{matched} of {len(ops)} calls ran the ops of the captured one, with its sizes"
    return probe.steps[-1], varies


def _confirmed(tried: Callable[[int], Measured | str], nbytes: int) -> tuple[Measured, int | None, str]:
    """The steps under the least budget that suffices live, from ``nbytes`` up or down, and the largest one that was
    tried below it, with the reason why that fails."""
    enough: Measured | None = None
    failed_bytes, failure = None, ""
    for _ in range(MOST_RUNS):
        result = tried(nbytes)
        if isinstance(result, str):
            failed_bytes, failure = nbytes, result
            if enough is not None:
                break
            nbytes += int(nbytes * STEP)
        else:
            enough = result
            if failed_bytes is not None:
                break
            nbytes -= int(nbytes * STEP)
    if enough is None:
        raise RunError(f"no budget up to {nbytes:,} B suffices live, though the simulator says so: {failure}")
    return enough, failed_bytes, failure
