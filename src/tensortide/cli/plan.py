"""``tensortide plan``: how to execute a step in less memory.

``plan TARGET --budget``: the fastest plan under a budget, with a bound. ``plan frontier``: that for a row of budgets.
``plan order``: the smallest peak over all orders of the ops, with the order and a proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tensortide.cli.search import searching
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import family, verb
from tensortide.errors import ExitStatus
from tensortide.graph import Graph, unrolled
from tensortide.graph.file import SUFFIX as GRAPH_SUFFIX
from tensortide.importers.door import resolve
from tensortide.plans import save_plan
from tensortide.plans.planned import Planned
from tensortide.recorder.script_command import Script
from tensortide.recorder.target import Workload
from tensortide.replays.remat.budgets import Budget
from tensortide.studies.fit.subject import batch_of
from tensortide.studies.planning.g10_comparison import Compared
from tensortide.studies.planning.request import (
    FrontierRequest,
    OrderRequest,
    PlanRequest,
    answer,
    answer_frontier,
    answer_order,
    with_file,
)
from tensortide.studies.torch_file.choice import own_suffix
from tensortide.targets.command import command, typed
from tensortide.timelines import timeline
from tensortide.units import format_bytes
from tensortide.write import write_files

plan = family("plan")


@plan.default
@verb
def under_budget(asked: PlanRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Find the fastest way to execute one step under a memory budget, and what no other way can beat.

    Exits with 1 if it is proved that no plan fits, with 4 if none was found (with --torch: no file).
    Ctrl-C ends the search and shows the best plan so far.
    """
    from tensortide.reports.sections import policies
    from tensortide.reports.sections.planned import PICTURES, document
    from tensortide.reports.sections.torch_file import section

    with searching(out.quiet) as search:
        step = answer(asked, search)
    step = with_file(asked, step)
    recording, found, file, links = step
    if isinstance(found, Compared):
        made = policies.document(found, recording.graph.meta.workload, source=recording.source)
        show(made, out, wrote=files.write(made, table="policies"))
        return step.status
    wrote: list[Path] = []
    if asked.torch is not None and file is not None and file.text:
        wrote += write_files({asked.torch: file.text}, replaces=own_suffix(asked.torch))
    if asked.plan is not None and found.plan is not None:
        wrote.insert(0, save_plan(found.plan, asked.plan))
    made = document(found, recording.graph, recording.durations_ns, links=links, source=recording.source, top=asked.top)
    if file is not None:
        made = msgspec.structs.replace(made, sections=(*made.sections, section(file)))
    wrote += files.write(made, table="recompute", keys=PICTURES)
    show(made, out, wrote=wrote, then=_follow(asked, found, recording.graph))
    return step.status


def _follow(asked: PlanRequest, found: Planned, graph: Graph) -> Iterator[str]:
    """Yield the command that trains under the plan; a script opens the budget itself, and what can only be read cannot
    be run. Its budget is what a step takes that follows the plan, where the program holds tensors beyond that."""
    target = resolve(asked.target)
    if found.plan is None:
        yield from _larger(asked, found, graph)
    if found.plan is not None and asked.plan is not None and isinstance(target, Script):
        kept = asked.plan.with_suffix(GRAPH_SUFFIX)
        yield command("capture", asked.target, *typed(asked.step.capture), "-o", str(kept))
        words = f'with tensortide.budget({found.budget_bytes}, "{asked.plan}", graph="{kept}"):'
        yield f"in {target.file}, where training begins: {words} the loop inside follows the plan"
    if found.plan is None or not isinstance(target, Workload) or asked.planner.order == "free":
        return  # a program keeps its order
    if max(map(len, graph.meta.groups.values()), default=1) > 1:
        # run is one process: each of several applies the file.
        if asked.torch is None:
            yield "add --torch less.py for a file that each process applies: tensortide run is one process"
        return
    from tensortide.run.device import has_gpu

    budget, settings = asked.budget, [part for one in asked.step.capture.set for part in ("--set", one)]
    given = isinstance(budget, Budget) and budget.nbytes is not None and budget.text
    needed = max(found.run_bytes or 0, found.budget_bytes)
    plan_file = "plan.json" if asked.plan is None else str(asked.plan)
    room = ("--budget", (given if needed == found.budget_bytes else "") or str(needed))
    follow = command("run", asked.target, *settings, *room, "--policy", plan_file)
    if asked.step.capture.wants_gpu and not has_gpu():
        follow = f"on a machine with a GPU, {follow}"
    plain = format_bytes(timeline(unrolled(graph), device=found.device).peak_bytes)
    why = f"  # {format_bytes(needed)}, without a plan {plain}" if needed > found.budget_bytes else ""
    if asked.plan is None:
        yield command("plan", asked.target, *typed(asked, "target"), "--plan", plan_file)
    yield follow + why


def _larger(asked: PlanRequest, found: Planned, graph: Graph) -> Iterator[str]:
    """Yield the commands that plan for the least budget for which there is a plan, and for about as many samples as fit
    the budget."""
    if found.enough_bytes is not None:
        yield command("plan", asked.target, *typed(asked, "target", "budget"), "--budget", str(found.enough_bytes))
    batch = batch_of(graph.meta.hyperparameters)
    fixed = sum(int(each.nbytes) for each in graph.storages if each.birth is None and each.death is None)
    needed, room = (found.enough_bytes or found.least.nbytes) - fixed, found.budget_bytes - fixed
    if batch is not None and room > 0 and 0 < (samples := batch[1] * room // max(needed, 1)) < batch[1]:
        given = (one for one in asked.step.capture.set if one.partition("=")[0].strip() != batch[0])
        settings = (part for one in (*given, f"{batch[0]}={samples}") for part in ("--set", one))
        words = *typed(asked, "target", "set", "budget"), *settings, "--budget", str(found.budget_bytes)
        yield f"{command('plan', asked.target, *words)}  # fewer samples"


@plan.command
@verb
def frontier(asked: FrontierRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Find the fastest plans from the least memory that any was found for up to no budget: what memory costs in time.

    Exits with 4 if no plan was found. Ctrl-C ends the search and shows the best plans so far.
    """
    from tensortide.reports.sections.frontier import document

    with searching(out.quiet) as search:
        step = answer_frontier(asked, search)
    made = document(step.found, step.recording.graph, source=step.recording.source, budget_bytes=step.budget_bytes)
    show(made, out, wrote=files.write(made, table="points"))
    return step.status


@plan.command
@verb
def order(asked: OrderRequest, files: Files, out: OutputRequest) -> None:
    """Find the order of one step's ops that needs the least memory, with a proof of how little is possible.

    Ctrl-C ends the search and shows the best so far.
    """
    from tensortide.reports.sections.order import document

    with searching(out.quiet) as search:
        graph, found = answer_order(asked, search)
    wrote = [] if asked.plan is None else [save_plan(found.plan, asked.plan)]
    made = document(found, graph, top=asked.top)
    show(made, out, wrote=[*wrote, *files.write(made, table="order")])
