"""``tensortide remat simulate``: one step under one budget, by one policy: does it fit, at what price, and why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import RuleOptions, simulator_of
from tensortide.cli.source import (
    CaptureOptions,
    OutputOptions,
    Target,
    Top,
    console,
    is_stdout,
    option,
    print_json,
    progress,
)
from tensortide.errors import OutputError, PlanError
from tensortide.plans import Plan, save_plan
from tensortide.plans.remat.choice import decision
from tensortide.plans.remat.choice import policy as find_policy
from tensortide.plans.remat.policies import DEFAULT, contenders
from tensortide.recorder.resolver import resolver
from tensortide.replays.remat import Simulator
from tensortide.replays.remat.portfolio import best
from tensortide.replays.remat.smallest import smallest_budget
from tensortide.replays.remat.telemetry import telemetry
from tensortide.reports.simulation import view, view_of_plan
from tensortide.studies.remat import Budget, budgets
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from tensortide.replays.remat import Simulation
    from tensortide.replays.remat.telemetry import Telemetry
    from tensortide.reports.simulation import SimulationView

AUTO = "auto"


@Parameter(name="*")
@dataclass(frozen=True)
class RunFiles:
    """What is written beside what is shown."""

    plan: Annotated[Path | None, option("--plan", "Write the run as a plan, if it ends.")] = None
    html: Annotated[Path | None, option("--html", "Write the report with memory before and after, one page.")] = None
    csv: Annotated[
        Path | None, option("--csv", "Folder for telemetry: tensors, storages, ops and memory at every event.")
    ] = None
    figure: Annotated[Path | None, option("--figure --png", "Draw memory before and after (.png, .svg, .pdf).")] = None

    def check(self) -> list[Path]:
        """The files to be written, each of them writable as far as can be told beforehand."""
        from tensortide.reports.render.figure import check_figure

        files = [check_writable(path, folders=path is self.html) for path in (self.plan, self.html) if path is not None]
        if self.figure is not None:
            files.append(check_figure(self.figure))
        if self.csv is not None and (not self.csv.is_dir() if self.csv.exists() else not self.csv.parent.is_dir()):
            what = "is a file" if self.csv.exists() else f"is in {self.csv.parent}, which does not exist"
            raise OutputError(f"cannot write to the folder {self.csv}: it {what}.")
        return files


def simulate(
    target: Target,
    /,
    *,
    budget: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help="Memory there is: 8GiB, 24 GB, or part of what the step takes without a budget: 60%, 0.6. Optional "
            "with a plan.",
        ),
    ] = None,
    policy: Annotated[
        str,
        Parameter(
            help="What decides which tensor goes: dtr-eq, msps, lru, ...; FILE.py:NAME; auto: the best; or a plan."
        ),
    ] = DEFAULT,
    limit: Annotated[
        float,
        Parameter(
            help="Give the run up when it takes this many times the step without recomputation.",
            validator=validators.Number(gte=1),
        ),
    ] = 2.0,
    top: Top = 10,
    files: RunFiles = RunFiles(),
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: RuleOptions = RuleOptions(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Play one step under a memory budget: what is evicted and computed again, what that costs, and if not, why not.

    Exits with 1 if the step does not fit.
    """
    written = files.check()
    plan = _plan_of(policy)
    if plan is not None and files.csv is not None:
        raise PlanError("telemetry (--csv) is that of a policy: a plan decides nothing while it runs")
    wanted = None if plan is not None and budget is None else _budget_of(budget)
    simulator = simulator_of(target, options, times, rules, quiet=out.quiet)
    nbytes = None if wanted is None else wanted.bytes_of(simulator.baseline_bytes)
    with progress(out.quiet) as say:
        if plan is not None:
            made = _replay(simulator, plan, policy, nbytes)
        else:
            assert nbytes is not None
            made = _play(simulator, policy, nbytes, limit, say)
        _write(made, simulator, files, say)
    if not any(map(is_stdout, written)):
        _show(made.view, files, written, top, out)
    if files.plan is not None and made.plan is None:
        raise PlanError(f"no plan was written to {files.plan}: the run did not end")
    if made.view.status != "ok":
        raise SystemExit(1)


