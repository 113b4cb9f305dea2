"""``tensortide experiment``: trials of a file run, each in a process of its own; two folders of results compared."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import family, verb
from tensortide.errors import ExitStatus, MissingExtra
from tensortide.studies.experiment.request import CompareTrialsRequest, TrialsRequest, answer, answer_compare
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document
    from tensortide.studies.experiment.runner import Conducted

LOG = logging.getLogger("tensortide")
PAGE = "experiment.html"
experiment_verbs = family("experiment")


@experiment_verbs.default
@verb
def experiment(asked: TrialsRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Run the trials of a file: workloads, settings, budgets, policies and rivals, simulated or measured live.

    Trials that have a result in the folder are not repeated: the same command goes on where it was interrupted.
    Exits with 2 or 3 if a trial fails, else with 1 if a budget is too small for one.
    """
    from tensortide.reports.sections.trials import document

    with progress(out.quiet) as say:
        found = answer(asked, say, write_page)
    made = document(found)
    wrote = [] if asked.dry_run else [*write_results(found, made)]
    show(made, out, wrote=[*wrote, *files.write(made, table="trials")])
    return ExitStatus.HOLDS if asked.dry_run else found.status


@experiment_verbs.command
@verb
def compare(asked: CompareTrialsRequest, files: Files, out: OutputRequest) -> None:
    """Compare the trials that two folders of results both have: times with intervals, and peaks."""
    found = answer_compare(asked).document()
    show(found, out, wrote=files.write(found, table="pairs"))


def write_page(found: Conducted) -> None:
    """Write the page of an experiment, which may still be running, into its folder."""
    found.page().save(found.folder / PAGE)


def write_results(found: Conducted, made: Document) -> Iterator[Path]:
    """Write the page and the tables of an experiment into its folder."""
    from tensortide.parquet import parquet
    from tensortide.reports.render.csv import columns_of, render_csv, table_named

    yield made.page().save(found.folder / PAGE)
    yield write_file(found.folder / "results.csv", render_csv(made, "repetitions"))
    yield write_file(found.folder / "summary.csv", render_csv(made, "trials.trials"))
    try:
        yield write_file(found.folder / "results.parquet", parquet(columns_of(table_named(made, "repetitions"))))
    except MissingExtra as error:
        LOG.info("results.parquet is left out: %s", error)
