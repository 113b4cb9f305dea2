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

from tensortide.cli.messages import say_warning
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
from tensortide.errors import PlanError, RunError, TensortideError
from tensortide.graph import Graph
from tensortide.plans import Compute, Plan, save_plan
from tensortide.plans.legal import moves
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.policies import DEFAULT_POLICY
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.recorder.target import Workload
    from tensortide.reports.blocks import Document
    from tensortide.run.budget import Budget
    from tensortide.run.program import Program

Target = Annotated[str, Parameter(help="file.py:function, package.module:function or an example.")]


@Parameter(name="*")
@dataclass(frozen=True)
class RunOptions:
    """The limit, the policy, and the steps that are run."""

    budget: Annotated[
        str, option("--budget", "Most memory for tensors: 8GiB, auto, or 60% of the memory of the device.")
    ] = ""
    least: Annotated[
        bool, option("--least", "Search for the least budget of a step, simulated and then confirmed by live runs.")
    ] = False
    policy: Annotated[
        str,
        Parameter(help="Eviction policy: dtr-eq, lru, dtr-eq+sqrt, ...; FILE.py:NAME; or a plan to follow (.json)."),
    ] = DEFAULT_POLICY
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

    def check(self, files: Files) -> None:
        """Raise RunError if they contradict each other or ``files``, OutputError if the plan cannot be written."""
        if self.plan is not None:
            check_writable(self.plan)
        if files.trace is not None and not self.compare:
            raise RunError("--trace has the step that --compare predicts and measures: give --compare too")
        if files.figure is not None and self.compiled:
            raise RunError("--compiled has no figure: leave out --figure")
        if self.least and (self.budget or self.compare or self.check_writes or self.plan):
            raise RunError("give either --budget, or --least alone, which searches for one")
        if not (self.budget or self.least):
            self._check_plan_alone()
        if self.compiled and (self.least or self.compare or self.check_writes or self.plan):
            raise RunError("--compiled runs a plan without a policy: leave out --least, --compare, --check and --plan")

    def _check_plan_alone(self) -> None:
        """Raise RunError unless the steps follow a plan whose peak is a budget."""
        plan = self.follows()
        if plan is None:
            raise RunError("give either --budget, or --least alone, which searches for one")
        if moves(plan):
            raise RunError(f"{self.policy} moves storages, which takes room that it does not name: give --budget")

    def follows(self) -> Plan | None:
        """Return the plan that the live steps follow."""
        found = decision(self.policy)
        return found if isinstance(found, Plan) and not self.compiled else None

    def captures(self) -> bool:
        """Return whether the step has to be captured too."""
        return self.least or self.compare or self.plan is not None or self.follows() is not None


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
    from tensortide.reports.sections.run import least_document
    from tensortide.run.least import least
    from tensortide.run.program import Program

    files.check()
    asked.check(files)
    workload, steps = step_of(target, "run"), asked.steps
    options, quiet = CaptureOptions(set=asked.set, real=asked.real), out.quiet or out.json
    settings = settings_of(workload, options)
    graph = _captured(workload, options, quiet=quiet) if asked.captures() else None
    program = Program(target, workload.function, settings)
    failed: TensortideError | None = None
    if asked.least:
        assert graph is not None
        with told(), progress(quiet) as say:
            found = least(program, graph, asked.policy, asked.device, steps, plain=asked.plain, progress=say)
        made = least_document(found)
    elif asked.compiled:
        made = _compiled(program, asked, quiet=quiet)
    else:
        made, failed = _live(program, asked, graph, quiet=quiet)
    made = assuming(made, *([] if graph is None else [graph]))
    wrote = [asked.plan] if asked.plan is not None and failed is None else []
    show(made, out, wrote=[*files.write(made, table="figures"), *wrote])
    if failed is not None:
        raise failed


def _live(
    program: Program, asked: RunOptions, graph: Graph | None, *, quiet: bool
) -> tuple[Document, TensortideError | None]:
    """Run the steps under the budget; the error, if there is one, is why they are not compared or written as a plan."""
    from tensortide.reports.sections.run import document
    from tensortide.run.measure import compared, measured

    limit = _budget(asked, graph)
    with told(), progress(quiet) as say:
        result = measured(program, limit, asked.steps, plain=asked.plain, progress=say)
    latest, both, failed = limit.steps[-asked.steps :], None, None
    try:
        both = compared(limit, latest) if asked.compare else None
        if asked.plan is not None:
            if not latest:
                raise RunError(f"no plan was written to {asked.plan}: no step ran the ops of the captured one")
            save_plan(latest[-1].plan(), asked.plan)
    except TensortideError as error:
        failed = error
    return document(result, both), failed


def _budget(asked: RunOptions, graph: Graph | None) -> Budget:
    """The budget that is asked for: without a size, the peak of the plan to follow, replayed.

    Raises PlanError that says in what the plan and the step differ if it is of another one.
    """
    from tensortide.plans.model import plan_writer
    from tensortide.replays import replay
    from tensortide.run.budget import Budget

    make = partial(
        Budget,
        policy=asked.policy,
        graph=graph,
        device=asked.device,
        check=asked.check_writes,
        offload_dir=asked.offload_dir,
        transfers=asked.transfers,
    )
    try:
        limit = make(asked.budget or 1)
    except PlanError as error:
        plan = decision(asked.policy)
        if graph is None or not isinstance(plan, Plan) or plan.graph == graph.index.digest:
            raise
        raise PlanError(f"{error}: {_unlike(plan, graph)}{plan_writer(asked.policy)}") from error
    if asked.budget:
        return limit
    assert limit.graph is not None
    assert limit.plan is not None
    return make(replay(limit.graph, limit.plan).peak_bytes)


def _unlike(plan: Plan, graph: Graph) -> str:
    """Say how the step of ``plan`` differs from ``graph``: a plan has no settings, but it has ops and devices."""
    ops = len({step.op for lane in plan.lanes for step in lane.steps if isinstance(step, Compute)})
    there = f"{ops} ops on {', '.join(sorted({lane.device for lane in plan.lanes}))}"
    here = f"{len(graph)} ops on {', '.join(sorted({storage.device for storage in graph.storages}))}"
    settings = " ".join(f"{name}={value}" for name, value in graph.meta.hyperparameters.items())
    with_settings = f" with {settings}" if settings else ""
    if there == here:
        return f"both have {here}, but their shapes or calls differ; this step is run{with_settings or ' as it is'}"
    return f"it has {there}, and this step{with_settings} has {here}"


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
