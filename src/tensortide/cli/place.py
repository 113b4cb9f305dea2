"""``tensortide place``: the device of a cluster on which each layer, or op of a captured step, runs.

``place TARGET --machine CLUSTER.json``: a search, for a network of layers or a captured step (``place_step``).
``place score``: the time of given placements. ``place compare``, ``validate`` and ``run`` (``place_studies``):
algorithms, measurements, configuration files. ``place links`` (``place_links``): speeds of this machine's links."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from tensortide.cli.draw import check_picture, write_picture
from tensortide.cli.place_links import links
from tensortide.cli.place_options import BUDGET, MachineOptions, NetFile, PlacedTarget, SearchOptions
from tensortide.cli.place_run import ResultOptions
from tensortide.cli.place_step import StepOptions, is_net, place_step, refuse_step_options
from tensortide.cli.place_studies import compare, run, validate
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, option, progress
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import OutputError
from tensortide.write import check_writable, write_file

place = App(
    name="place",
    help="Place the layers of a network, or the ops of a captured step, on the devices of a cluster: search, compare, "
    "validate.",
    help_format="plaintext",
)


@place.default
def search(
    target: PlacedTarget,
    /,
    *,
    machine: MachineOptions = MachineOptions(),  # noqa: B008
    by: SearchOptions = SearchOptions(),  # noqa: B008
    step: StepOptions = StepOptions(),  # noqa: B008
    then: ResultOptions = ResultOptions(),  # noqa: B008
    written: Annotated[
        Path | None,
        option("--out", "Write the placement: a JSON file from layer to device; of a captured step its Plan."),
    ] = None,
    draw: Annotated[
        Path | None,
        option("--draw", "Draw the placement over the layers, or units: boxes in the colour of their device (.svg)."),
    ] = None,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Search for the placement with the fastest step that fits the memory of every device.

    The target is a network of layers, or a captured step. Exits with 1 if no placement was found that fits; Ctrl-C
    ends the search and shows the best so far.
    """
    from tensortide.placements import write_assignment
    from tensortide.reports.drawing import check_count, net_picture
    from tensortide.reports.sections.placement import document
    from tensortide.studies.placement.placed_net import place_by

    files.check()
    if draw is not None:
        check_picture(draw)
    if not is_net(target):
        place_step(target, machine, by, step, then, written, draw, files, out)
        return
    refuse_step_options(target, step, then)
    paths = [] if written is None else [check_writable(written)]
    by.check_resume()
    request = machine.request(Path(target))
    if draw is not None:
        check_count(len(request.net.order))
    with by.carried_out(out.quiet) as found:
        placed = place_by(request, by.kind, lambda problem: found(problem, BUDGET))
    if written is not None:
        write_assignment(written, request.net, placed.placement, request.cluster)
    if draw is not None:
        paths.append(write_picture(draw, net_picture(placed.run)))
    made = document(placed)
    show(made, out, wrote=[*paths, *by.wrote(placed.found), *files.write(made, table="runs")])
    by.check_saved(placed.found)
    if not placed.run.fits:
        raise SystemExit(1)


@place.command
def algorithms(*, out: OutputOptions = OutputOptions()) -> None:  # noqa: B008
    """List the algorithms and their options."""
    from tensortide.reports.sections.placement_algorithms import document

    show(document(), out)


@place.command
def examples(
    *,
    folder: Annotated[Path, option("--out", "Folder to write them into.")] = Path(),
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Write files to try place on: resnet50.json and server.json, cluster.json for captured steps, config.json.

    A file that exists is not replaced: that is an error.
    """
    from tensortide.reports.sections.placement_examples import document
    from tensortide.studies.placement.examples import examples as examples_of

    files = {folder / one.name: one for one in examples_of()}
    for path in files:
        if path.exists():
            raise OutputError(f"{path} exists: give another folder with --out.")
    wrote = [write_file(path, one.text, folders=True) for path, one in files.items()]
    show(document([*files.values()]), out, wrote=wrote)


@place.command
def score(
    net: NetFile,
    placements: Annotated[
        tuple[Path, ...], Parameter(help="Placements: JSON files from layer to device, or folders of them.")
    ],
    /,
    *,
    machine: MachineOptions = MachineOptions(),  # noqa: B008
    order: Annotated[Literal["name", "time"], Parameter(help="Order of the rows.")] = "time",
    converted: Annotated[
        Path | None, option("--out", "Folder to which each is written as a JSON file from layer to device.")
    ] = None,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Score given placements: their time, and whether they fit the memory.

    Exits with 1 if none fits.
    """
    from tensortide.reports.sections.placement_scores import document
    from tensortide.studies.placement.scores import score_all, write_all

    files.check()
    request = machine.request(net)
    with progress(out.quiet) as say:
        scores = score_all(request, placements, workers.where, say)
    made = document(request, scores, by_time=order == "time")
    wrote = [] if converted is None else write_all(scores, converted)
    show(made, out, wrote=[*wrote, *files.write(made, table="scores")])
    if not any(one.run.fits for one in scores):
        raise SystemExit(1)


for each in (compare, validate, run, links):
    place.command(each)
