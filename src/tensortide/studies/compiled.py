"""Plans as generated programs: ``aot_backend`` for ``torch.compile``, ``compile_step`` for a whole training step."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tensortide.graph.model import Graph
from tensortide.plans.model import Plan, load_plan
from tensortide.plans.planned import Planned
from tensortide.plans.remat.schedule import Recording, recorded
from tensortide.recorder import capture, resolver
from tensortide.studies.planning.planning import plan as find
from tensortide.timing import DEFAULT_DEVICE, device, estimate

if TYPE_CHECKING:
    from tensortide.run.generated.aot import Backend
    from tensortide.run.generated.step import StepProgram

EFFORT, TIME_LIMIT_S = 20.0, 30.0
"""Default effort and time limit of the planner for each graph: compiling waits for it."""

Times: TypeAlias = Literal["roofline", "measured"] | Callable[[Graph], Sequence[int]]
"""Durations of ops, which decide what is recomputed: by their work on ``graph.meta.machine``, by running each of them
alone on this machine, or by a function of the graph, in nanoseconds."""


def aot_backend(
    budget: int | str,
    *,
    durations: Times = "roofline",
    shares: Sequence[float] = (),
    keep_random: bool = False,
    workspace: bool = True,
    effort: float = EFFORT,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
) -> Backend:
    """A backend for ``torch.compile`` that plans each graph within ``budget`` and runs the plan as generated code.

    >>> model = torch.compile(model, backend=tensortide.aot_backend("8GiB"))
    >>> model(batch).loss.backward()  # the backward pass recomputes what the plan says

    The budget is for what a graph holds: its parameters, buffers and inputs, saved tensors, gradients, and the
    workspace of kernels (``workspace``); not for optimizer state. ``shares``: where ``torch.compile`` makes several
    graphs of a step, the part of the budget that each gets. The other arguments are those of ``tensortide.plan``. The
    call that compiles raises BudgetInfeasible, with the least budget known, if no plan is found.
    """
    from tensortide.run.device import device_of
    from tensortide.run.generated.aot import Backend
    from tensortide.run.limit import budget_bytes

    how = {"keep_random": keep_random, "workspace": workspace, "effort": effort, **_limits(time_limit_s, work_limit)}

    def planned(graph: Graph, limit: int) -> Planned:
        return planned_within(recorded(graph, _durations(graph, durations)), limit, **how)

    return Backend(budget_bytes(budget, device_of(None).device), planned, shares)


def compile_step(
    step: Callable[[], Any],
    budget: int | str | None = None,
    *,
    plan: Plan | str | os.PathLike[str] | None = None,
    graph: Graph | None = None,
    durations: Times = "roofline",
    keep_random: bool = False,
    workspace: bool = True,
    effort: float = EFFORT,
    time_limit_s: float | None = None,
    work_limit: float | None = None,
) -> StepProgram:
    """``step``, a function of no arguments that has run before, as one generated program within ``budget``.

    >>> train()  # once, so that there is optimizer state
    >>> train = tensortide.compile_step(train, "8GiB")
    >>> loss = train()

    Forward pass, backward pass and optimizer are the ops of the captured step, in the order of the plan; see
    ``run.generated.step.StepProgram`` for what a step may do. ``plan``: a plan of ``graph``, its capture, in place of a
    budget. The other arguments are those of ``tensortide.plan``. Raises BudgetInfeasible if no plan is found.
    """
    from tensortide.errors import RunError
    from tensortide.run.device import device_of
    from tensortide.run.generated.random_state import most_state_bytes
    from tensortide.run.generated.step import StepProgram
    from tensortide.run.limit import budget_bytes

    if (budget is None) is (plan is None):
        raise RunError("give either a budget or a plan")
    captured = capture(step) if graph is None else graph
    if budget is None:
        assert plan is not None
        return StepProgram(step, captured, plan if isinstance(plan, Plan) else load_plan(plan))
    how = {"keep_random": keep_random, "workspace": workspace, "effort": effort, **_limits(time_limit_s, work_limit)}
    limit = budget_bytes(budget, device_of(None).device)
    recording = recorded(captured, _durations(captured, durations))
    program = _program(step, recording, limit, how)
    if program.peak_bytes > limit:
        program = _program(step, recording, max(0, limit - most_state_bytes(recording.graph)), how)
    return program


def _limits(time_limit_s: float | None, work_limit: float | None) -> dict[str, float | None]:
    """The limits of the planner; without one, ``TIME_LIMIT_S``."""
    given = TIME_LIMIT_S if time_limit_s is work_limit is None else time_limit_s
    return {"time_limit_s": given, "work_limit": work_limit}


def _program(step: Callable[[], Any], recording: Recording, limit: int, how: dict[str, Any]) -> StepProgram:
    from tensortide.run.generated.step import StepProgram

    planned = planned_within(recording, limit, **how)
    assert planned.plan is not None
    return StepProgram(step, recording.graph, planned.plan, planned)


def planned_within(step: Recording, limit: int, **how: Any) -> Planned:
    """The fastest plan found of ``step`` within ``limit``. Raises BudgetInfeasible if there is none."""
    from tensortide.run.generated.aot import infeasible

    found = find(step, limit, followed=False, **how)
    if found.plan is None:
        raise infeasible(found)
    return found


def _durations(graph: Graph, source: Times) -> Sequence[int]:
    if callable(source):
        return source(graph)
    if source == "measured":
        from tensortide.profile.isolated import measure_isolated

        return measure_isolated(graph).ns
    times = estimate(graph, device(graph.meta.machine or DEFAULT_DEVICE), resolver=resolver).ns
    free = [view.is_view or view.name.startswith("autograd.") for view in graph]
    return [0 if is_free else ns for is_free, ns in zip(free, times, strict=True)]
