"""``tensortide remat simulate``: one step under one budget, by one policy: does it fit, at what price, and why not.

``tensortide remat contenders``: plans made ahead against online policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from tensortide.cli import messages
from tensortide.cli.durations import TimeOptions
from tensortide.cli.numbers import Real
from tensortide.cli.remat.experiments import Budgets, Limit, name_of, words
from tensortide.cli.remat.target import RunOptions
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, Target, Top, option, progress
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import PlanError, WorkloadError
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.choice import policy as find_policy
from tensortide.plans.remat.policies import DEFAULT_POLICY
from tensortide.plans.remat.policies import contenders as known_policies
from tensortide.recorder import resolver
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.simulator import AUTO, play, smallest_budget
from tensortide.reports.budgeted import Budgeted, of_plan, of_policy
from tensortide.studies.planning.quick import least_plan, quick_plan
from tensortide.studies.remat.budgets import budgets as parse_budgets
from tensortide.studies.remat.budgets import one_budget, resolved
from tensortide.studies.remat.subject import Subject
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.plans.remat.schedule import Recording
    from tensortide.reports.blocks import Document


LAYERS = 10_000
"""Most layers of a made-up chain."""


def simulate(
    target: Target,
    /,
    *,
    budget: Annotated[
        str | None,
        option(
            "--budget",
            "Memory budget: 8GiB, 24 GB, or part of what the step takes without a budget: 60%, 0.6. Optional "
            "with a plan.",
        ),
    ] = None,
    policy: Annotated[
        str,
        Parameter(
            help="Eviction policy: dtr-eq, msps, lru, ...; FILE.py:NAME; a plan; auto: the best of all policies and of "
            "plans made ahead."
        ),
    ] = AUTO,
    limit: Annotated[
        float,
        Parameter(
            help="Abort a run once it takes this many times the step without recomputation (inf: never).",
            validator=Real(least=1, infinite=True),
        ),
    ] = 2.0,
    top: Top = 10,
    written: Annotated[Path | None, option("--plan", "Write the run as a plan, if it ends.")] = None,
    asked: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Play one step under a memory budget: what is evicted and recomputed, what that costs, and if not, why not.

    Exits with 1 if the step does not fit. A folder as --csv has telemetry too: tensors, storages, ops, every event.
    """
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.simulation import document

    asked.files.check()
    if written is not None:
        check_writable(written)
    plan = _plan_of(policy)
    wanted = None if plan is not None and budget is None else one_budget(budget, "tensortide remat sweep")
    recording, rules = asked.recording(target), asked.rules
    simulator = Simulator(
        recording, compat=rules.compat, deallocation=rules.deallocation, device=asked.options.device or ""
    )
    nbytes = None if wanted is None else wanted.bytes_of(simulator.baseline_bytes)
    with progress(asked.out.quiet) as say:
        if plan is not None:
            run = _replay(simulator, plan, policy, nbytes)
        else:
            assert nbytes is not None
            run = _play(simulator, policy, nbytes, limit, say)
        made = assuming(document(run, top=top), run.graph)
        wrote = [*_save(run, written), *_write(run, made, asked.files)]
    show(made, asked.out, wrote=wrote)
    if written is not None and written not in wrote:
        name = messages.one_line(str(written))
        messages.say("error", f"no plan was written to {name}: the run did not end")  # beside what was shown
    if run.status != "ok":
        raise SystemExit(1)


def _plan_of(policy: str) -> Plan | None:
    """Return the plan that ``policy`` names, None for a policy. Raises PlanError if it is neither."""
    if policy == AUTO:
        return None
    found = decision(policy)
    return found if isinstance(found, Plan) else None


def _replay(simulator: Simulator, plan: Plan, name: str, budget: int | None) -> Budgeted:
    try:
        return of_plan(simulator, plan, name, budget_bytes=budget)
    except PlanError as error:
        raise PlanError(f"{name} does not execute this step: {error}") from error


