"""Experiments on steps: ``tensortide remat sweep``, ``ablation``, ``banishing`` and ``accesses``; their options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import RuleOptions, StepRules, recording_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, option, progress
from tensortide.plans.remat.policies import contenders
from tensortide.studies.remat import Line, Play, Saved, Subject, conduct, designs, play_all
from tensortide.studies.remat import budgets as parse_budgets

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
        help="Give a run up when it takes this many times the step without recomputation.",
        validator=validators.Number(gte=1),
    ),
]
POLICY_LIST = ",".join(contenders())


@Parameter(name="*")
@dataclass(frozen=True)
class PlayOptions:
    """Options of every experiment: how runs are made, kept and shown."""

    save: Annotated[
        Path | None,
        option("--save", "File of finished runs: they are added as they end, and those it has are not made again."),
    ] = None
    jobs: Annotated[
        int | None,
        Parameter(
            name="--jobs",
            show_default=False,
            help="Runs at a time (default: one per core). Results do not depend on it.",
            validator=validators.Number(gte=1),
        ),
    ] = None
    files: Files = Files()  # noqa: RUF009
    out: OutputOptions = OutputOptions()  # noqa: RUF009

    @contextlib.contextmanager
    def playing(self) -> Iterator[Play]:
        """Open the file of finished runs, if there is one, and tell of the progress of others on a terminal."""
        with Saved(self.save) if self.save else contextlib.nullcontext() as saved, progress(self.out.quiet) as say:
            yield partial(play_all, saved=saved, workers=self.jobs, progress=say)


@Parameter(name="*")
@dataclass(frozen=True)
class StepOptions:
    """Options of experiments on steps: the budgets, the time at which a run is given up, and how steps are read."""

    budgets: Budgets = "1.0:0.1"
    limit: Limit = 2.0
    options: CaptureOptions = CaptureOptions()  # noqa: RUF009
    times: TimeOptions = TimeOptions()  # noqa: RUF009

    def subjects(self, targets: Sequence[str], rules: StepRules, *, quiet: bool) -> list[Subject]:
        """Read the steps of ``targets``."""
        subjects = []
        for target in targets:
            recording = recording_of(target, self.options, self.times, quiet=quiet, copy_on_write=rules.compat)
            name = " ".join([name_of(target), *([] if len(targets) > 1 else self.options.set)])
            subjects.append(Subject(name, recording, compat=rules.compat, device=rules.device or ""))
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
        from tensortide.reports.sections.experiments import document

        self.play.files.check()
        budgets = parse_budgets(self.steps.budgets)
        subjects = self.steps.subjects(targets, self.rules, quiet=self.play.out.quiet)
        with self.play.playing() as play:
            made = document(conduct(kind, subjects, lines, budgets, overhead_limit=self.steps.limit, play=play))
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


def words(text: str) -> list[str]:
    """Split a list at its commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def name_of(target: str) -> str:
    """Name a target in tables and figures."""
    name = target.rpartition("/")[2]
    for suffix in (".gz", ".log", ".jsonl", ".tide"):
        name = name.removesuffix(suffix)
    return name
