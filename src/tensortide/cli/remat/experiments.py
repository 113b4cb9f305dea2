"""Experiments: ``tensortide remat sweep``, ``ablation``, ``banishing``, ``accesses`` and ``growth``; ``figures`` makes
all of them, drawn and written into one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tensortide.cli.console import progress
from tensortide.cli.show import Files, OutputRequest, show, tell
from tensortide.cli.verb import verb
from tensortide.errors import OutputError
from tensortide.request import Opt, Request
from tensortide.studies.remat.linear import residencies
from tensortide.studies.remat.request import (
    AblationRequest,
    AccessesRequest,
    BanishingRequest,
    ExperimentRequest,
    FiguresRequest,
    RematGrowthRequest,
    RematSweepRequest,
    answer,
    answer_figures,
    answer_growth,
)
from tensortide.write import write_file

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document
    from tensortide.studies.remat.results import Study


@verb
def sweep(asked: RematSweepRequest, files: Files, out: OutputRequest) -> None:
    """Play a step under a range of memory budgets by several policies: what recomputation costs, and where it ends."""
    _conduct(asked, files, out)


@verb
def ablation(asked: AblationRequest, files: Files, out: OutputRequest) -> None:
    """Compare the sixteen policies that weigh work (in four ways), size and staleness, or leave them out."""
    _conduct(asked, files, out)


@verb
def banishing(asked: BanishingRequest, files: Files, out: OutputRequest) -> None:
    """Compare the ways to handle a released tensor: free it for good, evict it, or ignore the release."""
    _conduct(asked, files, out)


@verb
def accesses(asked: AccessesRequest, files: Files, out: OutputRequest) -> None:
    """Count the storages that policies look at to choose what to evict: every candidate, and with bounds."""
    _conduct(asked, files, out)


def _conduct(asked: ExperimentRequest, files: Files, out: OutputRequest) -> None:
    from tensortide.reports.sections.assumed import assuming
    from tensortide.reports.sections.experiments import document

    with progress(out.quiet) as say:
        study, graphs = answer(asked, say)
    made = assuming(document(study), *graphs)
    show(made, out, wrote=files.write(made, table="runs"))


@dataclass(frozen=True, kw_only=True)
class MapRequest(Request):
    """A picture of tensors over time."""

    GROUP = "Output"

    heatmap: Annotated[
        Path | None,
        Opt("Draw which tensor is resident when, for one length (.png, .svg, .pdf).", writes=True, common=True),
    ] = None

    def check_files(self) -> None:
        """Raise OutputError if it cannot be drawn."""
        from tensortide.reports.render.figure import check_figure

        if self.heatmap is not None:
            check_figure(self.heatmap)


@verb
def growth(asked: RematGrowthRequest, drawn: MapRequest, files: Files, out: OutputRequest) -> None:
    """Count the recomputed ops in linear networks of growing length, against what Chen et al. and Griewank need.

    --heatmap draws the first policy, on the longest network of at most 128 layers.
    """
    from tensortide.reports.sections.experiments import document

    with progress(out.quiet) as say:
        found = answer_growth(asked, say)
    made = document(found)
    wrote = files.write(made, table="runs")
    if drawn.heatmap is not None:
        wrote.append(_draw_map(found, drawn.heatmap))
    show(made, out, wrote=wrote)


@verb
def figures(asked: FiguresRequest, out: OutputRequest) -> None:
    """Make all experiments on some steps, and write figures, CSV and JSON files of them into one folder.

    Finished runs are kept in runs.jsonl there: the same command goes on where it was interrupted.
    """
    from tensortide.reports.sections.experiments import document

    folder, formats = asked.folder, tuple(dict.fromkeys(asked.formats))
    _prepare(folder, formats)
    with progress(out.quiet) as say:
        studies = answer_figures(asked, say)
        say("drawing")
        wrote = sorted(_written(folder, formats, {study.kind: document(study) for study in studies}))
        wrote += [_draw_map(studies[-1], folder / f"residency.{suffix}") for suffix in formats]
    tell({"files": list(map(str, wrote))}, (f"wrote {path}" for path in wrote), out)


def _prepare(folder: Path, formats: Sequence[str]) -> None:
    """Make ``folder``, and check that figures can be written there."""
    from tensortide.reports.render.figure import check_figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror}.") from error
    for suffix in formats:
        check_figure(folder / f"sweep.{suffix}")


def _written(folder: Path, formats: Sequence[str], found: dict[str, Document]) -> Iterator[Path]:
    """Write each document as CSV, JSON and figures."""
    from tensortide.reports.render.json import render_json

    for name, document in found.items():
        yield write_file(folder / f"{name}.json", render_json(document))
        yield from Files(csv=(str(folder / f"{name}.csv"),)).write(document, table="runs")
        for suffix in formats:
            yield from Files(figure=folder / f"{name}.{suffix}").write(document, table="runs")


def _draw_map(growth: Study, path: Path) -> Path:
    """Draw which tensor is resident when, a panel for each budget of ``growth``."""
    from tensortide.reports.render.figure import render_figure
    from tensortide.reports.sections.experiments import residency_document

    return render_figure(residency_document(residencies(growth)), path)
