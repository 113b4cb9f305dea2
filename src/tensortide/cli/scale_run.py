"""``tensortide scale --run``: the fastest configuration, run in processes of this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from tensortide.cli.rank_run import refuse_predicted, workload_of
from tensortide.cli.scale_options import DegreeOptions, StrategyOptions
from tensortide.cli.source import CaptureOptions, settings_of
from tensortide.errors import WorkloadError
from tensortide.parallelism.pipelines import SCHEDULES

if TYPE_CHECKING:
    from tensortide.reports.blocks import Document
    from tensortide.studies.scale import Scale


def runnable(
    target: str, ranks: int, batch: int | None, degrees: DegreeOptions, strategy: StrategyOptions
) -> DegreeOptions:
    """The degrees of a search whose result can run: replicas and stages. Raises WorkloadError for what cannot, and
    RunError for too many ``ranks``."""
    from tensortide.run.placed.processes import check_ranks

    workload_of(target)
    check_ranks(ranks)
    if batch is not None:
        raise WorkloadError("--run takes the batch of the target: leave --batch out, and --set it")
    given = {
        "--tensor": degrees.tensor not in (None, 1),
        "--kv-group": degrees.kv_group not in (None, 0),
        "--context": degrees.context != 1,
        "--expert": degrees.expert != 1,
        "--zero": bool(strategy.zero),
        "--recompute": strategy.recompute not in (None, "none"),
        f"--schedule {strategy.schedule}": SCHEDULES[strategy.schedule].has_chunks,
    }
    refuse_predicted(given, "--run goes with --data, --pipeline, --micro-batch")
    if degrees.data and degrees.pipeline and degrees.data * degrees.pipeline != ranks:
        raise WorkloadError(
            f"--run divides by --data and --pipeline alone: {degrees.data} x {degrees.pipeline} are "
            f"{degrees.data * degrees.pipeline} ranks, and --devices asks for {ranks}"
        )
    return replace(degrees, tensor=1)


def with_run(made: Document, found: Scale, target: str, options: CaptureOptions, steps: int) -> tuple[Document, bool]:
    """``made`` with a run of the best configuration, and whether the run agrees with one process and its Graphs. Raises
    RunError with the message of the rank that failed."""
    from tensortide.parallelism import Degrees
    from tensortide.reports.sections.scale_run import section
    from tensortide.run.placed.divided import DividedWorkload, run_divided

    assert found.best is not None
    one, settings = found.best.configuration, settings_of(workload_of(target), options)
    degrees = Degrees(data=one.data, pipeline=one.pipeline, micro_batches=one.micro_batches)
    measured = run_divided(DividedWorkload(target, settings, degrees, one.schedule, steps))
    return structs.replace(made, sections=(*made.sections, section(found, measured))), measured.verified