def _play(simulator: Simulator, policy: str, budget: int, limit: float, say: Callable[[str], None]) -> Budgeted:
    say("simulating")
    run, others = play(simulator, policy, budget, overhead_limit=limit)
    plans = policy == AUTO and not simulator.compat and simulator.deallocation == "eager"
    if plans and (run.status != "ok" or run.clock_ns > simulator.schedule.model_ns):
        say("planning")
        known = {run.policy: run.plan()} if run.status == "ok" else {}
        planned = quick_plan(simulator, budget, known)
        most_ns = run.clock_ns - 1 if run.status == "ok" else int(limit * simulator.schedule.model_ns)
        if planned is not None and planned.plan is not None and (planned.time_ns or 0) <= most_ns:
            name = f"{AUTO}: planned, {planned.source}"
            return of_plan(simulator, planned.plan, name, budget_bytes=budget, others=others)
    smallest, least = None, None
    if run.status != "ok":
        say("looking for what would do")
        smallest = smallest_budget(simulator, run.policy, overhead_limit=limit, above=budget)
        if plans:
            least = least_plan(simulator, budget, int(limit * simulator.schedule.model_ns))
        if policy != AUTO and simulator.has_kernel(find_policy(policy)):
            names = (name for name in known_policies(seeded=False) if name not in (policy, DEFAULT_POLICY))
            others = tuple(simulator.run(name, budget, overhead_limit=limit) for name in names)
    player = simulator.by(run.rules.deallocation)  # the best of all runs may be one with banishing
    name = f"{AUTO}: {run.policy}{'' if player is simulator else ' with banishing'}" if policy == AUTO else run.policy
    return replace(of_policy(player, run, smallest=smallest, others=others, name=name), least_plan=least)


def _save(run: Budgeted, path: Path | None) -> list[Path]:
    """Write the plan that was played, or that of a run that ended."""
    plan = run.plan
    if plan is None and run.simulation is not None and run.status == "ok":
        plan = run.simulation.plan()
    if path is None or plan is None:
        return []
    save_plan(plan, path)
    return [path]


def _write(run: Budgeted, made: Document, files: Files) -> Iterator[Path]:
    """Write the files: the page with a report of the step, tables with telemetry."""
    from tensortide.reports.sections import Step, sections_of
    from tensortide.reports.sections.simulation import telemetry_section

    if files.html is not None:
        report = (*made.sections, *sections_of(Step(run.graph, resolver=resolver)))
        yield from Files(html=files.html).write(msgspec.structs.replace(made, sections=report), table="")
    if files.csv:
        telemetry = [] if run.telemetry is None else [telemetry_section(run.telemetry)]
        whole = msgspec.structs.replace(made, sections=(*made.sections, *telemetry))
        yield from Files(csv=files.csv).write(whole, table="evicted")
    yield from replace(files, html=None, csv=()).write(made, table="", keys=("memory",))


def contenders(
    target: Annotated[str, Parameter(help=f"{TARGET}; or chain:N, N layers of equal cost and size.")],
    /,
    *,
    budgets: Budgets = "1.0:0.3:0.1",
    policies: Annotated[
        str, Parameter(help="Online policies, separated by commas; auto is the best of many at each budget.")
    ] = "dtr-eq,auto",
    limit: Limit = 2.0,
    optimum_time: Annotated[
        float | None,
        Parameter(
            help="Seconds for each search for an optimum, and each relaxation to be rounded; 0 leaves both out "
            "(default: 60; none with --work-limit).",
            validator=Real(least=0),
        ),
    ] = None,
    work_limit: Annotated[
        float | None,
        Parameter(
            help="Limit of each of these searches in steps of schedules (1,000,000 are about a second of the solver): "
            "they find the same on any machine.",
            validator=Real(least=0),
        ),
    ] = None,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    asked: RunOptions = RunOptions(),  # noqa: B008
) -> None:
    """Compare plans made ahead (Chen, Revolve, Checkmate's optimum) with online policies under the same budgets.

    All are played on the same step and measured alike.
    """
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.contenders import document
    from tensortide.studies.remat.comparison import compare as contest

    asked.files.check()
    wanted, rules = parse_budgets(budgets), asked.rules
    name = " ".join([name_of(target), *asked.options.set])
    subject = Subject(name, _recording(target, asked), compat=rules.compat, device=asked.options.device or "")
    with progress(asked.out.quiet) as say:
        found = contest(
            subject,
            resolved(wanted, subject.baseline_bytes),
            words(policies),
            deallocation=rules.deallocation,
            overhead_limit=limit,
            optimum_time_s=optimum_time,
            work_limit=work_limit,
            where=workers.where,
            progress=say,
        )
    made = assuming(document(found), subject.recording.graph)
    show(made, asked.out, wrote=asked.files.write(made, table="entries"))


def _recording(target: str, asked: RunOptions) -> Recording:
    made_up_chain = re.fullmatch(r"chain:(\d+)", target, re.ASCII)
    if made_up_chain is None:
        return asked.recording(target)
    from tensortide.plans.checkpointing.static import chain
    from tensortide.studies.remat.contenders import made_up

    if asked.options != CaptureOptions() or asked.times != TimeOptions():
        raise WorkloadError(f"{target} is made up: it has no settings, and every op of it takes 1 ns")
    if not 1 <= int(made_up_chain[1]) <= LAYERS:
        raise WorkloadError(f"{target}: a chain has 1 to {LAYERS:,} layers")
    return made_up(chain(int(made_up_chain[1])), target)
