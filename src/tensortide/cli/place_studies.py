"""``tensortide place compare``, ``validate`` and ``run``: algorithms against each other, predictions against
measurements, configuration files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter, validators

from tensortide.cli.place_options import BUDGET, MachineOptions, NetFile
from tensortide.cli.place_step import AUTO, StepOptions, captured, is_net, refuse_step_options, step_cluster
from tensortide.cli.search import searching
from tensortide.cli.show import Files, show
from tensortide.cli.source import OutputOptions, option, progress
from tensortide.cli.workers import WorkerOptions
from tensortide.errors import PlacementError
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.studies.placement.comparison import Contender, Request, Task
    from tensortide.studies.placement.measured import Measure

Seeds = Annotated[int, Parameter(help="Seeds of each algorithm, from 0 on.", validator=validators.Number(gte=1))]
Function = Annotated[
    str | None,
    option(
        "--by",
        "Function that measures a placement, FILE.py:NAME: it takes a dict from layer to device, and returns the time "
        "of a batch in ms, or None where memory does not suffice.",
    ),
]


def compare(
    problems: Annotated[
        tuple[str, ...],
        Parameter(help="Networks or captured steps, on --machine; or configuration files, which name their own."),
    ],
    /,
    *,
    algorithms: Annotated[
        str | None,
        option(
            "--algorithms",
            "Algorithms, separated by commas (default: those of configurations, else all but cp and exhaustive).",
        ),
    ] = None,
    grid: Annotated[
        tuple[str, ...], option("--grid", "An option of the algorithms with values to compare: population=20,50.")
    ] = (),
    seeds: Seeds = 5,
    budget: Annotated[
        int | None,
        Parameter(
            help="Placements that each tries (default: 20,000; of a captured step 2,000).",
            validator=validators.Number(gte=1),
            show_default=False,
        ),
    ] = None,
    save: Annotated[
        Path | None, option("--save", "File of finished searches: those in it are not repeated, new ones are added.")
    ] = None,
    workers: WorkerOptions = WorkerOptions(),  # noqa: B008
    machine: MachineOptions = MachineOptions(),  # noqa: B008
    step: StepOptions = StepOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare algorithms on problems over several seeds, at an equal budget."""
    from tensortide.reports.sections.placement_comparison import document
    from tensortide.studies.placement.comparison import compare as carry_out

    files.check()
    if save is not None:
        check_writable(save)
    named = [_problem(target, machine, step, quiet=out.quiet) for target in problems]
    tasks = [*_tasks(named, algorithms, grid, budget, seeds)]
    with progress(out.quiet) as say:
        lines = carry_out(
            tasks, workers.where, saved=save, watch=lambda done, total: say(f"{done} of {total} searches")
        )
    made = document(lines)
    show(made, out, wrote=files.write(made, table="algorithms"))


def _tasks(
    problems: Sequence[tuple[str, Request, Contender | None]],
    algorithms: str | None,
    grid: Sequence[str],
    budget: int | None,
    seeds: int,
) -> Iterator[Task]:
    """The searches of every problem, algorithm and seed."""
    from tensortide.placements.graphs.placed_step import EVALUATIONS
    from tensortide.placements.search import COMPARED
    from tensortide.studies.placement.comparison import StepRequest, Task, contenders

    names = algorithms.split(",") if algorithms else COMPARED
    for name, request, own in problems:
        found = (own,) if own and not algorithms else contenders(names, grid)
        most = budget or (EVALUATIONS if isinstance(request, StepRequest) else BUDGET)
        for each in found:
            yield from (Task(name, request, each, most, seed) for seed in range(seeds))


def _problem(
    target: str, machine: MachineOptions, step: StepOptions, *, quiet: bool
) -> tuple[str, Request, Contender | None]:
    """The problem that ``target`` means, and the algorithm where it is a configuration."""
    from tensortide.placements.json_file import read_json
    from tensortide.studies.placement.comparison import Contender, StepRequest
    from tensortide.studies.placement.config import read_config
    from tensortide.studies.placement.configured import request_of

    if not is_net(target):
        if AUTO in step.shard:
            raise PlacementError("--shard auto searches itself: give place compare the modules, as in h.*.mlp=output:2")
        cluster = step_cluster(target, machine)
        graph = captured(target, step.options, cluster, quiet=quiet)
        name = f"{graph.meta.workload or target} on {cluster.name}"
        return name, StepRequest(graph, cluster, step.place_options(machine)), None
    refuse_step_options(target, step)
    path = Path(target)
    if "optimizer" not in read_json(path, dict[str, msgspec.Raw], "a network or a configuration"):
        request = machine.request(path)
        batch = request.net.batch(request.settings.batch_size)
        return f"{path.stem} on {request.cluster.name}, batch {batch:,}", request, None
    config = read_config(path)
    request, search = request_of(config), config.arguments.search()
    settings = request.settings
    several = f", {settings.batches} batches" if settings.batches > 1 else ""
    rates = f"p {settings.comp_penalization:g}, q {settings.comm_penalization:g}"
    return f"{config.net.stem} on {request.cluster.name}{several}, {rates}", request, Contender(search.name, search)


