"""The fastest configuration, run in processes of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tensortide.errors import RequestError
from tensortide.parallelism import Degrees
from tensortide.parallelism.degrees import DEGREES
from tensortide.parallelism.pipelines import SCHEDULES
from tensortide.studies.ranks import refuse_predicted, workload_of
from tensortide.targets.opening import settings_of

if TYPE_CHECKING:
    from tensortide.studies.scale.request import ScaleRequest
    from tensortide.studies.scale.study import Scale


_RUN = ("data", "pipeline")
"""Degrees in which a step runs on this machine."""


def check_runnable(asked: ScaleRequest) -> None:
    """Raise RequestError for a search whose result cannot run, which takes replicas and stages alone, and RunError for
    too many ranks."""
    from tensortide.run.placed.processes import check_ranks

    degrees, strategy, ranks = asked.degrees, asked.strategy, asked.nodes.size
    workload_of(asked.target)
    check_ranks(ranks)
    if asked.batch is not None:
        raise RequestError("--run takes the batch of the target: leave --batch out, and --set it")
    given = {
        **{f"--{name}": getattr(degrees, name) not in (None, 1) for name in DEGREES if name not in _RUN},
        "--kv-group": degrees.kv_group not in (None, 0),
        "--zero": bool(strategy.zero),
        "--recompute": strategy.recompute not in (None, "none"),
        f"--schedule {strategy.schedule}": SCHEDULES[strategy.schedule].has_chunks,
    }
    refuse_predicted(given, "--run goes with --data, --pipeline, --micro-batch")
    if degrees.data and degrees.pipeline and degrees.data * degrees.pipeline != ranks:
        raise RequestError(
            f"--run divides by --data and --pipeline alone: {degrees.data} x {degrees.pipeline} are "
            f"{degrees.data * degrees.pipeline} ranks, and --devices asks for {ranks}"
        )


def run_best(asked: ScaleRequest, found: Scale) -> Scale:
    """``found`` with a run of its best configuration. Raises RunError with the message of the rank that failed."""
    from tensortide.run.placed.divided import DividedWorkload, run_divided

    assert found.best is not None
    assert asked.steps is not None
    one, settings = found.best.configuration, settings_of(workload_of(asked.target), asked.capture)
    degrees = Degrees(data=one.data, pipeline=one.pipeline, micro_batches=one.micro_batches)
    workload = DividedWorkload(asked.target, settings, asked.steps, degrees=degrees, schedule=one.schedule)
    return replace(found, measured=run_divided(workload))
