"""Common parts of the verbs for experiments: options, the steps they select, and the destination of results."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.target import RuleOptions, recording_of
from tensortide.cli.source import (
    TARGET,
    CaptureOptions,
    OutputOptions,
    console,
    is_stdout,
    option,
    print_json,
    progress,
)
from tensortide.plans.remat.policies import contenders
from tensortide.studies.remat import Budget, Experiment, Growth, Line, Saved, Subject, conduct
from tensortide.write import check_writable, write_file

if TYPE_CHECKING:
    from rich.console import Console

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
class GridOptions:
    """The memory of the runs, and the time at which each is given up."""

    budgets: Budgets = "1.0:0.1"
    limit: Limit = 2.0


@Parameter(name="*")
@dataclass(frozen=True)
class PlayOptions:
    """Options of playing, saving and showing runs."""

    figure: Annotated[Path | None, option("--figure", "Draw the result (.png, .svg, .pdf).")] = None
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
    csv: Annotated[Path | None, option("--csv", "Write one line per run.")] = None

    @contextlib.contextmanager
    def saved(self) -> Iterator[Saved | None]:
        """The file of finished runs, if there is one."""
        if self.save is None:
            yield None
            return
        with Saved(self.save) as saved:
            yield saved


@Parameter(name="*")
@dataclass(frozen=True)
class StepRules:
    """Rules by which steps are played, under any treatment of released storages."""

    compat: Annotated[
        bool, option("--compat", "Play by the rules of DTR's own simulator, to the byte (docs/remat.md).")
    ] = False
    device: Annotated[
        str | None, option("--device", "Device whose memory is limited (default: that of the most bytes).")
    ] = None


def words(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [word for word in (part.strip() for part in text.split(",")) if word]


def subjects_of(
    targets: Sequence[str],
    options: CaptureOptions,
    times: TimeOptions,
    rules: RuleOptions | StepRules,
    *,
    quiet: bool,
) -> list[Subject]:
    """The steps of ``targets``, ready to be played."""
    subjects = []
    for target in targets:
        recording = recording_of(target, options, times, quiet=quiet, copy_on_write=rules.compat)
        name = " ".join([name_of(target), *([] if len(targets) > 1 else options.set)])
        subjects.append(Subject(name, recording, compat=rules.compat, device=rules.device or ""))
    return subjects


def conducted(
    kind: str,
    subjects: Sequence[Subject],
    lines: Sequence[Line],
    budgets: Sequence[Budget],
    limit: float,
    play: PlayOptions,
    *,
    quiet: bool,
) -> Experiment:
    """The experiment, with word of its progress on a terminal."""
    with play.saved() as saved, progress(quiet) as say:
        return conduct(
            kind, subjects, lines, budgets, overhead_limit=limit, saved=saved, workers=play.jobs, progress=say
        )


def name_of(target: str) -> str:
    """Name a target in tables and figures."""
    name = target.rpartition("/")[2]
    for suffix in (".gz", ".log", ".jsonl", ".tide"):
        name = name.removesuffix(suffix)
    return name


def deliver(result: Experiment | Growth, play: PlayOptions, drawn: Sequence[Path], out: OutputOptions) -> None:
    """Write the CSV file, print the result, and name the files that were written."""
    from tensortide.reports.remat.sheets import sheet
    from tensortide.reports.remat.tables import render_experiment, render_growth

    files = [*drawn]
    if play.csv is not None:
        write_file(play.csv, sheet(result))
        files.append(play.csv)
    if any(map(is_stdout, files)):
        return
    if out.json:
        print_json(result)
        return
    screen = console()
    if isinstance(result, Experiment):
        render_experiment(result, screen)
    else:
        render_growth(result, screen)
    if not out.quiet:
        tell(files, screen)


def tell(files: Sequence[Path], screen: Console) -> None:
    """Name the files that were written."""
    for path in files:
        screen.print(f"wrote {path}", soft_wrap=True)


def check(play: PlayOptions) -> list[Path]:
    """The figure as a list, when it and the CSV file can be written: before work that would be lost."""
    from tensortide.reports.render.figure import check_figure

    if play.csv is not None:
        check_writable(play.csv)
    return [] if play.figure is None else [check_figure(play.figure)]
