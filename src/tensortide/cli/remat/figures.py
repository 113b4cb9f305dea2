"""``tensortide remat figures``: every experiment on some steps, drawn and written into one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from tensortide.cli.remat.experiments import (
    GROWTH_POLICIES,
    POLICY_LIST,
    RULE_LIST,
    SIZES,
    PlayOptions,
    Policies,
    StepOptions,
    Targets,
    draw_heatmap,
    lengths_of,
    words,
)
from tensortide.cli.remat.target import StepRules
from tensortide.cli.show import Files, tell
from tensortide.cli.source import OutputOptions, progress
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import OutputError
from tensortide.studies.remat.budgets import budgets as parse_budgets
from tensortide.studies.remat.designs import ablation, accesses, banishing, conduct, contest
from tensortide.studies.remat.linear import asymptotics
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document

Format: TypeAlias = Literal["pdf", "svg", "png"]
RUNS = "runs.jsonl"


def figures(
    targets: Targets,
    /,
    *,
    folder: Annotated[Path, Parameter(name="--out", help="Folder to write to; created if missing.")],
    formats: Annotated[
        tuple[Format, ...], Parameter(name="--format", negative=(), help="Figure format. Repeatable.")
    ] = ("pdf", "png"),
    policies: Policies = POLICY_LIST,
    sizes: Annotated[str, Parameter(help="Numbers of layers of the linear networks.")] = SIZES,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    steps: StepOptions = StepOptions(),  # noqa: B008
    rules: StepRules = StepRules(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Make all experiments on some steps, and write figures, CSV and JSON files of them into one folder.

    Finished runs are kept in runs.jsonl there: the same command goes on where it was interrupted.
    """
    from tensortide.reports.sections.experiments import document

    wanted, contestants, lengths = parse_budgets(steps.budgets), contest(words(policies)), lengths_of(sizes)
    _prepare(folder, formats)
    subjects = steps.subjects(targets, rules, quiet=out.quiet)
    designs = {"sweep": contestants, "ablation": ablation(), "banishing": banishing(), "accesses": accesses()}
    with PlayOptions(save=folder / RUNS, workers=workers, out=out).playing() as play:
        studies = [
            conduct(kind, subjects, lines, wanted, overhead_limit=steps.limit, play=play)
            for kind, lines in designs.items()
        ]
        grown = asymptotics(lengths, words(RULE_LIST), words(GROWTH_POLICIES), compat=rules.compat, play=play)
    found = {study.kind: document(study) for study in (*studies, grown)}
    with progress(out.quiet) as say:
        say("drawing")
        files = sorted(_written(folder, formats, found))
        files += [draw_heatmap(grown, folder / f"residency.{suffix}") for suffix in dict.fromkeys(formats)]
    tell({"files": list(map(str, files))}, (f"wrote {path}" for path in files), out)


def _prepare(folder: Path, formats: Sequence[Format]) -> None:
    """Make ``folder``, and check that figures can be written there."""
    from tensortide.reports.render.figure import check_figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror}.") from error
    for suffix in formats:
        check_figure(folder / f"sweep.{suffix}")


def _written(folder: Path, formats: Sequence[Format], found: dict[str, Document]) -> Iterator[Path]:
    """Write each document as CSV, JSON and figures."""
    from tensortide.reports.render.json import render_json

    for name, document in found.items():
        yield write_file(folder / f"{name}.json", render_json(document))
        yield from Files(csv=(str(folder / f"{name}.csv"),)).write(document, table="runs")
        for suffix in dict.fromkeys(formats):
            yield from Files(figure=folder / f"{name}.{suffix}").write(document, table="runs")
