"""Solutions put to the test: the step is captured at the value that was found, and at the next one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from tensortide.cost import count
from tensortide.cost.evaluate import Resolver
from tensortide.errors import ExpressionError, TensortideError
from tensortide.formulas.checks import LEAST
from tensortide.formulas.formulas import Formulas, shown, told
from tensortide.formulas.measure import counted_totals
from tensortide.formulas.peaks import MORE_WORK
from tensortide.formulas.result import Symbolic
from tensortide.formulas.solution import Solution
from tensortide.formulas.space import Assumed, Scalar, assumed, parsed
from tensortide.graph.model import Graph
from tensortide.importers import built
from tensortide.memory import footprint_bytes
from tensortide.plans.order.minimal import footprint
from tensortide.timelines import timeline

MOST_OPS = 8000
"""A step with more ops is not captured to check a solution."""


def confirm(
    solution: Solution,
    found: Symbolic,
    workload: Callable[..., Any],
    *,
    assume: Mapping[str, Assumed | str] | None = None,
    resolver: Resolver | None = None,
) -> Solution:
    """The solution, with the step captured at its value and at the next one, on fake tensors.

    ``found`` are the formulas of ``workload`` that it was solved with. It is ``proved`` if the captures have the totals
    that the formulas give, the shape of the formulas allows one such value only, and the workload refuses the next
    value if no formulas hold there. Bounds of the least memory must be equal to it. A step of more than 8,000 ops is
    not captured, which ``unchecked`` says.

    Raises ExpressionError if a capture differs from the formulas, or the workload refuses the value.
    """
    values = [solution.value, *([solution.neighbour.value] if solution.neighbour else [])]
    settings = {value: {**solution.setting, solution.symbol: value} for value in values}
    ops = max((found.ops(setting) or 0 for setting in settings.values()), default=0)
    if ops > MOST_OPS:
        return replace(solution, unchecked=f"a step of {ops:,} ops is not captured, as it has more than {MOST_OPS:,}")
    captured, unchecked = [], ""
    taken = partial(_captured, workload, found.settings, parsed(assume))
    for value, setting in settings.items():
        graph = taken(setting)
        if isinstance(graph, str):
            if value == solution.value:
                raise ExpressionError(f"no answer: no capture at {shown(setting)}: {graph}")
            unchecked = f"{solution.symbol} = {value:,} cannot be captured: {graph}"
            break
        _compare(found.formulas, setting, measured(graph, resolver))
        unchecked = unchecked or _least(found.formulas, setting, solution.target, graph)
        captured.append(value)
    unchecked = unchecked or _skipped(solution, taken)
    complete = solution.by_shape and len(captured) == len(values) and not (unchecked or solution.unlimited)
    return replace(solution, captured=tuple(captured), unchecked=unchecked, proved=complete)


def _captured(
    workload: Callable[..., Any],
    settings: Mapping[str, Scalar],
    assume: Mapping[str, Assumed],
    setting: Mapping[str, int],
) -> Graph | str:
    """The step at a setting, the other hyperparameters as in ``settings``, or why the workload refuses it."""
    known = {**settings, **setting}
    given = {name: value for name, value in known.items() if name in inspect.signature(workload).parameters}
    integers = {name: value for name, value in known.items() if type(value) is int}
    try:
        return built.captured(workload, hyperparameters=given, real=False, assume=assumed(assume, integers))
    except TensortideError as error:
        return str(error).partition("\n")[0]


def _skipped(solution: Solution, taken: Callable[[Mapping[str, int]], Graph | str]) -> str:
    """Tell that the workload takes the value next to the answer, where no formulas hold; nothing if it refuses it."""
    if solution.skipped is None:
        return ""
    if isinstance(taken({**solution.setting, solution.symbol: solution.skipped}), str):
        return ""
    return f"{solution.symbol} = {solution.skipped:,} can be captured too, and no formulas hold there"


def _least(formulas: Formulas, setting: Mapping[str, int], target: str, graph: Graph) -> str:
    """Tell where a bound of the least memory in the target is not known to be the least memory. Raises ExpressionError
    where it is no bound."""
    claimed, named = formulas.totals_at(setting), set(re.split(r"\W+", target))
    bounds = {name: claimed[name] for name in LEAST if name in named}
    if not bounds:
        return ""
    least = footprint(graph, workspace=False, work_limit=MORE_WORK)
    low, high = least.lower_bytes, least.upper_bytes
    for name, value in bounds.items():
        if value > high if name == LEAST[0] else value < low:
            raise ExpressionError(
                f"no answer: the formulas are WRONG at {shown(setting)}: {name} is {value:,} by the formulas, "
                f"the least memory {low:,}" + (f" to {high:,}" if high > low else "")
            )
    exact = all(value == low == high for value in bounds.values())
    return "" if exact else f"{' and '.join(bounds)} at {shown(setting)} need not be the least memory"


def _compare(formulas: Formulas, setting: Mapping[str, int], truth: Mapping[str, int]) -> None:
    """Raise ExpressionError if the formulas give another total than the capture."""
    claimed = formulas.totals_at(setting)
    wrong = [
        f"{name} is {value:,} in a capture, {claimed[name]:,} by the formulas"
        for name, value in truth.items()
        if name in claimed and claimed[name] != value
    ]
    if wrong:
        untested = told(formulas.extrapolated(setting))
        places = f"They were extrapolated: {untested}. " if untested else ""
        raise ExpressionError(
            f"no answer: the formulas are WRONG at {shown(setting)}: {'; '.join(wrong)}\n"
            f"{places}Derive them nearer to there: --set other values"
        )


def measured(graph: Graph, resolver: Resolver | None = None) -> dict[str, int]:
    """The totals of a captured step in numbers, without the bounds of its least memory."""
    return {
        **counted_totals(count(graph, resolver=resolver), footprint_bytes(graph)),
        "peak_bytes": timeline(graph, workspace=False).peak_bytes,
        "peak_with_workspace_bytes": timeline(graph, workspace=True).peak_bytes,
    }