@dataclass(frozen=True)
class _Made:
    """What came of a run, its telemetry (None: of a plan), and its plan (None: it did not end)."""

    view: SimulationView
    told: Telemetry | None
    plan: Plan | None


def _plan_of(policy: str) -> Plan | None:
    """Return the plan that ``policy`` names, None for a policy. Raises PlanError if it is neither."""
    if policy == AUTO:
        return None
    found = decision(policy)
    return found if isinstance(found, Plan) else None


def _budget_of(text: str | None) -> Budget:
    if text is None:
        raise PlanError("how much memory is there? Add --budget 8GiB, or --budget 60% of what the step takes")
    if text.strip().isdecimal() and len(text.strip()) > 2:
        return Budget(nbytes=int(text))
    found = budgets(text)
    if len(found) != 1:
        raise PlanError(f"{text!r} are {len(found)} budgets: one run has one; tensortide remat sweep takes many")
    return found[0]


def _replay(simulator: Simulator, plan: Plan, name: str, budget: int | None) -> _Made:
    try:
        return _Made(view_of_plan(simulator, plan, name, budget_bytes=budget), None, plan)
    except PlanError as error:
        raise PlanError(f"{name} does not execute this step: {error}") from error


def _play(simulator: Simulator, policy: str, budget: int, limit: float, say: Callable[[str], None]) -> _Made:
    say("simulating")
    instead: tuple[Simulation, ...] = ()
    if policy == AUTO:
        run, instead = best(simulator, budget, overhead_limit=limit)
    else:
        run = simulator.run(policy, budget, overhead_limit=limit)
    smallest = None
    if run.status != "ok":
        say("looking for what would do")
        smallest = smallest_budget(simulator, run.policy, overhead_limit=limit, above=budget)
        if policy != AUTO and simulator.has_kernel(find_policy(policy)):
            others = (name for name in contenders(seeded=False) if name not in (policy, DEFAULT))
            instead = tuple(simulator.run(name, budget, overhead_limit=limit) for name in others)
    player = _player(simulator, run)
    name = f"{AUTO}: {run.policy}{'' if player is simulator else ' with banishing'}" if policy == AUTO else run.policy
    told = telemetry(player, run)
    shown = view(player, run, told, smallest=smallest, instead=instead, policy=name)
    return _Made(shown, told, run.plan() if run.status == "ok" else None)


def _player(simulator: Simulator, run: Simulation) -> Simulator:
    """The simulator that made ``run``: the best of all runs may be one with banishing."""
    if run.rules.deallocation == simulator.deallocation:
        return simulator
    return Simulator(
        simulator.recording, deallocation="banish", workspace=simulator.workspace, device=simulator.schedule.device
    )


def _write(made: _Made, simulator: Simulator, files: RunFiles, say: Callable[[str], None]) -> None:
    from tensortide.reports import report
    from tensortide.reports.html import render_html
    from tensortide.reports.simulation import with_simulation
    from tensortide.reports.simulation.figure import simulation_figure
    from tensortide.reports.simulation.sheets import sheets

    if files.html is not None:
        say(f"writing {files.html}")
        document = report(simulator.recording.graph, resolver=resolver)
        write_file(files.html, render_html(with_simulation(document, made.view)), folders=True)
    if files.csv is not None and made.told is not None:
        say(f"writing to {files.csv}")
        contents = sheets(made.told)
        files.csv.mkdir(exist_ok=True)
        for name, content in contents.items():
            write_file(files.csv / name, content)
    if files.figure is not None:
        simulation_figure(made.view, files.figure)
    if files.plan is not None and made.plan is not None:
        save_plan(made.plan, files.plan)


def _show(shown: SimulationView, files: RunFiles, written: list[Path], top: int, out: OutputOptions) -> None:
    if out.json:
        print_json(msgspec.structs.replace(shown, curves=shown.curves.thinned()))
        return
    from tensortide.reports.simulation.terminal import render_simulation

    screen = console()
    render_simulation(shown, screen, top=top)
    if out.quiet:
        return
    for path in (*written, *([files.csv] if files.csv is not None else ())):
        if path.exists():
            screen.print(f"wrote {path}", soft_wrap=True)
