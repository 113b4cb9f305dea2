"""Bytes of the fullest rank of a divided step, by the order in which each rank runs its passes."""

from __future__ import annotations

from collections.abc import Sequence

from tensortide.parallelism.closed.configuration import Configuration
from tensortide.parallelism.pipelines import order
from tensortide.parallelism.ranks import Ranks
from tensortide.studies.scale.predictors import PipelineRank
from tensortide.studies.scale.stage import Stage


def rank_memory(stages: Sequence[Stage], one: Configuration, library_bytes: int = 0) -> dict[str, float]:
    """Bytes of the fullest rank by what takes them. ``library_bytes``: workspaces that every process has once."""
    ranks = [memory_of_rank(stages, one, rank, library_bytes) for rank in range(one.pipeline)]
    return max(ranks, key=lambda found: sum(found.values()))


def memory_of_rank(stages: Sequence[Stage], one: Configuration, rank: int, library_bytes: int) -> dict[str, float]:
    """Bytes of ``rank`` at its peak: the pass that runs, beside what the passes under way keep."""
    own = stages[rank :: one.pipeline]
    several = one.micro_batches > 1
    views = one.gradient_as_bucket_view and not several  # else the first micro-batches leave gradients of their own
    apart = [stage.gradient_bytes - (stage.bucket_bytes if views else 0) for stage in own]
    peaks = [stage.accumulating if several else stage.peaks for stage in own]
    every = sum(apart)
    gradients = every if several else 0
    kept = running = done = 0
    flight = 0
    for task in order(one.schedule, rank, one.pipeline, one.micro_batches, one.chunks):
        chunk = task.stage // one.pipeline
        if not task.forward:
            kept -= own[chunk].kept_bytes
        here = (peaks[chunk].forward if task.forward else peaks[chunk].backward) + (0 if several else done)
        if kept + here > flight + running:
            flight, running = kept, here
        if task.forward:
            kept += own[chunk].kept_bytes
        else:
            done += apart[chunk]  # of a single micro-batch: those of later chunks are complete
    update = max(
        peak.update + (0 if several else every - gradients_of) for peak, gradients_of in zip(peaks, apart, strict=True)
    )
    if update > flight + running:
        flight, running = 0, update
    given_bytes = sum(stage.given_bytes for stage in own)
    counted_library_bytes = sum(stage.library_bytes for stage in own)
    other_library_bytes = max(0, library_bytes - max(stage.library_bytes for stage in own))
    return {
        "parameters, states, inputs": float(given_bytes - counted_library_bytes),
        "gradients, activations, workspace": float(running + gradients + counted_library_bytes + other_library_bytes),
        "micro-batches in flight": float(flight),
        "buckets of DistributedDataParallel": float(sum(stage.bucket_bytes for stage in own)),
    }


def pipeline_ranks(
    ranks: Ranks, of_each: Sequence[Sequence[Stage]], one: Configuration, library_bytes: int
) -> tuple[PipelineRank, ...]:
    """Each rank of a pipeline of several: the modules with which its stages begin, its time and its memory, those of
    the fullest experts (``of_each``)."""
    if one.pipeline == 1:
        return ()
    found = []
    for rank in range(one.pipeline):
        begins = ", ".join(
            f"from module {name}" if name else "from the first op" for name in ranks.firsts[rank :: one.pipeline]
        )
        ns = max(sum(s.forward_ns + s.backward_ns for s in stages[rank :: one.pipeline]) for stages in of_each)
        memory = max(sum(memory_of_rank(stages, one, rank, library_bytes).values()) for stages in of_each)
        found.append(PipelineRank(rank + 1, begins, ns, memory))
    return tuple(found)
