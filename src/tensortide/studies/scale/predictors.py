"""Predictions of a configuration, by what is known of the workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

import msgspec

from tensortide.parallelism.closed import Configuration, Transformer, predict_step
from tensortide.parallelism.closed.columns import Columns, Step
from tensortide.parallelism.closed.configuration import objections
from tensortide.parallelism.closed.constants import shipped
from tensortide.parallelism.closed.formula import between_ns, stage_ns, transfer_ns
from tensortide.parallelism.closed.memory import memory_of_ranks
from tensortide.parallelism.closed.predict import StepPrediction, known_columns
from tensortide.parallelism.degrees import AXES
from tensortide.parallelism.pipelines import Run, RunKind, StageTime, play
from tensortide.shown import Show
from tensortide.studies.scale.timeline import step_timeline, with_shown_micro_batches
from tensortide.timelines.timeline import Timeline
from tensortide.timing.attention import basis
from tensortide.timing.collectives import Nodes
from tensortide.timing.estimates import Estimate
from tensortide.timing.rates import matrix_tflops

_MEASURED = "Steps with this layer were measured: it takes {:.2f} times what the closed form says, which is corrected."
_LAYERS = ("compute", "tensor", "host", "context", "expert")
"""Parts of the closed form that the layers of a rank take in both passes."""
_COMMUNICATION = (*(axis.name for axis in AXES if axis.exchanged), "transfer", "data")


class PipelineRank(msgspec.Struct, frozen=True):
    """The part of a step that a rank of the pipeline has: what, both passes of a micro-batch, and its memory."""

    rank: Annotated[int, Show("Stage")]
    part: Annotated[str, Show("has", fold=True)]
    ns: Annotated[float, Show("a micro-batch")]
    peak_bytes: Annotated[float, Show("Memory")]


class ScalePrediction(NamedTuple):
    """A prediction: the time of the step, its parts in ns, and bytes of the fullest rank by what takes them.

    ``ideal_ns``: the step's model FLOPs, without recomputation, on one device at the peak of their dtypes (NaN:
    unknown). ``ranks`` are those of a pipeline of several.
    """

    time: Estimate
    parts: dict[str, float]
    memory: dict[str, float]
    ideal_ns: float
    remarks: tuple[str, ...] = ()
    ranks: tuple[PipelineRank, ...] = ()

    @property
    def step_ns(self) -> Annotated[float, Show("Step")]:
        return self.time.time_ns

    @property
    def peak_bytes(self) -> Annotated[float, Show("Memory")]:
        """All bytes of the fullest rank."""
        return sum(self.memory.values())

    @property
    def bubble_share(self) -> Annotated[float, Show("bubble", at_width=80)]:
        return self.parts.get("bubble", 0.0) / self.step_ns

    @property
    def communication_share(self) -> Annotated[float, Show("communication", at_width=80)]:
        """Share of exposed communication: collectives of every group, transfers between stages."""
        return sum(self.parts.get(name, 0.0) for name in _COMMUNICATION) / self.step_ns


class Predictor(Protocol):
    """A workload whose steps can be predicted. ``how`` says by what, ``name`` what it is, ``counted`` which FLOPs are
    those of the model; ``layers`` bound its chunks; ``tokens`` is what a sample counts for."""

    name: str
    how: str
    counted: str
    layers: int
    tokens: int

    def objections(self, one: Configuration, devices: int) -> list[str]:
        """List the faults of a configuration, in words."""

    def kv_groups(self, one: Configuration) -> Sequence[int]:
        """Sizes of sub-groups in which the tensor ranks of a configuration can share heads of keys and values."""

    def predict(self, one: Configuration, nodes: Nodes) -> ScalePrediction:
        """Predict a legal configuration. Raises DegreesError for one that only turns out not to be."""

    def timeline(self, one: Configuration, nodes: Nodes) -> Timeline:
        """The predicted step of ``with_shown_micro_batches(one)``; it ends when ``predict`` says that step ends."""


class ClosedForm:
    """A transformer by the closed form."""

    how = "the closed form of a transformer"
    counted = "6 FLOPs per weight of a product and token, and attention (causal: half of it), not recomputed"

    def __init__(self, shape: Transformer) -> None:
        self.shape = shape
        self.layers = shape.layers
        self.tokens = shape.seq
        self.name = f"transformer of {shape.parameters / 1e9:.3g} B parameters"

    def objections(self, one: Configuration, devices: int) -> list[str]:
        unknown = [axis.name for axis in AXES if axis.name not in Columns._fields and getattr(one, axis.name) > 1]
        return [
            *(f"{name}: the closed form has no term for it" for name in unknown),
            *objections(one, self.shape, devices),
        ]

    def kv_groups(self, one: Configuration) -> Sequence[int]:
        size = one.tensor // math.gcd(self.shape.kv, one.tensor)
        queries = self.shape.heads // self.shape.kv
        return (size,) if 1 < size < one.tensor and queries % size == 0 else ()

    def predict(self, one: Configuration, nodes: Nodes) -> ScalePrediction:
        made = predict_step(self.shape, one, nodes)
        flops = self.shape.flops(one.batch, causal=one.causal_half)
        peak = matrix_tflops(nodes.device, one.dtype)
        assert peak is not None, "predict_step has found it"
        kernel = basis(nodes.device, one.kernel) if one.fused_attention else "unfused, with its scores in memory"
        remarks = (f"Attention: {kernel}.", *([] if made.factor is None else [_MEASURED.format(made.factor)]))
        ideal = flops / peak / 1e3
        return ScalePrediction(made.time, made.parts, made.memory._asdict(), ideal, remarks, self._ranks(one, made))

    def _ranks(self, one: Configuration, made: StepPrediction) -> tuple[PipelineRank, ...]:
        """Each rank of a pipeline of several: its layers, time and memory."""
        if one.pipeline == 1:
            return ()
        found = []
        for rank, memory in enumerate(memory_of_ranks(self.shape, one)):
            layers, ns = (sum(each[rank :: one.pipeline]) for each in (made.layers, made.stages_ns))
            ends = {0: ", embedding", one.pipeline - 1: ", head and loss"}.get(rank, "")
            found.append(PipelineRank(rank + 1, f"{layers} layer{'s' * (layers > 1)}{ends}", ns, memory.total))
        return tuple(found)

    def timeline(self, one: Configuration, nodes: Nodes) -> Timeline:
        """The predicted step of ``with_shown_micro_batches(one)``: its pipeline, in the time of the closed form."""
        one = with_shown_micro_batches(one)
        predicted = predict_step(self.shape, one, nodes)
        parts = predicted.parts
        constants, (made, _) = shipped().constants, known_columns(Step(self.shape, one, nodes))
        forward, backward = stage_ns(constants, made)
        share = float((forward / (forward + backward))[0])
        runs = _played(one, predicted, share, round(float(transfer_ns(constants, made)[0])))
        stages = float(between_ns(constants, made)[0])
        own = [
            (RunKind.EXCHANGE_REPLICAS, parts["data"] - stages),
            (RunKind.EXCHANGE_STAGES, stages),
            (RunKind.UPDATE, parts["optimizer"]),
        ]
        common = [(RunKind.ONCE_PER_STEP, parts["rest"]), (RunKind.STRAGGLERS, parts["straggler"])]
        return step_timeline(one, runs, [own] * one.pipeline, common)


def _played(one: Configuration, made: StepPrediction, forward: float, received_ns: int) -> list[Run]:
    """The runs of a pipeline. ``forward``: share of the forward pass in the time of a stage.

    The closed form counts a transfer more for each micro-batch of the first rank and the last: the times of the replay
    are stretched in proportion so that they add up to its sum.
    """
    stages = [_stage(ns, forward, received_ns) for ns in made.stages_ns]
    runs = play(one.schedule, stages, one.pipeline, one.micro_batches)
    whole = sum(made.parts[name] for name in (*_LAYERS, "head", "bubble", "transfer"))
    longer = whole / max(run.end_ns for run in runs)
    return [run._replace(start_ns=round(run.start_ns * longer), end_ns=round(run.end_ns * longer)) for run in runs]


def _stage(ns: float, forward: float, received_ns: int) -> StageTime:
    return StageTime(round(ns * forward), round(ns * (1 - forward)), received_ns, received_ns)
