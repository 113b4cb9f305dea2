"""Options of ``tensortide scale``: degrees of parallelism, and strategy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter, validators

from tensortide.cli.source import option
from tensortide.errors import WorkloadError
from tensortide.parallelism.closed.configuration import Configuration, Recompute
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, SCHEDULES, PipelineName
from tensortide.parallelism.pipelines.schedules import with_chunks

if TYPE_CHECKING:
    from tensortide.plans import Plan

DTYPE = "bfloat16"
_KINDS: dict[str, Recompute] = {"none": "none", "selective": "selective", "full": "full"}
"""Kinds of recomputation that need no plan."""
Searched: TypeAlias = int | Literal["search"]
"""A degree that is 1 unless it is given or searched."""


def _degree(name: str, text: str) -> Parameter:
    return option(f"--{name}", f"{text} (default: searched).")


@Parameter(name="*")
@dataclass(frozen=True)
class DegreeOptions:
    """Degrees of parallelism; those that are not given are searched."""

    data: Annotated[int | None, _degree("data", "Replicas, which divide the batch")] = None
    tensor: Annotated[int | None, _degree("tensor", "Ranks that divide every layer")] = None
    pipeline: Annotated[int | None, _degree("pipeline", "Ranks that divide the layers into stages")] = None
    micro_batch: Annotated[int | None, _degree("micro-batch", "Samples in a micro-batch")] = None
    chunks: Annotated[int | None, _degree("chunks", f"Parts of a pipeline rank ({', '.join(with_chunks())})")] = None
    kv_group: Annotated[
        int | None,
        _degree("kv-group", "Tensor ranks that share heads of keys and values where they outnumber them, or 0"),
    ] = None
    context: Annotated[Searched, option("--context", "Ranks that divide the sequence: a number, or search.")] = 1
    expert: Annotated[Searched, option("--expert", "Ranks that divide the experts: a number, or search.")] = 1


@Parameter(name="*")
@dataclass(frozen=True)
class StrategyOptions:
    """Options beside the degrees: ZeRO, recomputation, schedule, overlap."""

    zero: Annotated[
        int,
        option("--zero", "ZeRO: shard over replicas 1 optimizer state, 2 also gradients, 3 also parameters."),
    ] = 0
    zero_group: Annotated[
        int | None,
        option("--zero-group", "Replicas in a group that shards the whole state (default: one group of all)."),
        Parameter(validator=validators.Number(gte=1)),
    ] = None
    recompute: Annotated[
        str | None,
        option(
            "--recompute",
            "What to recompute in the backward pass: none, selective (the core of attention), full (every block), or a "
            "plan for the target, written by tensortide plan (default: full with --model, else none).",
        ),
    ] = None
    schedule: Annotated[PipelineName, option("--schedule", f"Schedule of the pipeline: {', '.join(SCHEDULES)}.")] = (
        DEFAULT_SCHEDULE
    )
    sequence: Annotated[
        bool,
        option("--sequence", "Sequence parallelism: divide along the sequence what tensor ranks replicate."),
    ] = False
    fused_attention: Annotated[
        bool, option("--fused-attention", "Attention that keeps no scores in memory (with --model).")
    ] = False
    overlap: Annotated[
        bool, option("--overlap", "Overlap communication with compute: gradients, tensor collectives, transfers.")
    ] = False

    gradient_as_bucket_view: Annotated[
        bool,
        option(
            "--gradient-as-bucket-view",
            "Gradients become views of the buckets of DistributedDataParallel, as its option of this name makes them.",
        ),
    ] = False

    def configuration(self, batch: int, degrees: DegreeOptions, dtype: str, *, captured: bool) -> Configuration:
        """The part of a configuration that is not searched. Raises WorkloadError for buckets where there are none."""
        if self.gradient_as_bucket_view and (self.zero or not captured):
            without = f"--zero {self.zero}" if self.zero else "--model"
            raise WorkloadError(f"--gradient-as-bucket-view: with {without} no buckets are counted, so leave it out")
        return Configuration(
            batch=batch,
            context=1 if degrees.context == "search" else degrees.context,
            expert=1 if degrees.expert == "search" else degrees.expert,
            schedule=self.schedule,
            zero=self.zero,
            zero_group=self.zero_group or 0,
            recompute=self._recompute(captured=captured),
            sequence=self.sequence,
            fused_attention=self.fused_attention,
            causal_half=self.fused_attention,
            overlap_data=self.overlap,
            overlap_tensor=self.overlap,
            overlap_pipeline=self.overlap,
            gradient_as_bucket_view=self.gradient_as_bucket_view,
            dtype=dtype,
        )

    def _recompute(self, *, captured: bool) -> Recompute:
        """Raise WorkloadError for a plan of what is not captured."""
        if self.recompute is None:
            return "none" if captured else "full"
        if (known := _KINDS.get(self.recompute)) is not None:
            return known
        if not captured:
            raise WorkloadError(f"--recompute {self.recompute}: with --model it is {', '.join(_KINDS)}")
        return "plan"

    def plan(self) -> Plan | None:
        """The plan of recomputation, if one is given. Raises PlanFileError if it cannot be read."""
        from tensortide.plans import load_plan

        if self.recompute is None or self.recompute in _KINDS:
            return None
        if not Path(self.recompute).exists():
            raise WorkloadError(
                f"--recompute {self.recompute}: there is no such plan, and it is none of {', '.join(_KINDS)}"
            )
        return load_plan(self.recompute)
