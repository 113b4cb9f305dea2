"""``tensortide place``: the device of a cluster on which each layer, or op of a captured step, runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tensortide.cli.console import progress
from tensortide.cli.interrupt import end_requests, postponed
from tensortide.cli.search import searching
from tensortide.cli.show import Files, OutputRequest, show
from tensortide.cli.verb import family, verb
from tensortide.errors import ExitStatus, RequestError
from tensortide.placements.partitions.workload import is_workload
from tensortide.reports.drawing.request import picture_file, write_picture
from tensortide.request import Opt, Request
from tensortide.studies.placement import comparison, configured, links, paleo_net, scores, validation
from tensortide.studies.placement import examples as example_files
from tensortide.studies.placement.placed import PlaceRequest, answer

place = family("place")


@dataclass(frozen=True, kw_only=True)
class PictureRequest(Request):
    """A picture of a placement."""

    GROUP = "Output"

    draw: Annotated[
        Path | None,
        Opt(
            "Draw the placement (.svg): layers, or units, as boxes in the colour of their device.",
            read=picture_file,
            writes=True,
            common=True,
            value="FILE",
        ),
    ] = None

    def check(self, count: int) -> None:
        """Raise GraphError if there is to be a picture, and so many layers or units are more than it shows."""
        from tensortide.reports.drawing import check_count

        if self.draw is not None:
            check_count(count)


@place.default
@verb
def search(asked: PlaceRequest, drawing: PictureRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Search for the placement with the fastest step that fits the memory of every device.

    The target is a network of layers, a workload of dnn-partitioning, or a captured step. Exits with 1 if no placement
    fits, as is proved or as all were tried, or if a run is not what the Plan and one process have; with 4 if none was
    found that fits and another one may. Ctrl-C ends the search and shows the best so far.
    """
    from tensortide.reports.drawing import picture_of

    if drawing.draw is not None and is_workload(Path(asked.target)):
        raise RequestError(f"--draw draws networks and steps: {asked.target} is a workload")
    with searching(out.quiet) as watched:
        placed = answer(asked, watched, drawing.check)
    with postponed() as interrupts:
        if placed.runs:
            end_requests()
            placed.run()
    made = placed.document()
    drawn = [] if drawing.draw is None else [write_picture(drawing.draw, picture_of(placed))]
    wrote = files.write(made, table=placed.TABLE, keys=placed.PICTURES)
    show(made, out, wrote=[*placed.wrote, *drawn, *wrote])
    for interrupt in interrupts:
        raise interrupt
    placed.raise_errors()
    return placed.status


@place.command
@verb
def algorithms(out: OutputRequest) -> None:
    """List the algorithms and their options."""
    from tensortide.reports.sections.listings import of_algorithms

    show(of_algorithms(), out)


@place.command
@verb
def examples(asked: example_files.ExamplesRequest, out: OutputRequest) -> None:
    """Write files to try place on: resnet50.json and server.json, cluster.json for captured steps, config.json.

    A file that exists is not replaced: that is an error.
    """
    from tensortide.reports.sections.listings import of_examples

    wrote = example_files.answer(asked)
    show(of_examples([*wrote.values()]), out, wrote=[*wrote])


@place.command
@verb
def paleo(asked: paleo_net.PaleoRequest, files: Files, out: OutputRequest) -> None:
    """Predict a network as Paleo does: its layers, their times on one device, data-parallel steps on many.

    A network whose layers are split over workers is predicted as a hybrid of both.
    """
    from tensortide.reports.sections.paleo import document

    made = document(paleo_net.answer(asked))
    show(made, out, wrote=files.write(made, table="layers"))


@place.command
@verb
def score(asked: scores.ScoreRequest, files: Files, out: OutputRequest) -> ExitStatus:
    """Score given placements: their time, and whether they fit the memory.

    Exits with 1 if none fits.
    """
    from tensortide.reports.sections import placement

    with progress(out.quiet) as say:
        subject, found = scores.answer(asked, say)
    made = placement.scores(subject, found, by_time=asked.order == "time")
    wrote = [] if asked.out is None else scores.write_all(subject, found, asked.out)
    show(made, out, wrote=[*wrote, *files.write(made, table="scores")])
    return ExitStatus.HOLDS if any(one.run.fits for one in found) else ExitStatus.FAILS


@place.command
@verb
def compare(asked: comparison.PlaceCompareRequest, files: Files, out: OutputRequest) -> None:
    """Compare algorithms on problems over several seeds, at an equal budget."""
    from tensortide.reports.sections.placement_comparison import document

    with progress(out.quiet) as say:
        made = document(comparison.answer(asked, say))
    show(made, out, wrote=files.write(made, table="algorithms"))


@place.command
@verb
def validate(asked: validation.ValidateRequest, files: Files, out: OutputRequest) -> None:
    """Compare predicted with measured times of placements: correlations, the line of best fit, the worst cases."""
    from tensortide.reports.sections.placement_comparison import validation_document

    made = validation_document(f"{asked.net.stem}: predictions against measurements", validation.answer(asked))
    show(made, out, wrote=files.write(made, table="placements"))


@place.command
@verb
def run(asked: configured.ConfiguredRequest, out: OutputRequest) -> None:
    """Run a configuration file of Exprimo, and write its artefacts into one folder.

    The same command goes on where it was interrupted. With --by the search goes on with measured times.
    """
    from tensortide.reports.artefacts import write_artefacts
    from tensortide.reports.sections.placement import of_configured

    with searching(out.quiet) as watched:
        done, folder = configured.answer(asked, watched)
        watched.say("drawing")
        wrote = write_artefacts(done, folder)
    show(of_configured(done), out, wrote=_folded(wrote))


def _folded(wrote: Sequence[Path]) -> list[Path]:
    """Replace files in subfolders of the output folder by the subfolder."""
    top = min((len(path.parts) for path in wrote), default=0)
    return [*dict.fromkeys(Path(*path.parts[:top]) for path in wrote)]


@place.command(name="links")
@verb
def measured_links(asked: links.LinksRequest, files: Files, out: OutputRequest) -> None:
    """Measure the links of this machine over many sizes, and fit latency and bandwidth of each direction.

    Without a GPU memory copies are measured. --out writes them into the file of a cluster.
    """
    from tensortide.reports.sections.measurements import of_links

    with progress(out.quiet) as say:
        found = links.answer(asked, say)
    made = of_links(found.fits, found.device, asked.nominal)
    show(made, out, wrote=[*found.wrote, *files.write(made, table="sweep")])
