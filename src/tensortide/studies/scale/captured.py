"""A captured step on many devices: the Graphs of its ranks, predicted op by op, and played as a pipeline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from tensortide.cost import Resolver
from tensortide.dtypes import Kind, kind_of
from tensortide.graph.model import Graph
from tensortide.parallelism import Degrees, Ranks, per_rank
from tensortide.parallelism.analysis import analyzed
from tensortide.parallelism.batch import batch_of
from tensortide.parallelism.closed.configuration import (
    COUNTS,
    Configuration,
    Recompute,
    schedule_objections,
)
from tensortide.parallelism.closed.constants import PRIOR
from tensortide.parallelism.closed.formula import slowest_share
from tensortide.parallelism.degrees import KeysBy, not_whole, nothing_to_shard, uneven_experts, uneven_heads
from tensortide.parallelism.made_batch import given_batch
from tensortide.parallelism.pipelines import Run, RunKind, StageTime, computing_ns, play, spent_ns, timeline_of
from tensortide.parallelism.shared import Shared
from tensortide.parallelism.tensor_groups import group_sizes
from tensortide.plans import Plan
from tensortide.studies.scale.fullest import in_step
from tensortide.studies.scale.memory import pipeline_ranks, rank_memory
from tensortide.studies.scale.predictors import ScalePrediction
from tensortide.studies.scale.recomputation import recomputed, with_plan
from tensortide.studies.scale.regions import attention_cores, is_fused
from tensortide.studies.scale.stage import INSIDE, Stage, added_exchange_ns, library_bytes, transfers_ns
from tensortide.studies.scale.stage import stage as stage_of
from tensortide.studies.scale.timeline import AfterPasses, step_timeline, with_shown_micro_batches
from tensortide.timelines.machines import peak_ns
from tensortide.timelines.timeline import Timeline
from tensortide.timing.catalogue import Device
from tensortide.timing.collectives import Nodes
from tensortide.timing.estimate import Known, captured_elsewhere
from tensortide.timing.estimates import Estimate, Provenance

STRAGGLER = PRIOR.straggler
_Key = tuple[Degrees, Recompute]


class Captured:
    """A captured step of ``batch`` samples, which ``tokens`` each, on devices of a type.

    Divided Graphs and their times are kept, so that configurations that share them are predicted once.
    """

    how = "the captured ops of each rank"
    counted = "products of the captured step, recomputation not included"

    def __init__(
        self,
        graph: Graph,
        device: Device,
        *,
        batch: int,
        tokens: int = 1,
        resolver: Resolver | None = None,
        plan: Plan | None = None,
        keys: KeysBy = "gather",
    ) -> None:
        self.graph, self.device, self.batch, self.tokens, self.resolver = graph, device, batch, tokens, resolver
        self.plan, self.keys = plan, keys
        self.name = graph.meta.workload
        self.layers = _blocks(graph)
        self._ideal_ns = peak_ns(graph, device, resolver)
        self._whole: dict[Recompute, Graph] = {}
        self._shared = Shared()
        self._divided: dict[_Key, tuple[Ranks, ...]] = {}
        self._stages: dict[tuple[_Key, int, str, bool, bool], tuple[tuple[Stage, ...], ...]] = {}
        self._known = Known()

    def __getstate__(self) -> dict[str, object]:
        """Leave out what is kept of earlier predictions: another process does not need it."""
        return self.__dict__ | {"_whole": {}, "_shared": Shared(), "_divided": {}, "_stages": {}, "_known": Known()}

    def objections(self, one: Configuration, devices: int) -> list[str]:
        """List the faults of a configuration that show before the step is divided."""
        if wrong := next(not_whole({name: getattr(one, name) for name in COUNTS}), None):
            return [wrong]
        found = ["attention is as captured: this option goes with --model"] if one.fused_attention else []
        if one.devices != devices:
            found.append(f"data x tensor x pipeline x context = {one.devices}: there are {devices} devices")
        found += [*uneven_experts(one), *uneven_heads(one)]
        samples = one.data * one.micro_batch
        if one.batch % samples:
            found.append(f"micro-batches: batch / (data * micro-batch) = {one.batch}/{samples} is no whole number")
        elif self.batch % samples:
            found.append(f"captured batch / (data * micro-batch) = {self.batch}/{samples} is no whole number")
        if one.gradient_as_bucket_view and one.zero:
            found.append(f"gradients that are views of buckets: with ZeRO {one.zero} no buckets are counted")
        return [*found, *nothing_to_shard(one), *schedule_objections(one)]

    def kv_groups(self, one: Configuration) -> tuple[int, ...]:
        """Sizes of sub-groups of tensor ranks that share heads of keys, none along sequences."""
        if one.sequence or one.tensor == 1:
            return ()
        return self._shared(group_sizes, self._shared(analyzed, self.graph), one.tensor)

    def predict(self, one: Configuration, nodes: Nodes) -> ScalePrediction:
        """Predict ``one``. Raises DegreesError if the step cannot be divided so."""
        ranks, of_each = self._of(one, nodes)
        stages = in_step(of_each)
        line = timeline_of(self._play(one, nodes, ranks, stages))
        own = _after_passes(stages, one)
        slowest = max(own, key=_total_ns)
        updated = transfers_ns(ranks, one, nodes, update=True)
        total = line.makespan_ns + _total_ns(slowest) + updated
        late = _straggler_ns(total, one)
        made = _parts(total, line, stages, one, slowest, updated) | {"straggler": late}
        ideal = self._ideal_ns * one.batch / self.batch
        remarks = (*_remarks(ranks), *self._remarks(one))
        memories = [rank_memory(each, one, library_bytes(self.graph)) for each in of_each]
        memory = max(memories, key=lambda found: sum(found.values()))
        of_ranks = pipeline_ranks(ranks, of_each, one, library_bytes(self.graph))
        return ScalePrediction(_estimate(total + late, stages), made, memory, ideal, remarks, of_ranks)

    def _remarks(self, one: Configuration) -> Iterator[str]:
        if why := captured_elsewhere(self.graph, self.device):
            yield f"Times are {why}; the kernels of {self.device.name} may be others."
        if one.recompute == "selective" and all(is_fused(self.graph, core) for core in attention_cores(self.graph)):
            yield "Attention is fused and keeps no scores: recomputing its core takes time and spares next to nothing."

    def timeline(self, one: Configuration, nodes: Nodes) -> Timeline:
        """The predicted step of ``with_shown_micro_batches(one)``."""
        one = with_shown_micro_batches(one)
        ranks, of_each = self._of(one, nodes)
        stages = in_step(of_each)
        runs, own = self._play(one, nodes, ranks, stages), _after_passes(stages, one)
        updated = transfers_ns(ranks, one, nodes, update=True)
        late = _straggler_ns(max(run.end_ns for run in runs) + max(map(_total_ns, own)) + updated, one)
        common = [(RunKind.TRANSFER, updated), (RunKind.STRAGGLERS, late)]
        return step_timeline(one, runs, own, common, [stage.kept_bytes for stage in stages])

    def _of(self, one: Configuration, nodes: Nodes) -> tuple[Ranks, tuple[tuple[Stage, ...], ...]]:
        """The step of each stage, divided and timed, for each rank whose experts are the fullest."""
        parts = self.batch // (one.data * one.micro_batch)
        degrees = replace(one.degrees, pipeline=one.pipeline * one.chunks, micro_batches=parts)  # of the captured batch
        if one.context > 1:
            degrees = replace(degrees, keys=self.keys)
        key = degrees, one.recompute
        several = self._divided.get(key)
        if several is None:
            several = self._divided[key] = self._fullest(degrees, one.recompute)
        place = key, one.pipeline, nodes.name, one.overlap_data, one.gradient_as_bucket_view
        stages = self._stages.get(place)
        if stages is None:
            given = one, nodes, self.device, self.resolver, self._known
            stages = tuple(tuple(stage_of(graph, *given) for graph in ranks.graphs) for ranks in several)
            self._stages[place] = stages
        return several[0], stages

    def _fullest(self, degrees: Degrees, recompute: Recompute) -> tuple[Ranks, ...]:
        """The Graphs of the ranks whose experts are the fullest; of any rank where all are alike."""
        first = self._ranks(degrees, recompute)
        return tuple(self._ranks(degrees, recompute, rank) for rank in first.fullest) or (first,)

    def _ranks(self, degrees: Degrees, recompute: Recompute, expert: int | None = None) -> Ranks:
        """The ranks' Graphs, with recomputation: a plan is of the whole step, or of that of one rank."""
        of_rank = recompute == "plan" and self.plan is not None and self.plan.graph != self.graph.index.digest
        if of_rank and self.plan is not None:
            ranks = per_rank(self.graph, degrees, shared=self._shared, expert_rank=expert)
            return with_plan(ranks, self.plan)
        if recompute not in self._whole:
            self._whole[recompute] = recomputed(self.graph, recompute, self.plan)
        return per_rank(self._whole[recompute], degrees, shared=self._shared, expert_rank=expert)

    def _play(self, one: Configuration, nodes: Nodes, ranks: Ranks, stages: Sequence[Stage]) -> list[Run]:
        received = transfers_by_stage(ranks, one, nodes)
        times = []
        for number, stage in enumerate(stages):
            times.append(StageTime(stage.forward_ns, stage.backward_ns, *received[number]))
        return play(one.schedule, times, one.pipeline, one.micro_batches, overlap=one.overlap_pipeline)


