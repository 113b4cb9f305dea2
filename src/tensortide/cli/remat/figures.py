"""``tensortide remat figures``: every experiment on some steps, drawn and written into one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from cyclopts import Parameter

from tensortide.cli.durations import TimeOptions
from tensortide.cli.remat.asymptotics import POLICIES as GROWTH_POLICIES
from tensortide.cli.remat.asymptotics import RULE_LIST, SIZES, draw_heatmap, lengths_of
from tensortide.cli.remat.grid import (
    POLICY_LIST,
    GridOptions,
    PlayOptions,
    Policies,
    StepRules,
    Targets,
    conducted,
    subjects_of,
    tell,
    words,
)
from tensortide.cli.source import CaptureOptions, OutputOptions, console, print_json, progress
from tensortide.errors import OutputError
from tensortide.studies.remat import Experiment, Growth, ablation, accesses, asymptotics, banishing, contest
from tensortide.studies.remat import budgets as parse_budgets
from tensortide.write import write_file

Format: TypeAlias = Literal["pdf", "svg", "png"]
RUNS = "runs.jsonl"


def figures(
    targets: Targets,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--out", help="Folder to write to; it is made if it is not there.")],
    formats: Annotated[
        tuple[Format, ...], Parameter(name="--format", negative=(), help="What figures are written as. Repeatable.")
    ] = ("pdf", "png"),
    grid: GridOptions = GridOptions(),  # noqa: B008
    policies: Policies = POLICY_LIST,
    sizes: Annotated[str, Parameter(help="Numbers of layers of the linear networks.")] = SIZES,
    jobs: Annotated[int | None, Parameter(show_default=False, help="Runs at a time (default: one per core).")] = None,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    times: TimeOptions = TimeOptions(),  # noqa: B008
    rules: StepRules = StepRules(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Make all experiments on some steps, and write figures, CSV and JSON files of them into one folder.

    Finished runs are kept in runs.jsonl there: the same command goes on where it was interrupted.
    """
    wanted, contestants, lengths = parse_budgets(grid.budgets), contest(words(policies)), lengths_of(sizes)
    _prepare(folder, formats)
    play = PlayOptions(save=folder / RUNS, jobs=jobs)
    subjects = subjects_of(targets, options, times, rules, quiet=out.quiet)
    designs = {"sweep": contestants, "ablation": ablation(), "banishing": banishing(), "accesses": accesses()}
    found = {
        kind: conducted(kind, subjects, lines, wanted, grid.limit, play, quiet=out.quiet)
        for kind, lines in designs.items()
    }
    with play.saved() as saved, progress(out.quiet) as say:
        growth = asymptotics(
            lengths,
            words(RULE_LIST),
            words(GROWTH_POLICIES),
            compat=rules.compat,
            saved=saved,
            workers=jobs,
            progress=say,
        )
    with progress(out.quiet) as say:
        say("drawing")
        files = [*_sheets(folder, {**found, "asymptotics": growth}), *_drawn(folder, formats, found, growth)]
    if out.json:
        print_json({**found, "asymptotics": growth, "files": [str(path) for path in files]})
    elif not out.quiet:
        tell(files, console())


def _prepare(folder: Path, formats: Sequence[Format]) -> None:
    """Make ``folder``, and see whether figures can be written there."""
    from tensortide.reports.render.figure import check_figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror}.") from error
    for suffix in formats:
        check_figure(folder / f"sweep.{suffix}")


def _sheets(folder: Path, results: dict[str, Experiment | Growth]) -> list[Path]:
    from tensortide.reports.remat.sheets import sheet

    files = []
    for name, result in results.items():
        files.append(write_file(folder / f"{name}.csv", sheet(result)))
        files.append(write_file(folder / f"{name}.json", msgspec.json.format(msgspec.json.encode(result)) + b"\n"))
    return files


def _drawn(folder: Path, formats: Sequence[Format], found: dict[str, Experiment], growth: Growth) -> list[Path]:
    from tensortide.reports.remat.accesses import accesses_figure
    from tensortide.reports.remat.growth import growth_figure
    from tensortide.reports.remat.pareto import ablation_figures, ablation_paths, pareto_figure

    files = []
    for suffix in dict.fromkeys(formats):
        paths = {
            name: folder / f"{name}.{suffix}"
            for name in ("sweep", "ablation", "banishing", "accesses", "asymptotics", "residency")
        }
        pareto_figure(found["sweep"], paths["sweep"])
        ablation_figures(found["ablation"], paths["ablation"])
        pareto_figure(found["banishing"], paths["banishing"])
        accesses_figure(found["accesses"], paths["accesses"])
        growth_figure(growth, paths["asymptotics"])
        draw_heatmap(growth, paths["residency"])
        files += [*ablation_paths(paths.pop("ablation")), *paths.values()]
    return sorted(files)
