"""``tensortide run``: a workload run live under a memory budget."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tensortide.cli.source import console, option, print_json
from tensortide.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from tensortide.run.measure import Measured

Workload = Annotated[str, Parameter(help="file.py:function, package.module:function or an example.")]


def run(
    target: Workload,
    /,
    *,
    budget: Annotated[str, Parameter(help="Most memory for tensors: 8GiB, 60% of the device's, or auto.")],
    policy: Annotated[str, Parameter(help="What goes first: dtr-eq, dtr, lru, dtr-eq+sqrt, ...")] = "dtr-eq",
    steps: Annotated[int, Parameter(help="Steps to measure, of each kind.")] = 3,
    set: Annotated[
        tuple[str, ...], option("--set", "A hyperparameter: key=value. Once for each: --set a=1 --set b=2.")
    ] = (),
    json: Annotated[bool, option("--json", "Print JSON instead of text.")] = False,
) -> None:
    """Run a workload for real under a memory budget, and compare with ordinary steps of it."""
    from tensortide.capture.target import find, parse_settings
    from tensortide.run.budget import Budget
    from tensortide.run.measure import measured

    limit = Budget(int(budget) if budget.isdecimal() else budget, policy)
    workload = find(target)
    result = measured(target, workload, parse_settings(set, workload, target), limit, steps)
    if json:
        print_json({**asdict(result), "slowdown": result.slowdown})
    else:
        _show(result)


def _show(result: Measured) -> None:
    from rich.table import Table

    table = Table(
        title=f"{result.target} under {format_bytes(result.budget_bytes)}, {result.policy}", show_header=False
    )
    table.add_column()
    table.add_column(justify="right")
    rows = (
        ("Budget", format_bytes(result.budget_bytes)),
        ("Peak", format_bytes(result.peak_bytes)),
        ("Resident before", format_bytes(result.before_bytes)),
        ("Ordinary step", _time(result.plain_ns)),
        ("Step under the budget", f"{_time(result.step_ns)} ({result.slowdown:.2f}x)"),
        ("  its own ops", f"{_time(result.base_ns)} ({result.ops} ops)"),
        ("  computed again", f"{_time(result.recompute_ns)} ({result.recomputations} ops)"),
        ("  making room", f"{_time(result.search_ns)} ({result.evictions} evictions)"),
        ("  everything else", _time(result.overhead_ns)),
    )
    for name, value in rows:
        table.add_row(name, value)
    console().print(table)


def _time(nanoseconds: int) -> str:
    return format_seconds(nanoseconds / 1e9)
