"""Claims of formulas and of their inverse, each judged against fresh captures of the step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tensortide import capture, footprint
from tensortide.errors import ExpressionError, TensortideError
from tensortide.formulas import QUANTITIES, Formulas, Solution, Symbolic, solve
from tensortide.formulas.confirm import confirm, measured

_SEARCHED_OPS = 3000
"""The least memory of longer steps is not looked for, here as in formulas: their bounds are not judged."""
_BOUNDS = ("minimal_footprint_lower_bytes", "minimal_footprint_upper_bytes")

VERDICTS = ("right", "wrong", "marked right", "marked wrong", "outside", "missing")
"""Right or wrong inside the region; right or wrong but said to be extrapolated; outside the region; no formula."""


class Truth:
    """The totals of one capture, by the names that formulas have."""

    def __init__(self, workload: Callable[..., Any], setting: Mapping[str, int]) -> None:
        """Capture ``workload`` at ``setting``. Raises TensortideError where it refuses."""
        graph = capture(workload, hyperparameters=setting, real=False)
        self.totals = measured(graph)
        self._least = footprint(graph, workspace=False, work_limit=50_000) if len(graph) <= _SEARCHED_OPS else None

    def agrees(self, total: str, value: int) -> bool | None:
        """Return whether a claim is right; None where that cannot be told. A bound is right if no order of the ops is
        known to contradict it."""
        if total not in _BOUNDS:
            return value == self.totals[total]
        if self._least is None:
            return None
        return value <= self._least.upper_bytes if total == _BOUNDS[0] else value >= self._least.lower_bytes

    def shown(self, total: str) -> str:
        """The right value, or the bounds that are known."""
        if total in self.totals or self._least is None:
            return str(self.totals.get(total))
        return f"{self._least.lower_bytes}..{self._least.upper_bytes}"


class Said(NamedTuple):
    """The values that formulas claim at a setting (None: nothing), why none at all, and whether they say that the
    setting is beyond what they were tested at."""

    values: dict[str, int | None]
    outside: str
    extrapolated: bool


def said(formulas: Formulas, setting: Mapping[str, int]) -> Said:
    """Ask formulas for all totals at a setting."""
    asked = {name: setting[name] for name in formulas.symbols}
    try:
        values = formulas.evaluate(**asked)
        beyond = formulas.extrapolated(asked)
    except ExpressionError as error:
        return Said({}, str(error), extrapolated=False)
    return Said({name: values.get(name) for name in formulas.totals}, "", bool(beyond))


def verdicts(formulas: Formulas, setting: Mapping[str, int], truth: Truth) -> dict[str, str]:
    """The verdict on every total at a setting; none where it cannot be told."""
    answer, found = said(formulas, setting), {}
    for total in QUANTITIES:
        value = answer.values.get(total)
        if total not in formulas.totals:
            found[total] = "missing"
        elif answer.outside or value is None:
            found[total] = "outside"
        elif (right := truth.agrees(total, value)) is not None:
            found[total] = "marked " * answer.extrapolated + ("right" if right else "wrong")
    return found


class Judged(NamedTuple):
    """A solution: how sure it says it is, and what is wrong with it."""

    claim: str
    fault: str
    text: str


def judged(workload: Callable[..., Any], found: Symbolic, symbol: str, goal: str, sure: int) -> Judged:
    """Solve for ``symbol`` and capture the answer; at the value ``sure`` the goal is known to be met."""
    try:
        solution = confirm(solve(found.formulas, symbol, goal), found, workload)
    except ExpressionError as error:
        denied = str(error).startswith(f"no {symbol} reaches") and "Not checked everywhere" not in str(error)
        return Judged("no answer", f"{symbol} = {sure:,} does" * denied, str(error))
    claim = "proved" if solution.proved else "checked" if solution.captured else "not checked"
    claim += ", limited" * bool(solution.limited_by)
    reached = f"{symbol} = {solution.value:,} reaches {solution.reached:,} {solution.limited_by}"
    return Judged(claim, _fault(workload, solution, goal.split()[0], sure), reached.strip())


def _fault(workload: Callable[..., Any], solution: Solution, total: str, sure: int) -> str:
    """Say what a capture of the answer, or the value that is known to do, contradicts; nothing if it holds."""
    try:
        reached = Truth(workload, solution.setting).totals[total]
    except TensortideError as error:
        return f"the workload refuses it: {str(error).splitlines()[0]}"
    if reached != solution.totals[total]:
        return f"{total} is {reached:,} there, not {solution.totals[total]:,}"
    if solution.limited_by:  # better values are outside of the region, as it says
        return ""
    target = Truth(workload, {**solution.setting, solution.symbol: sure}).totals[total]
    better = {"largest": solution.value < sure, "smallest": solution.value > sure, "nearest": reached != target}
    return f"{solution.symbol} = {sure:,} is better: {total} is {target:,} there" if better[solution.kind] else ""
