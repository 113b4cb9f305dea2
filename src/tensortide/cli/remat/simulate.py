"""``tensortide remat simulate``: one step under one budget, by one policy: does it fit, at what price, and why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import RuleOptions, recording_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Target,
    Top,
    option,
    progress,
)
from tensortide.errors import PlanError
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.choice import policy as find_policy
from tensortide.plans.remat.policies import DEFAULT, contenders
from tensortide.recorder import resolver
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.simulator import AUTO, play, smallest_budget
from tensortide.reports.budgeted import Budgeted, of_plan, of_policy
from tensortide.studies.remat.budgets import Budget, budgets
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document


def simulate(
    target: Target,
    /,
    *,
    budget: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help="Memory budget: 8GiB, 24 GB, or part of what the step takes without a budget: 60%, 0.6. Optional "
            "with a plan.",
        ),
    ] = None,
    policy: Annotated[
        str,
        Parameter(help="Eviction policy: dtr-eq, msps, lru, ...; FILE.py:NAME; auto: the best; or a plan."),
    ] = DEFAULT,
    limit: Annotated[
        float,
        Parameter(
            help="Abort the run once it takes this many times the step without recomputation.",
            validator=validators.Number(gte=1),
        ),
    ] = 2.0,
    top: Top = 10,
    written: Annotated[Path | None, option("--plan", "Write the run as a plan, if it ends.")] = None,
    files: Files = Files(),  # noqa: B008
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Play one step under a memory budget: what is evicted and recomputed, what that costs, and if not, why not.

    Exits with 1 if the step does not fit. A folder as --csv has telemetry too: tensors, storages, ops, every event.
    """
    from tensortide.reports.sections.simulation import document

    files.check()
    if written is not None:
        check_writable(written)
    plan = _plan_of(policy)
    wanted = None if plan is not None and budget is None else _budget_of(budget)
    recording = recording_of(target, options, times, rules, quiet=out.quiet)
    simulator = Simulator(recording, compat=rules.compat, deallocation=rules.deallocation, device=rules.device or "")
    nbytes = None if wanted is None else wanted.bytes_of(simulator.baseline_bytes)
    with progress(out.quiet) as say:
        if plan is not None:
            run = _replay(simulator, plan, policy, nbytes)
        else:
            assert nbytes is not None
            run = _play(simulator, policy, nbytes, limit, say)
        made = document(run, top=top)
        wrote = [*_save(run, plan, written), *_write(run, made, files)]
    show(made, out, wrote=wrote)
    if written is not None and written not in wrote:
        raise PlanError(f"no plan was written to {written}: the run did not end")
    if run.status != "ok":
        raise SystemExit(1)


def _plan_of(policy: str) -> Plan | None:
    """Return the plan that ``policy`` names, None for a policy. Raises PlanError if it is neither."""
    if policy == AUTO:
        return None
    found = decision(policy)
    return found if isinstance(found, Plan) else None


def _budget_of(text: str | None) -> Budget:
    if text is None:
        raise PlanError("a budget is missing: add --budget 8GiB, or --budget 60% of what the step takes")
    if text.strip().isdecimal() and len(text.strip()) > 2:
        return Budget(nbytes=int(text))
    found = budgets(text)
    if len(found) != 1:
        raise PlanError(f"{text!r} are {len(found)} budgets: one run has one; tensortide remat sweep takes many")
    return found[0]


def _replay(simulator: Simulator, plan: Plan, name: str, budget: int | None) -> Budgeted:
    try:
        return of_plan(simulator, plan, name, budget_bytes=budget)
    except PlanError as error:
        raise PlanError(f"{name} does not execute this step: {error}") from error


def _play(simulator: Simulator, policy: str, budget: int, limit: float, say: Callable[[str], None]) -> Budgeted:
    say("simulating")
    run, others = play(simulator, policy, budget, overhead_limit=limit)
    smallest = None
    if run.status != "ok":
        say("looking for what would do")
        smallest = smallest_budget(simulator, run.policy, overhead_limit=limit, above=budget)
        if policy != AUTO and simulator.has_kernel(find_policy(policy)):
            names = (name for name in contenders(seeded=False) if name not in (policy, DEFAULT))
            others = tuple(simulator.run(name, budget, overhead_limit=limit) for name in names)
    player = simulator.by(run.rules.deallocation)  # the best of all runs may be one with banishing
    name = f"{AUTO}: {run.policy}{'' if player is simulator else ' with banishing'}" if policy == AUTO else run.policy
    return of_policy(player, run, smallest=smallest, others=others, name=name)


def _save(run: Budgeted, plan: Plan | None, path: Path | None) -> list[Path]:
    """Write the plan, or that of a run that ended."""
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
