"""A workload run live under a memory budget: what is asked, and the runs that answer it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tensortide.errors import BudgetInfeasible, ExitStatus, PlanError, RequestError, RunError, TensortideError
from tensortide.graph import Graph
from tensortide.plans import Compute, Plan, save_plan
from tensortide.plans.legal import moves
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.policies import DEFAULT_POLICY
from tensortide.plans.unfollowed import over_budget
from tensortide.progress import Say, silent
from tensortide.replays.remat.budgets import Budget as Limit
from tensortide.replays.remat.budgets import budget_or_auto
from tensortide.request import Arg, Opt, Request, exclusive
from tensortide.studies.planning.budget import budget_bytes
from tensortide.targets.command import command, typed
from tensortide.targets.opening import opened, settings_of, step_of
from tensortide.targets.requests import CaptureRequest, Settings

if TYPE_CHECKING:
    from tensortide.recorder.target import Workload
    from tensortide.run.budget import Budget
    from tensortide.run.generated.measure import MeasuredProgram
    from tensortide.run.least import Least
    from tensortide.run.measure import Compared, Measured
    from tensortide.run.program import Program

_NO_POLICY = "a program runs a plan without a policy"
_OF_POLICIES = ("compare", "check_writes", "plan", "save_log")


@dataclass(frozen=True, kw_only=True)
class RunRequest(Request):
    """Steps to run under a limit, and the policy that keeps them within it."""

    GROUP = "The budget and the policy"

    target: Annotated[str, Arg("file.py:function, package.module:function or an example.")]
    budget: Annotated[
        Limit | Literal["auto"] | None,
        Opt(
            "Memory that tensors may take: 8GiB, 60% (of the peak of the step, as tensortide plan), or auto (what is "
            "free).",
            read=partial(budget_or_auto, many="tensortide plan frontier"),
            common=True,
        ),
    ] = None
    least: Annotated[
        bool, Opt("Find the smallest budget that works: simulated first, then confirmed by live runs.", common=True)
    ] = False
    policy: Annotated[
        str,
        Opt(
            "Eviction policy: dtr-eq, lru, dtr-eq+sqrt, ..., your own as FILE.py:NAME, or a plan to follow as "
            "FILE.json.",
            common=True,
            value="POLICY",
        ),
    ] = DEFAULT_POLICY
    steps: Annotated[int, Opt("Steps to measure, of each kind.", least=1, common=True, group="The run")] = 3
    plain: Annotated[
        bool,
        Opt(
            "Also run ordinary steps, to compare with; omit them if the step fits only under a budget.", group="The run"
        ),
    ] = True
    set: Settings = ()
    real: Annotated[
        bool,
        Opt(
            "Capture on real tensors if the step is captured too; it always runs on real ones.",
            group="The step and its capture",
        ),
    ] = False
    device: Annotated[
        str | None,
        Opt(
            "Device to build the workload on and whose memory to limit: cpu, cuda, cuda:1 (default: a GPU if any).",
            common=True,
            value="DEVICE",
            group="The step and its capture",
        ),
    ] = None
    check_writes: Annotated[
        bool,
        Opt(
            "Look for writes that a budget cannot see and for ops that do not repeat; slow.", "--check", group="The run"
        ),
    ] = False
    offload_dir: Annotated[
        Path | None, Opt("Folder for what a plan moves to a drive (default: that of temporary files).", value="FOLDER")
    ] = None
    transfers: Annotated[
        Literal["overlapped", "serial"], Opt("Whether ops go on while a plan's transfers run, or wait for each.")
    ] = "overlapped"
    compare: Annotated[
        bool, Opt("Show what the simulator predicts beside what is measured.", common=True, group="The run")
    ] = False
    plan: Annotated[
        Path | None,
        Opt("Write the last step to a file, as it ran, as a plan.", writes=True, common=True, group="Output"),
    ] = None
    save_log: Annotated[
        Path | None,
        Opt(
            "Write DTR's log of one more step under the budget, which remat simulate reads (.gz: compressed).",
            writes=True,
            group="Output",
        ),
    ] = None
    compiled: Annotated[bool, Opt("Plan the step and run the plan as one generated program, without a policy.")] = False

    RULES = (
        *(exclusive("least", name) for name in ("budget", *_OF_POLICIES)),
        *(exclusive("compiled", name, why=_NO_POLICY) for name in ("least", *_OF_POLICIES)),
    )

    @property
    def capture(self) -> CaptureRequest:
        """Capture of the step."""
        return CaptureRequest(set=self.set, real=self.real)

    def follows(self) -> Plan | None:
        """The plan that the live steps follow."""
        found = decision(self.policy)
        return found if isinstance(found, Plan) and not self.compiled else None

    def watches(self) -> bool:
        """Tell whether the steps run along the captured one."""
        return self.compare or self.plan is not None or self.follows() is not None

    def captures(self) -> bool:
        """Tell whether the step has to be captured too."""
        return self.least or self.watches() or self.share

    @property
    def share(self) -> bool:
        """True if the budget is a part of the peak of the step."""
        return isinstance(self.budget, Limit) and self.budget.ratio is not None

    def limit(self, graph: Graph | None) -> int | str:
        """The budget as a live run takes it; a part is of the same peak as that of ``plan``."""
        if not isinstance(self.budget, Limit):
            return self.budget or 0
        if self.budget.nbytes is not None:
            return self.budget.nbytes
        assert graph is not None
        return budget_bytes(self.budget, graph, graph.index.main_device)


@dataclass(frozen=True)
class Ran:
    """The steps that ran: as ``found``, under a budget those ``compared`` with a simulation if that was asked for.

    ``failed`` is why they are not compared or not written to files; those that were are ``wrote``. ``graph``: the
    captured step, if there is one.
    """

    found: Least | Measured | MeasuredProgram
    graph: Graph | None
    compared: Compared | None = None
    failed: TensortideError | None = None
    wrote: tuple[Path, ...] = ()

    @property
    def measured(self) -> Measured | MeasuredProgram:
        """The steps; of a least budget those under it."""
        from tensortide.run.least import Least

        return self.found.measured if isinstance(self.found, Least) else self.found

    @property
    def status(self) -> ExitStatus:
        """The answer to whether results are those of ordinary steps, bit for bit, where they are compared."""
        differ = self.measured.agreement is not None and self.measured.agreement.equal is False
        return ExitStatus.FAILS if differ else ExitStatus.HOLDS


def answer(asked: RunRequest, say: Say = silent) -> Ran:
    """Run the steps.

    Raises:
        RequestError: there is neither a budget nor a plan whose peak is one.
        BudgetInfeasible: no step runs within the budget.
    """
    from tensortide.run.least import least
    from tensortide.run.program import Program

    if not (asked.budget or asked.least):
        _check_plan_alone(asked)
    workload = step_of(asked.target, "run")
    settings = settings_of(workload, asked.capture)
    graph = _captured(workload, asked.capture, say) if asked.captures() else None
    program = Program(asked.target, workload.function, settings)
    if asked.least:
        assert graph is not None
        find = partial(least, program, graph, asked.policy, asked.device, asked.steps)
        return Ran(find(plain=asked.plain, progress=say), graph)
    return Ran(_compiled(program, asked, graph, say), graph) if asked.compiled else _live(program, asked, graph, say)


def _check_plan_alone(asked: RunRequest) -> None:
    """Raise RequestError unless the steps follow a plan whose peak is a budget."""
    plan = asked.follows()
    if plan is None:
        raise RequestError("give either --budget, or --least alone, which searches for one")
    if moves(plan):
        raise RequestError(f"{asked.policy} moves storages, which takes room that it does not name: give --budget")


def _live(program: Program, asked: RunRequest, graph: Graph | None, say: Say) -> Ran:
    """Run the steps under the budget."""
    from tensortide.run.measure import compared, measured
    from tensortide.run.repetitions import logged

    limit = _budget(asked, graph)
    try:
        result = measured(program, limit, asked.steps, plain=asked.plain, progress=say)
    except BudgetInfeasible as error:
        raise BudgetInfeasible(f"{error}{_too_large(asked, limit)}") from error
    if result.step.run_bytes is not None and result.step.run_bytes > result.budget_bytes:
        result = replace(result, command=_with_budget(asked, result.step.run_bytes))
    if asked.share:
        assert isinstance(asked.budget, Limit)
        result = replace(result, asked=f"{100 * (asked.budget.ratio or 0):g}%")
    latest, both, failed = limit.steps[-asked.steps :], None, None
    wrote: list[Path] = []
    try:
        both = compared(limit, latest) if asked.compare else None
        if asked.plan is not None:
            if not latest:
                raise RunError(f"no plan was written to {asked.plan}: no step ran the ops of the captured one")
            save_plan(latest[-1].plan(), asked.plan)
            wrote.append(asked.plan)
        if asked.save_log is not None:
            say("recording the log of one more step")
            logged(program, _budget(asked, graph), str(asked.save_log))
            wrote.append(asked.save_log)
    except TensortideError as error:
        failed = error
    return Ran(result, graph, both, failed, tuple(wrote))


def _too_large(asked: RunRequest, limit: Budget) -> str:
    """Tell of an error for want of room what the plan takes in a run, if that is more than the budget."""
    from tensortide.replays.plan_actions import followed_peak_bytes

    if limit.plan is None or limit.graph is None or moves(limit.plan):
        return ""
    run_bytes = followed_peak_bytes(limit.graph, limit.plan)
    if run_bytes <= limit.budget_bytes:
        return ""
    why = over_budget(run_bytes, limit.budget_bytes)
    return f"\nThe plan cannot be followed: {why}. Type: {_with_budget(asked, run_bytes)}"


def _with_budget(asked: RunRequest, nbytes: int) -> str:
    """The command that runs the same within ``nbytes``."""
    return command("run", asked.target, *typed(asked, "target", "budget"), "--budget", str(nbytes))


def _budget(asked: RunRequest, graph: Graph | None) -> Budget:
    """The budget that is asked for: without a size, the peak of the plan as the program follows it.

    Raises PlanError that says in what the plan and the step differ if it is of another one.
    """
    from tensortide.plans.model import plan_writer
    from tensortide.replays.plan_actions import followed_peak_bytes
    from tensortide.run.budget import Budget

    make = partial(
        Budget,
        policy=asked.policy,
        graph=graph if asked.watches() else None,
        device=asked.device,
        check=asked.check_writes,
        offload_dir=asked.offload_dir,
        transfers=asked.transfers,
    )
    try:
        limit = make(asked.limit(graph) or 1)
    except PlanError as error:
        plan = decision(asked.policy)
        if graph is None or not isinstance(plan, Plan) or plan.graph == graph.index.digest:
            raise
        raise PlanError(f"{error}: {_unlike(plan, graph)}{plan_writer(asked.policy)}") from error
    if asked.budget:
        return limit
    assert limit.graph is not None
    assert limit.plan is not None
    return make(followed_peak_bytes(limit.graph, limit.plan))


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


def _compiled(program: Program, asked: RunRequest, graph: Graph | None, say: Say) -> MeasuredProgram:
    """Run the step by a generated program: of the plan given as a policy, or of the fastest that is found."""
    from tensortide.run.budget import Budget
    from tensortide.run.generated.measure import measured_program
    from tensortide.studies.compiled import compile_step

    limit = Budget(asked.limit(graph), device=asked.device)
    given = decision(asked.policy)
    how = {"plan": given} if isinstance(given, Plan) else {"budget": limit.budget_bytes}
    make = partial(compile_step, **how)
    return measured_program(program, limit, make, asked.steps, plain=asked.plain, progress=say)


def _captured(workload: Workload, asked: CaptureRequest, say: Say) -> Graph:
    """Capture the step as it runs: on fake tensors unless it reads values."""
    graph = opened(workload, asked, say).graph
    if not graph.meta.assumptions or graph.meta.captured_on == "real":
        return graph
    return opened(workload, replace(asked, real=True), say).graph
