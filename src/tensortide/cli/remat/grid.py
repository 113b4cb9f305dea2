"""Options that the verbs of experiments share, and the way from them to a Document."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import StepRules, recording_of
from tensortide.cli.show import Files, show
from tensortide.cli.source import TARGET, CaptureOptions, OutputOptions, option, progress
from tensortide.plans.remat.policies import contenders
from tensortide.studies.remat import Budget, Experiment, Line, Saved, Subject, conduct
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
    def saved(self) -> Iterator[Saved | None]:
        """Open the file of finished runs, if there is one."""
        if self.save is None:
            yield None
            return
        with Saved(self.save) as saved:
            yield saved


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


def words(text: str) -> list[str]:
    """Split a list at its commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def name_of(target: str) -> str:
    """Name a target in tables and figures."""
    name = target.rpartition("/")[2]
    for suffix in (".gz", ".log", ".jsonl", ".tide"):
        name = name.removesuffix(suffix)
    return name


def conducted(
    kind: str,
    subjects: Sequence[Subject],
    lines: Sequence[Line],
    budgets: Sequence[Budget],
    limit: float,
    play: PlayOptions,
) -> Experiment:
    """Make an experiment, and tell of its progress on a terminal."""
    with play.saved() as saved, progress(play.out.quiet) as say:
        return conduct(
            kind, subjects, lines, budgets, overhead_limit=limit, saved=saved, workers=play.jobs, progress=say
        )


def experiment(
    kind: str, targets: Sequence[str], lines: Sequence[Line], steps: StepOptions, rules: StepRules, play: PlayOptions
) -> None:
    """Make the experiment ``kind`` of ``lines`` on the steps of ``targets``, write its files and show it."""
    from tensortide.reports.sections.pareto import document

    play.files.check()
    budgets = parse_budgets(steps.budgets)
    subjects = steps.subjects(targets, rules, quiet=play.out.quiet)
    made = document(conducted(kind, subjects, lines, budgets, steps.limit, play))
    show(made, play.out, wrote=play.files.write(made, table="runs"))
