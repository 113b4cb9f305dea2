"""Reasons why a run does not follow a Plan, as the planner states them beforehand, and the run that left it."""

from __future__ import annotations

from tensortide.units import format_bytes

_HELD = "with what the program holds longer than the plan"


def over_budget(run_bytes: int, budget_bytes: int) -> str:
    """Compare what a run takes that follows the plan with a budget that is less."""
    more = format_bytes(run_bytes - budget_bytes)
    return (
        f"a run that follows it takes {format_bytes(run_bytes)}, {more} more than the budget of "
        f"{format_bytes(budget_bytes)}, {_HELD}"
    )


def not_taken(time_added: str) -> str:
    """Tell that a faster plan, which adds ``time_added``, is not the answer."""
    return f"A plan of {time_added} exceeds the budget in a run, {_HELD}."


def crowded(extra: int, budget_bytes: int, run_bytes: int | None) -> str:
    """Tell that the policy made room in a step, by which ``extra`` ops ran again; ``run_bytes``: what a run takes that
    follows the plan, if known."""
    if run_bytes is not None and run_bytes > budget_bytes:
        why = over_budget(run_bytes, budget_bytes)
    else:
        why = f"the budget of {format_bytes(budget_bytes)} left no room for what the program takes beside it"
    ops = f"{extra:,} op{'s' * (extra > 1)} ran again"
    return f"The plan was not followed: {why}; the policy made room, and {ops} beyond the plan."


def departed(name: str, op: int, ops: int, expected: str, came: str, policy: str) -> str:
    """Tell that the program ran another op than the plan ``name`` has at ``op`` of ``ops``."""
    return (
        f"{name} does not say what to do here: at op {op} of {ops - 1} it expects {expected}, and {came} came. For the "
        f"rest of the step {policy} decides; the next one is followed again. If the step has changed, plan it again."
    )
