"""``tensortide scale --run``: the fastest configuration, run in processes of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from tensortide.cli.scale_options import DegreeOptions, StrategyOptions
from tensortide.cli.source import CaptureOptions
from tensortide.errors import WorkloadError
from tensortide.importers.door import resolve
from tensortide.recorder.target import Workload, parse_settings

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document
    from tensortide.studies.scale import Scale


def runnable(target: str, batch: int | None, degrees: DegreeOptions, strategy: StrategyOptions) -> DegreeOptions:
    """The degrees of a search whose result can run: replicas and stages. Raises WorkloadError for what cannot."""
    if not target or not isinstance(resolve(target), Workload):
        raise WorkloadError("--run takes a workload: a built-in example, file.py:function or package.module:function")
    if batch is not None:
        raise WorkloadError("--run takes the batch of the target: leave --batch out, and --set it")
    given = {
        "--tensor": degrees.tensor not in (None, 1),
        "--context": degrees.context != 1,
        "--expert": degrees.expert != 1,
        "--zero": bool(strategy.zero),
        "--recompute": strategy.recompute not in (None, "none"),
        "--schedule interleaved": strategy.schedule == "interleaved",
    }
    for name in (name for name, asked in given.items() if asked):
        raise WorkloadError(f"{name} is predicted and does not run: --run goes with --data, --pipeline, --micro-batch")
    return replace(degrees, tensor=1)


def with_run(made: Document, found: Scale, target: str, options: CaptureOptions, steps: int) -> Document:
    """``made`` with what the best configuration does here. Raises RunError with the message of the rank that failed."""
    from tensortide.parallelism import Degrees
    from tensortide.reports.sections.scale_run import section
    from tensortide.run.placed.divided import Divided, run_divided

    assert found.best is not None
    one, known = found.best.configuration, resolve(target)
    assert isinstance(known, Workload)
    settings = parse_settings(options.set, known.function, known.name)
    degrees = Degrees(data=one.data, pipeline=one.pipeline, micro_batches=one.micro_batches)
    measured = run_divided(Divided(target, settings, degrees, one.schedule, steps))
    return structs.replace(made, sections=(*made.sections, section(found, measured)))