def transfers_by_stage(ranks: Ranks, one: Configuration, nodes: Nodes) -> list[tuple[int, int]]:
    """Nanoseconds that each stage takes to receive a micro-batch, forward and backward."""
    return [
        (
            round(transfers_ns(ranks, one, nodes, target=number, forward=True)),
            round(transfers_ns(ranks, one, nodes, target=number, forward=False)),
        )
        for number in range(len(ranks.graphs))
    ]


def _blocks(graph: Graph) -> int:
    """Repeated blocks of the step: paths of modules up to their first number."""
    from tensortide.parallelism.gathered import unit_of

    return max(1, len({unit_of(f"{module.path}.") for module in graph.modules} - {""}))


def _estimate(total: float, stages: Sequence[Stage]) -> Estimate:
    """The step with the interval of its slowest stage and of its collectives, which are independent."""
    slowest = max(stages, key=lambda stage: stage.forward_ns + stage.backward_ns)
    whole = slowest.line.estimate
    below, above = (
        abs(math.log(end / whole.time_ns)) if whole.time_ns else 0.0 for end in (whole.low_ns, whole.high_ns)
    )
    exchange = sum((stage.exchange for stage in stages), Estimate())
    share = min(1.0, exchange.time_ns / total) if total else 0.0
    other = share * exchange.log_width
    provenance = max(whole.provenance, exchange.provenance if share > 0 else Provenance.MEASURED)
    found = Estimate.of(
        total, math.hypot(below, other), math.hypot(above, other), min(provenance, Provenance.PHYSICS), "step"
    )
    return found if not whole.unknown else found + Estimate(unknown=whole.unknown)


