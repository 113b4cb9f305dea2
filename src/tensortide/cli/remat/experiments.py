"""Experiments: ``tensortide remat sweep``, ``ablation``, ``banishing``, ``accesses`` and ``growth``; their options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions
from tensortide.cli.numbers import Real
from tensortide.cli.remat.target import RuleOptions, StepRules, recording_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, option, progress
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import PlanError
from tensortide.plans.remat.policies import contenders
from tensortide.replays.remat import Simulator
from tensortide.studies.remat import designs
from tensortide.studies.remat.budgets import budgets as parse_budgets
from tensortide.studies.remat.designs import Line, conduct
from tensortide.studies.remat.grid import Play, finished_runs, play_all
from tensortide.studies.remat.linear import LIMIT, RULES, asymptotics, budget_of, linear_network
from tensortide.studies.remat.results import Study
from tensortide.studies.remat.subject import Subject

Targets = Annotated[tuple[str, ...], Parameter(help=f"{TARGET}. Several make a panel each.")]
Budgets = Annotated[
    str,
    Parameter(
        help="Budgets: ratios of the peak, sizes, or ranges FROM:TO:STEP of them (1.0:0.1, 0.9,0.5, 80%, "
        "8GiB:2GiB:1GiB)."
    ),
]
Policies = Annotated[
    str, Parameter(help="Policies (names, FILE.py:NAME), separated by commas; random is played with ten seeds.")
]
Limit = Annotated[
    float,
    Parameter(
        help="Abort a run once it takes this many times the step without recomputation (inf: never).",
        validator=Real(least=1, infinite=True),
    ),
]
POLICY_LIST = ",".join(contenders())
SIZES = "16,32,64,128,256,512"
RULE_LIST = "n/2,2sqrt,sqrt+3,log2"
GROWTH_POLICIES = ",".join(contenders(seeded=False))
LARGEST_MAP = 128
MOST = 100_000


@Parameter(name="*")
@dataclass(frozen=True)
class PlayOptions:
    """Options of every experiment: how runs are made, kept and shown."""

    save: Annotated[
        Path | None,
        option("--save", "File of finished runs: new ones are appended, and those in it are not repeated."),
    ] = None
    workers: WorkerOptions = WorkerOptions()  # noqa: RUF009
    files: Files = Files()  # noqa: RUF009
    out: OutputOptions = OutputOptions()  # noqa: RUF009

    @contextlib.contextmanager
    def playing(self) -> Iterator[Play]:
        """Open the file of finished runs, if one is given, and show the progress of new ones on a terminal."""
        file = finished_runs(self.save) if self.save else contextlib.nullcontext()
        with file as saved, progress(self.out.quiet) as say:
            yield partial(play_all, saved=saved, where=self.workers.where, progress=say)


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """Options of experiments on steps: budgets, the time limit of a run, and how steps are read."""

    budgets: Budgets = "1.0:0.1"
    limit: Limit = 2.0
    options: CaptureOptions = CaptureOptions()  # noqa: RUF009
    times: TimeOptions = TimeOptions()  # noqa: RUF009

    def subjects(self, targets: Sequence[str], rules: StepRules, *, quiet: bool) -> list[Subject]:
        """Read the steps of ``targets``."""
        subjects = []
        for target in targets:
            recording = recording_of(target, self.options, self.times, rules, quiet=quiet)
            name = " ".join([name_of(target), *([] if len(targets) > 1 else self.options.set)])
            subjects.append(Subject(name, recording, compat=rules.compat, device=self.options.device or ""))
        return subjects


@Parameter(name="*")
@dataclass(frozen=True)
class Experiment:
    """All options of an experiment on steps."""

    steps: StepOptions = StepOptions()
    play: PlayOptions = PlayOptions()
    rules: StepRules = StepRules()  # noqa: RUF009

    def conduct(self, kind: str, targets: Sequence[str], lines: Sequence[Line]) -> None:
        """Make the experiment ``kind`` of ``lines`` on the steps of ``targets``, write its files and show it."""
        from tensortide.reports.sections.assumed import assuming
        from tensortide.reports.sections.experiments import document

        self.play.files.check()
        budgets = parse_budgets(self.steps.budgets)
        subjects = self.steps.subjects(targets, self.rules, quiet=self.play.out.quiet)
        with self.play.playing() as play:
            study = conduct(kind, subjects, lines, budgets, overhead_limit=self.steps.limit, play=play)
        made = assuming(document(study), *(subject.recording.graph for subject in subjects))
        show(made, self.play.out, wrote=self.play.files.write(made, table="runs"))


@Parameter(name="*")
@dataclass(frozen=True)
class RuledExperiment(Experiment):
    """All options of an experiment in which one deallocation is played."""

    rules: RuleOptions = RuleOptions()  # noqa: RUF009


def sweep(
    targets: Targets,
    /,
    *,
    policies: Policies = POLICY_LIST,
    asked: RuledExperiment = RuledExperiment(),
) -> None:
    """Play a step under a range of memory budgets by several policies: what recomputation costs, and where it ends."""
    asked.conduct("sweep", targets, designs.contest(words(policies), deallocation=asked.rules.deallocation))


def ablation(targets: Targets, /, *, asked: RuledExperiment = RuledExperiment()) -> None:
    """Compare the sixteen policies that weigh work (in four ways), size and staleness, or leave them out."""
    asked.conduct("ablation", targets, designs.ablation(deallocation=asked.rules.deallocation))


def banishing(targets: Targets, /, *, asked: Experiment = Experiment()) -> None:
    """Compare the ways to handle a released tensor: free it for good, evict it, or ignore the release."""
    asked.conduct("banishing", targets, designs.banishing())


def accesses(
    targets: Targets,
    /,
    *,
    policies: Policies = "dtr,dtr-eq,dtr-local",
    asked: RuledExperiment = RuledExperiment(),
) -> None:
    """Count the storages that policies look at to choose what to evict: every candidate, and with bounds."""
    asked.conduct("accesses", targets, designs.accesses(words(policies), deallocation=asked.rules.deallocation))


def growth(
    *,
    sizes: Annotated[str, Parameter(help="Numbers of layers.")] = SIZES,
    budgets: Annotated[str, Parameter(help=f"Budgets as functions of them: {', '.join(RULES)}.")] = RULE_LIST,
    policies: Annotated[str, Parameter(help="Policies, separated by commas.")] = GROWTH_POLICIES,
    limit: Limit = LIMIT,
    compat: Annotated[bool, option("--compat", "Play by the rules of DTR's own simulator (docs/remat.md).")] = False,
    heatmap: Annotated[
        Path | None, option("--heatmap", "Draw which tensor is resident when, for one length (.png, .svg, .pdf).")
    ] = None,
    play: PlayOptions = PlayOptions(),
) -> None:
    """Count the recomputed ops in linear networks of growing length, against what Chen et al. and Griewank need.

    --heatmap draws the first policy, on the longest network of at most 128 layers.
    """
    from tensortide.reports.render.figure import check_figure
    from tensortide.reports.sections.experiments import document

    play.files.check()
    lengths, rules, names = lengths_of(sizes), words(budgets), words(policies)
    if heatmap is not None:
        check_figure(heatmap)
    with play.playing() as playing:
        found = asymptotics(lengths, rules, names, compat=compat, overhead_limit=limit, play=playing)
    made = document(found)
    wrote = play.files.write(made, table="runs")
    if heatmap is not None:
        wrote.append(draw_heatmap(found, heatmap))
    show(made, play.out, wrote=wrote)


def lengths_of(text: str) -> list[int]:
    """Read whole numbers above 0, and sort them. Raises PlanError for anything else."""
    parts = words(text)
    if not parts or not all(part.isdecimal() and 0 < int(part) <= MOST for part in parts):
        raise PlanError(f"--sizes takes numbers of layers from 1 to {MOST:,}, as in {SIZES}, not {text!r}")
    return sorted({int(part) for part in parts})


def draw_heatmap(growth: Study, path: Path) -> Path:
    """Draw which tensor is resident when, a panel for each budget of ``growth``."""
    from tensortide.reports.render.figure import render_figure
    from tensortide.reports.sections.experiments import residency_document

    sizes = [int(trial.at) for trial in growth.trials]
    n = max((n for n in sizes if n <= LARGEST_MAP), default=min(sizes))
    simulator, name = Simulator(linear_network(n), compat=growth.compat), growth.trials[0].cell.policy
    runs = []
    for rule in growth.panels:
        run = simulator.run(name, budget_of(rule, n), overhead_limit=growth.overhead_limit)
        failed = "" if run.status == "ok" else f" ({run.status})"
        runs.append((f"{name}, {n} layers, {RULES[rule][0]}{failed}", run))
    return render_figure(residency_document(runs), path)


def words(text: str) -> list[str]:
    """Split a list at its commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def name_of(target: str) -> str:
    """Name a target in tables and figures."""
    name = target.rpartition("/")[2]
    for suffix in (".gz", ".log", ".jsonl", ".tide"):
        name = name.removesuffix(suffix)
    return name
