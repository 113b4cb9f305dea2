"""A workload run by a generated program, beside ordinary steps of it."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any

from tensortide.errors import RunError
from tensortide.plans import Compute
from tensortide.run import allocations
from tensortide.run.budget import Budget
from tensortide.run.generated.step import StepProgram
from tensortide.run.measure import WARM
from tensortide.run.program import Program, current_device
from tensortide.run.results import Agreement, Generators, detached, results_of
from tensortide.shown import Show
from tensortide.timelines import timeline


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """Medians over ``steps`` steps of both kinds, in nanoseconds, and peaks of the program, all that it is given
    included. ``plain_ns`` and ``agreement`` are None if there were no ordinary steps."""

    target: str
    budget_bytes: Annotated[int, Show("Budget")]
    device: str
    steps: int
    ops: Annotated[int, Show("its ops", level=1)]
    recomputations: int
    planned_peak_bytes: Annotated[int, Show("Planned peak")]
    peak_bytes: Annotated[int, Show("Measured peak", remark="by PyTorch's allocator")]
    step_ns: Annotated[int, Show("Step by the program")]
    plain_ns: Annotated[int | None, Show("Ordinary step", if_any=True)] = None
    agreement: Agreement | None = None

    @property
    def slowdown_factor(self) -> float | None:
        """Slowdown of a step against an ordinary one, if there was any."""
        return self.step_ns / self.plain_ns if self.plain_ns is not None else None


def measured_program(
    program: Program,
    limit: Budget,
    make: Callable[[Callable[[], Any]], StepProgram],
    steps: int,
    *,
    plain: bool = True,
    progress: Callable[[str], None] = lambda message: None,
) -> MeasuredProgram:
    """``steps`` steps by the program that ``make`` makes of the built step, and if ``plain`` as many ordinary ones.

    The very first step, which makes the state of optimizers, runs under a live budget of the same limit; the second, by
    the program, shows its peak. For ordinary steps the workload is built again, with the random generators as they
    were, and results are compared, but for gradients that the program has released.
    """
    if steps < 1:
        raise RunError(f"cannot measure over {steps} steps: it takes at least 1")
    with current_device(limit.device):
        generators = Generators.now()
        step = program.build()
        with limit:
            program.timed(step, limit.device, 1)
        gc.collect()
        progress("planning")
        compiled = make(step)
        progress("steps by the plan")
        peak = _peak(program, limit, compiled)
        returned: list[Any] = []
        times = program.timed(compiled, limit.device, steps, returned)
        found = MeasuredProgram(
            target=program.target,
            budget_bytes=limit.budget_bytes,
            device=str(limit.device),
            steps=steps,
            ops=len(compiled.graph),
            recomputations=sum(isinstance(s, Compute) for s in compiled.plan.lanes[0].steps) - len(compiled.graph),
            planned_peak_bytes=compiled.peak_bytes,
            peak_bytes=peak,
            step_ns=int(statistics.median(times)),
        )
        if not plain:
            return found
        progress("ordinary steps")
        results = results_of(step, *detached(returned))
        generators.rewind()
        ordinary, own = program.build(), list[Any]()
        times = program.timed(ordinary, limit.device, WARM + steps, own)
        compiled.release(ordinary)
        first = results.difference(results_of(ordinary, *detached(own)))
        agreement = Agreement(not first, WARM + steps, results, first)
        return replace(found, plain_ns=int(statistics.median(times[WARM:])), agreement=agreement)


def _peak(program: Program, limit: Budget, compiled: StepProgram) -> int:
    """The most bytes that one step takes, by the allocator's record, with what it is given."""
    recorded = allocations.start()
    program.timed(compiled, limit.device, 1)
    taken = allocations.stop(limit.device, ()) if recorded else 0
    return timeline(compiled.graph, lifetimes="last_use", device=str(limit.device)).start_bytes + taken
