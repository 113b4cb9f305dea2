"""Predictions of a configuration, by what is known of the workload."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tensortide.parallelism.closed import Configuration, Transformer, predict_step
from tensortide.parallelism.closed.columns import Step
from tensortide.parallelism.closed.configuration import objections
from tensortide.parallelism.closed.constants import shipped
from tensortide.parallelism.closed.formula import stage_ns, transfer_ns
from tensortide.parallelism.closed.predict import known_columns
from tensortide.parallelism.pipelines import PipelineTimeline, StageTime, play
from tensortide.timing.collectives import Cluster
from tensortide.timing.estimates import Estimate
from tensortide.timing.rates import matrix_tflops

_MEASURED = "Steps with this layer were measured: it takes {:.2f} times what the closed form says, which is corrected."
ROUNDS = 3
"""Micro-batches for each rank of a pipeline that is played to be shown: fill, steady state and drain."""


class ScalePrediction(NamedTuple):
    """A prediction: the time of the step, its parts in ns, and bytes of the fullest rank by what takes them.

    ``ideal_ns``: the step's model FLOPs, without recomputation, on one device at the peak of their dtypes (NaN:
    unknown).
    """

    time: Estimate
    parts: dict[str, float]
    memory: dict[str, float]
    ideal_ns: float
    remarks: tuple[str, ...] = ()

    @property
    def memory_bytes(self) -> float:
        """All bytes of the fullest rank."""
        return sum(self.memory.values())


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

    def predict(self, one: Configuration, cluster: Cluster) -> ScalePrediction:
        """Predict a legal configuration. Raises DegreesError for one that only turns out not to be."""

    def pipeline(self, one: Configuration, cluster: Cluster) -> PipelineTimeline | None:
        """The pipeline played with ``shown_micro_batches``, for one that has a pipeline."""


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
        return list(objections(one, self.shape, devices))

    def kv_groups(self, one: Configuration) -> Sequence[int]:
        size = one.tensor // math.gcd(self.shape.kv, one.tensor)
        queries = self.shape.heads // self.shape.kv
        return (size,) if 1 < size < one.tensor and queries % size == 0 else ()

    def predict(self, one: Configuration, cluster: Cluster) -> ScalePrediction:
        made = predict_step(self.shape, one, cluster)
        flops = self.shape.flops(one.batch, causal=one.causal_half)
        peak = matrix_tflops(cluster.device, one.dtype)
        assert peak is not None, "predict_step has found it"
        remarks = () if made.factor is None else (_MEASURED.format(made.factor),)
        return ScalePrediction(made.time, made.parts, made.memory._asdict(), flops / peak / 1e3, remarks)

    def pipeline(self, one: Configuration, cluster: Cluster) -> PipelineTimeline | None:
        if one.pipeline == 1:
            return None
        constants, (made, _) = shipped().constants, known_columns(Step(self.shape, one, cluster))
        forward, backward = (round(float(each[0]) / one.chunks) for each in stage_ns(constants, made))
        received = round(float(transfer_ns(constants, made)[0]))
        stage = StageTime(forward, backward, received, received)
        return play(one.schedule, [stage] * (one.pipeline * one.chunks), one.pipeline, shown_micro_batches(one))


def shown_micro_batches(one: Configuration) -> int:
    """Number of micro-batches of a pipeline that are played to be shown."""
    return min(one.micro_batches, ROUNDS * one.pipeline)