def validate(
    net: NetFile,
    placements: Annotated[
        tuple[Path, ...], Parameter(help="Placements: JSON files from layer to device, or folders of them.")
    ],
    /,
    *,
    times: Annotated[
        Path | None,
        option("--times", "Measured times: a JSON file from the name of a placement to ms, null: out of memory."),
    ] = None,
    by: Function = None,
    machine: MachineOptions = MachineOptions(),  # noqa: B008
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compare predicted with measured times of placements: correlations, the line of best fit, the worst cases."""
    from tensortide.placements.json_file import read_json
    from tensortide.reports.sections.placement_comparison import validation_document
    from tensortide.studies.placement.measured import validated
    from tensortide.studies.placement.scores import score_all

    files.check()
    if (times is None) is (by is None):
        raise PlacementError("measured times come from a file or from a function: give either --times or --by.")
    scores = score_all(machine.request(net), placements)
    if times is not None:
        known = read_json(times, dict[str, float | None], "measured times by name of placement")
        missing = [one.path.name for one in scores if one.path.name not in known]
        if missing:
            raise PlacementError(f"{times} has no time of {', '.join(missing[:3])}.")
        named = [(one.path.name, one.run.makespan, known[one.path.name]) for one in scores]
    else:
        measure = _function(by or "")
        orders = [dict(zip(one.run.net.order, one.run.placement, strict=True)) for one in scores]
        named = [(s.path.name, s.run.makespan, measure(order)) for s, order in zip(scores, orders, strict=True)]
    made = validation_document(f"{net.stem}: predictions against measurements", validated(named))
    show(made, out, wrote=files.write(made, table="placements"))


def _folded(wrote: Sequence[Path]) -> list[Path]:
    """Replace files in subfolders of the output folder by the subfolder."""
    top = min((len(path.parts) for path in wrote), default=0)
    return [*dict.fromkeys(Path(*path.parts[:top]) for path in wrote)]


def _function(text: str) -> Measure:
    from tensortide.python_object import load_object

    found = load_object(text)
    if not callable(found):
        raise PlacementError(f"{text} is no function.")
    measure: Measure = found
    return measure


def run(
    config: Annotated[Path, Parameter(help="Configuration: net_path, device_graph_path, optimizer, optimizer_args.")],
    /,
    *,
    folder: Annotated[
        Path | None, option("--out", "Folder of what is written (default: log_dir of the configuration).")
    ] = None,
    budget: Annotated[
        int | None,
        option("--budget", "Placements that are tried, at most."),
        Parameter(validator=validators.Number(gte=1)),
    ] = None,
    seed: Annotated[int, Parameter(help="Seed of random choices.", validator=validators.Number(gte=0))] = 0,
    accurate: Annotated[
        bool, option("--accurate", "Corrected times and memory instead of those of the published model.")
    ] = False,
    by: Function = None,
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Run a configuration file of Exprimo, and write its artefacts into one folder.

    The same command goes on where it was interrupted. With --by the search goes on with measured times.
    """
    from tensortide.placements.search import Budget
    from tensortide.reports.placement_artefacts import document, write_artefacts
    from tensortide.studies.placement.config import read_config
    from tensortide.studies.placement.configured import UNLIMITED, run_config
    from tensortide.studies.placement.placed_net import Execution

    read = read_config(config)
    to = folder or read.folder
    if to is None:
        raise PlacementError(f"{config} names no log_dir: say with --out where to write.")
    check_writable(to / "manifest.json", folders=True)
    with searching(out.quiet) as search:
        execution = Execution(
            watch=lambda at: search.known(f"{at.proposals:,} placements, best {at.score_ms:.4g} ms"),
            stop=search.stopped,
            checkpoint=to / "search.state",
        )
        measure = _function(by) if by else None
        done = run_config(
            read,
            budget=Budget(budget or UNLIMITED),
            seed=seed,
            compat=not accurate,
            execution=execution,
            measure=measure,
        )
        search.say("drawing")
        wrote = write_artefacts(done, to)
    show(document(done), out, wrote=_folded(wrote))
