"""``tensortide metrics``: named figures of one step, kept in a file, and the layer table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tensortide.cli.show import Files, show
from tensortide.cli.source import CaptureOptions, OutputOptions, Strict, Target, opened, option, require_certain
from tensortide.errors import UnknownCost
from tensortide.importers.door import resolve
from tensortide.metrics.status import SUFFIX
from tensortide.write import check_writable

if TYPE_CHECKING:
    from tensortide.importers.imported import Imported
    from tensortide.metrics import Profiler


def metrics(
    target: Target,
    /,
    *,
    layers: Annotated[
        Literal["op", "module"] | None,
        option("--layers", "Add the layer table: a row for each op, or for each module without those inside it."),
    ] = None,
    compat: Annotated[
        Literal["deeplite"] | None,
        option("--compat", "Add the figures of deeplite-profiler, and why they differ: of an inference forward."),
    ] = None,
    long: Annotated[bool, option("--long", "Say what each metric is.")] = False,
    exclude: Annotated[tuple[str, ...], option("--exclude", "Leave a metric out. Repeatable.")] = (),
    output: Annotated[
        Path | None,
        Parameter(name=["--output", "-o"], negative=(), help=f"Write them to a file (NAME{SUFFIX}), for compare."),
    ] = None,
    options: CaptureOptions = CaptureOptions(),  # noqa: B008
    strict: Strict = False,
    files: Files = Files(),  # noqa: B008
    out: OutputOptions = OutputOptions(),  # noqa: B008
) -> None:
    """Compute every metric of a step: costs, sizes, memory, and times where they are known or --machine is given.

    What a step does not have is listed with the reason. A saved status (NAME.status.json) is shown. In Python,
    tensortide.Profiler computes metrics of a model too.
    """
    from tensortide.metrics import load_status
    from tensortide.metrics.compat.figures import figures, samples
    from tensortide.reports.sections import Step
    from tensortide.reports.sections.deeplite import of_figures
    from tensortide.reports.sections.layers import of_layers
    from tensortide.reports.sections.metrics import of_status

    files.check()
    if output is not None:
        check_writable(output)
    if target.endswith(SUFFIX) and Path(target).exists():
        made = of_status(load_status(target), exclude=exclude, long=long).document(target)
        show(made, out, wrote=files.write(made, table="values"))
        return
    step = opened(resolve(target), options, quiet=out.quiet)
    profiler = _profiled(step, exclude, options.machine, strict=strict)
    sections = [of_status(profiler.status, exclude=exclude, long=long)]
    if layers is not None:
        sections.append(of_layers(profiler.layers(layers)))
    if compat is not None:
        sections.append(of_figures(figures(step.graph, batch=samples(step.graph))))
    made = Step(profiler.subject.captured().graph, step.durations).document(*sections)
    saved = [] if output is None else [profiler.save(output)]
    wrote = files.write(made, table="layers" if layers else "values")
    show(made, out, wrote=[*wrote, *saved])


def _profiled(step: Imported, exclude: Sequence[str], machine: str | None, *, strict: bool) -> Profiler:
    """Compute every metric of a step. Raises MetricError for a name in ``exclude`` that there is not, and what
    ``strict`` asks for."""
    from tensortide.metrics import Profiler
    from tensortide.metrics.subject import StepSubject
    from tensortide.recorder import resolver

    if strict:
        require_certain(step.graph)
    profiler = Profiler(StepSubject(step.graph, times=step.durations, resolver=resolver))
    for name in exclude:
        profiler.registry[name]
    given: dict[str, Any] = {"machine": machine} if machine else {}
    profiler.compute_all(**given)
    if strict and profiler["unknown_ops"]:
        raise UnknownCost(f"--strict: {profiler['unknown_ops']} ops have no cost rule: tensortide count --missing")
    return profiler
