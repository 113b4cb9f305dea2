"""``tensortide run``: a workload run live under a memory budget."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import CaptureOptions, console, is_stdout, opened, option, print_json, settings_of, step_of
from tensortide.errors import RunError
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.policies import DEFAULT
from tensortide.units import format_bytes, format_seconds
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.run.compared import Compared
    from tensortide.run.measure import Measured
    from tensortide.timelines import Figures

Workload = Annotated[str, Parameter(help="file.py:function, package.module:function or an example.")]


def run(
    target: Workload,
    /,
    *,
    budget: Annotated[str, Parameter(help="Most memory for tensors: 8GiB, 60% of the device's, or auto.")],
    policy: Annotated[
        str,
        Parameter(
            help="What goes first: dtr-eq, lru, dtr-eq+sqrt, ...; FILE.py:NAME; or a plan to be followed (.json)."
        ),
    ] = DEFAULT,
    steps: Annotated[int, Parameter(help="Steps to measure, of each kind.")] = 3,
    plain: Annotated[
        bool,
        Parameter(negative="--no-plain", help="Ordinary steps too, to compare with; not where only a budget fits."),
    ] = True,
    set: Annotated[
        tuple[str, ...], option("--set", "A hyperparameter: key=value. Once for each: --set a=1 --set b=2.")
    ] = (),
    compare: Annotated[bool, option("--compare", "Show what the simulator predicts beside what was measured.")] = False,
    plan: Annotated[Path | None, option("--plan", "Write the last step, as it was run, as a plan.")] = None,
    json: Annotated[bool, option("--json", "Print JSON instead of text.")] = False,
) -> None:
    """Run a workload for real under a memory budget, and compare with ordinary steps of it."""
    from tensortide.run.budget import Budget
    from tensortide.run.compared import compared
    from tensortide.run.measure import measured

    if plan is not None:
        check_writable(plan)
    workload, options = step_of(target, "run"), CaptureOptions(set=set)
    settings = settings_of(workload, options)
    captured = compare or plan is not None or isinstance(decision(policy), Plan)
    graph = opened(workload, options, quiet=json).graph if captured else None
    limit = Budget(int(budget) if budget.isdecimal() else budget, policy, graph=graph)
    with warnings.catch_warnings(record=True) as told:
        result = measured(target, workload.function, settings, limit, steps, plain=plain)
    for warning in told:
        sys.stderr.write(f"warning: {warning.message}\n")
    found = limit.steps[-steps:]
    both = compared(limit, found) if compare else None
    if plan is not None:
        if not found:
            raise RunError(f"no plan was written to {plan}: no step ran the ops of the captured one")
        save_plan(found[-1].plan(), plan)
    if is_stdout(plan):
        return
    if json:
        figures = None if both is None else asdict(replace(both, difference=None))
        print_json({**asdict(result), "slowdown": result.slowdown, **({"compared": figures} if figures else {})})
        return
    _show(result)
    if both is not None:
        _show_both(both)
    if plan is not None:
        console().print(f"wrote {plan}", soft_wrap=True)


def _show(result: Measured) -> None:
    from rich.table import Table

    table = Table(
        title=f"{result.target} under {format_bytes(result.budget_bytes)}, {result.policy}", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    slowdown = f" ({result.slowdown:.2f}x)" if result.slowdown is not None else ""
    rows = [
        ("Budget", format_bytes(result.budget_bytes)),
        ("Peak", format_bytes(result.peak_bytes)),
        ("Resident before", format_bytes(result.before_bytes)),
        *((("Ordinary step", _time(result.plain_ns)),) if result.plain_ns is not None else ()),
        ("Step under the budget", _time(result.step_ns) + slowdown),
        ("  its own ops", f"{_time(result.base_ns)} ({result.ops} ops)"),
        ("  recomputed", f"{_time(result.recompute_ns)} ({result.recomputations} ops)"),
        ("  putting their arguments together", _time(result.arguments_ns)),
        ("  making room", f"{_time(result.search_ns)} ({result.evictions} evictions)"),
        ("  everything else", _time(result.overhead_ns)),
    ]
    if result.followed_steps or result.left_steps:
        rows.append(("Steps by the plan", f"{result.followed_steps} of {result.followed_steps + result.left_steps}"))
    for name, value in rows:
        table.add_row(name, value)
    console().print(table)


def _show_both(both: Compared) -> None:
    from rich.table import Table

    table = Table(title="One step, predicted and measured")
    table.add_column()
    for column in ("predicted", "measured", "difference"):
        table.add_column(column, justify="right")
    for name, figure, text in _ROWS:
        predicted, measured = figure(both.predicted), figure(both.measured)
        table.add_row(name, text(predicted), text(measured), _difference(predicted, measured))
    screen = console()
    screen.print(table)
    if both.status != "ok":
        ended = {"oom": "runs out of memory", "thrash": "recomputes too much"}[both.status]
        screen.print(f"The simulator {ended}: what is predicted goes up to there.")
    if both.elsewhere_bytes:
        screen.print(f"Both peaks include {format_bytes(both.elsewhere_bytes)} that the captured step does not have.")


def _time(nanoseconds: float) -> str:
    return format_seconds(nanoseconds / 1e9)


def _difference(predicted: float, measured: float) -> str:
    if predicted == measured:
        return "0 %"
    return f"{(measured - predicted) / predicted * 100:+.1f} %" if predicted else "-"


_ROWS: tuple[tuple[str, Callable[[Figures], float], Callable[[float], str]], ...] = (
    ("Peak", lambda figures: figures.peak_bytes, lambda nbytes: format_bytes(int(nbytes))),
    ("Evictions", lambda figures: figures.evictions, str),
    ("Ops recomputed", lambda figures: figures.recomputations, str),
    ("Time of the step's own ops", lambda figures: figures.base_ns, _time),
    ("Time of ops recomputed", lambda figures: figures.recompute_ns, _time),
    ("Slowdown", lambda figures: figures.slowdown, lambda factor: f"{factor:.3f}x"),
)
