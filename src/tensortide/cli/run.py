"""``tensortide run``: a workload run live under a memory budget."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Settings,
    opened,
    option,
    progress,
    say_warning,
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
    from tensortide.reports.blocks import Document
    from tensortide.run.program import Program

Target = Annotated[str, Parameter(help="file.py:function, package.module:function or an example.")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """The limit, the policy, and the steps that are run."""

    budget: Annotated[str, option("--budget", "Most memory for tensors: 8GiB, 60% of the device's, or auto.")] = ""
    least: Annotated[
        bool, option("--least", "Search for the least budget of a step, simulated and then confirmed by live runs.")
    ] = False
    policy: Annotated[
        str,
        Parameter(help="Eviction policy: dtr-eq, lru, dtr-eq+sqrt, ...; FILE.py:NAME; or a plan to follow (.json)."),
    ] = DEFAULT
    steps: Annotated[int, Parameter(help="Steps to measure, of each kind.")] = 3
    plain: Annotated[
        bool,
        Parameter(
            negative="--no-plain",
            help="Also run ordinary steps, to compare with; omit them if the step fits only under a budget.",
        ),
    ] = True
    set: Settings = ()
    real: Annotated[
        bool, option("--real", "Capture on real tensors if the step is captured too; it always runs on real ones.")
    ] = False
    device: Annotated[
        str | None,
        option(
            "--device",
            "Device to build the workload on and whose memory to limit: cpu, cuda, cuda:1 (default: a GPU if any).",
        ),
    ] = None
    check_writes: Annotated[
        bool, option("--check", "Look for writes that a budget cannot see and for ops that do not repeat; slow.")
    ] = False
    offload_dir: Annotated[
        Path | None,
        option("--offload-dir", "Folder for what a plan moves to a drive (default: that of temporary files)."),
    ] = None
    transfers: Annotated[
        Literal["overlapped", "serial"],
        option("--transfers", "Whether ops go on while a plan's transfers run, or wait for each."),
    ] = "overlapped"
    compare: Annotated[bool, option("--compare", "Show what the simulator predicts beside what was measured.")] = False
    plan: Annotated[Path | None, option("--plan", "Write the last step, as it ran, as a plan.")] = None
    compiled: Annotated[
        bool, option("--compiled", "Plan the step and run the plan as one generated program, without a policy.")
    ] = False

    def check(self) -> None:
        """Raise RunError if they contradict each other, OutputError if the plan cannot be written."""
        if self.plan is not None:
            check_writable(self.plan)
        if bool(self.budget) is self.least or (self.least and (self.compare or self.check_writes or self.plan)):
            raise RunError("give either --budget, or --least alone, which searches for one")
        if self.compiled and (self.least or self.compare or self.check_writes or self.plan):
            raise RunError("--compiled runs a plan without a policy: leave out --least, --compare, --check and --plan")

    def captures(self) -> bool:
        """Return whether the step has to be captured too."""
        follows = isinstance(decision(self.policy), Plan) and not self.compiled
        return self.least or self.compare or self.plan is not None or follows


def run(
    target: Target,
    /,
    *,
    asked: RunOptions = RunOptions(),
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Run a workload for real under a memory budget, and compare with ordinary steps of it."""
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.run import document, least_document
    from tensortide.run.budget import Budget
    from tensortide.run.least import least
    from tensortide.run.measure import compared, measured
    from tensortide.run.program import Program

    files.check()
    asked.check()
    workload, steps = step_of(target, "run"), asked.steps
    options, quiet = CaptureOptions(set=asked.set, real=asked.real), out.quiet or out.json
    settings = settings_of(workload, options)
    graph = _captured(workload, options, quiet=quiet) if asked.captures() else None
    program = Program(target, workload.function, settings)
    if asked.least:
        assert graph is not None
        with told(), progress(quiet) as say:
            found = least(program, graph, asked.policy, asked.device, steps, plain=asked.plain, progress=say)
        made = least_document(found)
    elif asked.compiled:
        made = _compiled(program, asked, quiet=quiet)
    else:
        limit = Budget(
            asked.budget,
            asked.policy,
            graph=graph,
            device=asked.device,
            check=asked.check_writes,
            offload_dir=asked.offload_dir,
            transfers=asked.transfers,
        )
        with told(), progress(quiet) as say:
            result = measured(program, limit, steps, plain=asked.plain, progress=say)
        latest = limit.steps[-steps:]
        both = compared(limit, latest) if asked.compare else None
        if asked.plan is not None:
            if not latest:
                raise RunError(f"no plan was written to {asked.plan}: no step ran the ops of the captured one")
            save_plan(latest[-1].plan(), asked.plan)
        made = document(result, both)
    made = assuming(made, *([] if graph is None else [graph]))
    show(made, out, wrote=[*files.write(made, table="figures"), *([] if asked.plan is None else [asked.plan])])


def _compiled(program: Program, asked: RunOptions, *, quiet: bool) -> Document:
    """Run the step by a generated program: of the plan given as a policy, or of the fastest that is found."""
    from tensortide.reports.sections.run_program import document
    from tensortide.run.budget import Budget
    from tensortide.run.generated.measure import measured_program
    from tensortide.studies.compiled import compile_step

    limit = Budget(asked.budget, device=asked.device)
    given = decision(asked.policy)
    how = {"plan": given} if isinstance(given, Plan) else {"budget": limit.budget_bytes}
    with told(), progress(quiet) as say:
        make = partial(compile_step, **how)
        return document(measured_program(program, limit, make, asked.steps, plain=asked.plain, progress=say))


def _captured(workload: Workload, options: CaptureOptions, *, quiet: bool) -> Graph:
    """Capture the step as it runs: on fake tensors unless it reads values."""
    graph = opened(workload, options, quiet=quiet).graph
    if not graph.meta.assumptions or graph.meta.captured_on == "real":
        return graph
    return opened(workload, replace(options, real=True), quiet=quiet).graph


@contextlib.contextmanager
def told() -> Iterator[None]:
    """Print warnings as lines while the run goes on."""
    with warnings.catch_warnings():
        warnings.showwarning = say_warning
        yield
