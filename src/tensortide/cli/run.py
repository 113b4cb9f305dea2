"""``tensortide run``: a workload run live under a memory budget."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Settings,
    opened,
    option,
    progress,
    settings_of,
    step_of,
)
from tensortide.errors import RunError
from tensortide.graph import Graph
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.policies import DEFAULT
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.recorder.target import Workload

Target = Annotated[str, Parameter(help="file.py:function, package.module:function or an example.")]


def run(
    target: Target,
    /,
    *,
    budget: Annotated[str, option("--budget", "Most memory for tensors: 8GiB, 60% of the device's, or auto.")] = "",
    least: Annotated[
        bool, option("--least", "Search for the least budget of a step, simulated and then confirmed by live runs.")
    ] = False,
    policy: Annotated[
        str,
        Parameter(help="Eviction policy: dtr-eq, lru, dtr-eq+sqrt, ...; FILE.py:NAME; or a plan to follow (.json)."),
    ] = DEFAULT,
    steps: Annotated[int, Parameter(help="Steps to measure, of each kind.")] = 3,
    plain: Annotated[
        bool,
        Parameter(
            negative="--no-plain",
            help="Also run ordinary steps, to compare with; omit them if the step fits only under a budget.",
        ),
    ] = True,
    set: Settings = (),
    real: Annotated[
        bool, option("--real", "Capture on real tensors if the step is captured too; it always runs on real ones.")
    ] = False,
    device: Annotated[
        str | None,
        option(
            "--device",
            "Device to build the workload on and whose memory to limit: cpu, cuda, cuda:1 (default: a GPU if any).",
        ),
    ] = None,
    check: Annotated[
        bool, option("--check", "Look for writes that a budget cannot see and for ops that do not repeat; slow.")
    ] = False,
    compare: Annotated[bool, option("--compare", "Show what the simulator predicts beside what was measured.")] = False,
    plan: Annotated[Path | None, option("--plan", "Write the last step, as it ran, as a plan.")] = None,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Run a workload for real under a memory budget, and compare with ordinary steps of it."""
    from tensortide.reports.sections.run import document, least_document
    from tensortide.run.budget import Budget
    from tensortide.run.least import least as searched
    from tensortide.run.measure import compared, measured

    files.check()
    if plan is not None:
        check_writable(plan)
    if bool(budget) is least or (least and (compare or check or plan is not None)):
        raise RunError("give either --budget, or --least alone, which searches for one")
    workload, options = step_of(target, "run"), CaptureOptions(set=set, real=real)
    settings = settings_of(workload, options)
    captured = least or compare or plan is not None or isinstance(decision(policy), Plan)
    quiet = out.quiet or out.json
    graph = _captured(workload, options, quiet=quiet) if captured else None
    if least:
        assert graph is not None
        with told(), progress(quiet) as say:
            run_of_least = searched(
                target, workload.function, settings, graph, policy, device, steps, plain=plain, progress=say
            )
        made = least_document(run_of_least)
        show(made, out, wrote=files.write(made, table="figures"))
        return
    limit = Budget(budget, policy, graph=graph, device=device, check=check)
    with told(), progress(quiet) as say:
        result = measured(target, workload.function, settings, limit, steps, plain=plain, progress=say)
    found = limit.steps[-steps:]
    both = compared(limit, found) if compare else None
    if plan is not None:
        if not found:
            raise RunError(f"no plan was written to {plan}: no step ran the ops of the captured one")
        save_plan(found[-1].plan(), plan)
    made = document(result, both)
    show(made, out, wrote=[*files.write(made, table="figures"), *([] if plan is None else [plan])])


def _captured(workload: Workload, options: CaptureOptions, *, quiet: bool) -> Graph:
    """Capture the step as it runs: on fake tensors unless it reads values."""
    graph = opened(workload, options, quiet=quiet).graph
    if not graph.meta.assumptions or graph.meta.captured_on == "real":
        return graph
    return opened(workload, replace(options, real=True), quiet=quiet).graph


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Print warnings as lines while the run goes on."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        sys.stderr.write(f"warning: {message}\n")

    with warnings.catch_warnings():
        warnings.showwarning = tell
        yield