def _after_passes(stages: Sequence[Stage], one: Configuration) -> list[AfterPasses]:
    """Return the activities of each pipeline rank after the passes: the exposed exchange of gradients and parameters
    among replicas, that of gradients among stages, and the update."""
    found: list[AfterPasses] = []
    for rank in range(one.pipeline):
        own = stages[rank :: one.pipeline]
        between = sum(stage.between_ns for stage in own)
        exchange = sum(added_exchange_ns(stage, one) for stage in own)
        update = sum(stage.update_ns for stage in own) - between
        found.append(
            ((RunKind.EXCHANGE_REPLICAS, exchange), (RunKind.EXCHANGE_STAGES, between), (RunKind.UPDATE, update))
        )
    return found


def _total_ns(ends: AfterPasses) -> float:
    return sum(ns for _, ns in ends)


def _straggler_ns(total: float, one: Configuration) -> float:
    """Delay of a step that takes ``total`` without the stragglers of its ranks."""
    return total * float(slowest_share(STRAGGLER, np.array([float(one.devices)]))[0])


def _parts(
    total: float, line: Timeline, stages: Sequence[Stage], one: Configuration, ends: AfterPasses, updated: float
) -> dict[str, float]:
    """Parts of the time on the rank that computes longest; the rest of the schedule is bubble. ``ends``: of the rank
    that ends last; ``updated``: transfers of the update."""
    busy, after = computing_ns(line), dict(ends)
    busiest = max(range(one.pipeline), key=busy.__getitem__)
    own = stages[busiest :: one.pipeline]
    inside = {
        name: one.micro_batches * sum(stage.inside_ns[name] for stage in own) for name in dict.fromkeys(INSIDE.values())
    }
    again = one.micro_batches * sum(stage.again_ns for stage in own)
    moved = int(spent_ns(line)[busiest, RunKind.TRANSFER])
    found = {
        "compute": busy[busiest] - sum(inside.values()) - again,
        "recompute": float(again),
        **inside,
        "transfer": float(moved),
        "bubble": float(line.makespan_ns - busy[busiest] - moved),
        "data": after[RunKind.EXCHANGE_REPLICAS] + after[RunKind.EXCHANGE_STAGES] + updated,
        "optimizer": after[RunKind.UPDATE],
    }
    return found | {"rest": max(0.0, total - sum(found.values()))}


def _remarks(ranks: Ranks) -> tuple[str, ...]:
    found = list(ranks.remarks)
    for of, number in sorted(Counter(each.ranks for each in ranks.replicated).items()):
        by = f"in full by {of} tensor ranks each, which share heads of keys" if of else "in full by every tensor rank"
        found.append(f"{number:,} products are computed {by}.")
    return tuple(found)


def samples_of(graph: Graph) -> int:
    """The batch of a captured step: that of its inputs, whichever dimension it is, or of what it makes itself.

    Raises DegreesError for a step without a batch.
    """
    shape, dimension, _ = _batch(graph)
    return shape[dimension]


def tokens_of(graph: Graph) -> int:
    """Tokens of a sample: the length of an input of whole numbers that has two dimensions; else 1."""
    shape, dimension, dtype = _batch(graph)
    return shape[1 - dimension] if len(shape) == 2 and kind_of(dtype) is Kind.INTEGER else 1


def _batch(graph: Graph) -> tuple[tuple[int, ...], int, str]:
    """The shape of the tensor that has the batch, its dimension that is the batch, and its dtype."""
    analysis = analyzed(graph)
    given = given_batch(analysis).graph
    where = batch_of(analysis if given is graph else analyzed(given))
    tensor = given.tensors[where.tensor]
    return tuple(map(int, tensor.shape)), where.dimension, tensor.dtype
