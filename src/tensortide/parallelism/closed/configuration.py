"""A Configuration: how a step of a transformer is divided among devices, and what of that is no whole number.

Ranks are numbered with the tensor group innermost, then context, data and pipeline: a tensor group lies in one node as
far as it can, the stages of a pipeline lie apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from msgspec.structs import replace

from tensortide.dtypes import DTYPES
from tensortide.errors import DegreesError
from tensortide.parallelism.closed.transformer import Transformer
from tensortide.parallelism.degrees import (
    DEGREES,
    Degrees,
    ParallelDegrees,
    not_whole,
    uneven_experts,
    uneven_heads,
    zero_objections,
)
from tensortide.parallelism.pipelines import DEFAULT_SCHEDULE, SCHEDULES, PipelineName
from tensortide.shown import Show
from tensortide.timing.attention import USUAL, Kernel

Recompute: TypeAlias = Literal["none", "selective", "ops", "full", "plan"]

HALF = 2
"""Bytes of an element of 16 bits."""
LOSS_BYTES = 4
"""Bytes of a logit, at least: head and loss compute in 32 bits, whatever the narrower type of weights."""
COUNTS = ("batch", "micro_batch", *DEGREES, "chunks")
"""Fields of a Configuration that are at least 1."""


class Configuration(ParallelDegrees, frozen=True, kw_only=True):
    """Degrees of parallelism and the rest that a step depends on.

    Args:
        batch: sequences of the whole step.
        micro_batch: sequences that a data-parallel rank computes at a time.
        chunks: parts of the layers that a pipeline rank holds, with schedules that have several.
        recompute: ``full`` keeps the input of each layer; ``selective`` recomputes the core of attention alone;
            ``ops`` all but every second product and attention; a captured step may follow a ``plan``.
        fused_attention: attention without scores in memory.
        kernel: of fused attention.
        causal_half: half of the scores are computed (a kernel that skips what is masked).
        overlap_data, overlap_tensor, overlap_pipeline: communication that runs beside compute; keys and values of a
            context group with that of data.
        launch_graph: kernels are launched as captured graphs, so that the host is no limit.
        compiled: pointwise ops are fused by a compiler, which also launches them.
        gradient_as_bucket_view: gradients of replicas become views of the buckets of ``DistributedDataParallel``.
        gradient_bytes: of an element of a gradient, accumulated and exchanged: 4, or 2 where it stays in 16 bits.
        dtype: of the products of the layers; attention, head, weights and activations have 16 bits at least.
    """

    batch: Annotated[int, Show("batch")]
    micro_batch: Annotated[int, Show("micro-batch")] = 1
    chunks: Annotated[int, Show("chunks")] = 1
    schedule: PipelineName = DEFAULT_SCHEDULE
    recompute: Recompute = "full"
    fused_attention: bool = False
    kernel: Kernel = USUAL
    causal_half: bool = False
    overlap_data: bool = False
    overlap_tensor: bool = False
    overlap_pipeline: bool = False
    launch_graph: bool = False
    compiled: bool = False
    gradient_as_bucket_view: bool = False
    gradient_bytes: int = 4
    dtype: str = "float16"

    @property
    def degrees(self) -> Degrees:
        """Its degrees alone, chunks not included, checked."""
        own = {name: getattr(self, name) for name in ParallelDegrees.__struct_fields__}
        return Degrees(**own, micro_batches=self.micro_batches)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of weights and activations: those of the dtype, 2 for narrower ones."""
        return max(HALF, DTYPES[self.dtype].bits // 8) if self.dtype in DTYPES else HALF

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a data-parallel rank."""
        return self.batch // (self.data * self.micro_batch)

    def __str__(self) -> str:
        degrees = {axis.letter: getattr(self, axis.name) for axis in self.axes}
        parts = [f"{name}{degree}" for name, degree in degrees.items() if degree > 1 or name in "dtp"]
        parts += [f"k{self.kv_group}"] * (self.kv_group > 0)
        return " ".join([*parts, f"b{self.micro_batch}", *([f"v{self.chunks}"] if self.chunks > 1 else [])])


def check(configuration: Configuration, shape: Transformer, devices: int | None = None) -> None:
    """Raise DegreesError if ``configuration`` does not divide ``shape`` (and ``devices``) evenly; it names the first
    quotient that is no whole number."""
    reason = next(objections(configuration, shape, devices), None)
    if reason is not None:
        raise DegreesError(reason)


def objections(configuration: Configuration, shape: Transformer, devices: int | None = None) -> Iterator[str]:
    """Yield each fault of ``configuration`` for a step of ``shape``, in words."""
    one = configuration
    if wrong := next(not_whole({name: getattr(one, name) for name in COUNTS}), None):
        yield wrong
        return
    if one.gradient_as_bucket_view:
        yield "gradients that are views of buckets: the closed form counts no buckets"
    if devices is not None and one.devices != devices:
        own = [axis.name for axis in one.axes if axis.has_ranks]
        product = " x ".join(str(getattr(one, name)) for name in own)
        yield f"{' x '.join(own)} = {product} = {one.devices}: there are {devices} devices"
    quotients = [
        ("micro-batches: batch / (data * micro-batch)", one.batch, one.data * one.micro_batch),
        ("heads of a rank: heads / tensor", shape.heads, one.tensor),
        ("width of a rank: hidden / tensor", shape.hidden, one.tensor),
        ("feed-forward width of a rank: feedforward / tensor", shape.ffn, one.tensor),
        ("tokens of a rank: seq / context", shape.seq, one.context * (one.tensor if one.sequence else 1)),
    ]
    heads = shape.kv * (one.kv_group or 1)
    if shape.kv_heads:
        groups = " * kv-group" if one.kv_group else ""
        quotients.append((f"heads of keys of a rank: kv_heads{groups} / tensor", heads, one.tensor))
    if one.kv_group:
        quotients.append(("queries of a head on a rank: heads / (kv_heads * kv-group)", shape.heads, heads))
    if one.expert > 1 and shape.experts:
        quotients.append(("experts of a rank: experts / expert", shape.experts, one.expert))
    if missing := no_experts(one.expert, shape):
        yield missing
    if one.recompute == "plan":
        yield "recomputation by a plan is that of a captured step"
    yield from uneven_experts(one)
    yield from uneven_heads(one)
    if (stages := one.pipeline * one.chunks) > shape.layers:
        yield f"layers of a chunk: {shape.layers} layers are fewer than pipeline * chunks = {stages}"
    for what, over, under in quotients:
        if over % under or not over:
            yield f"{what} = {over}/{under} is no whole number"
    yield from schedule_objections(one)


def layers_of_stages(layers: int, stages: int) -> list[int]:
    """Layers of each stage of a pipeline. Where they do not divide evenly the outer stages have one layer less, the
    last one first: those also have head and embedding.

    Examples:
        >>> layers_of_stages(126, 8)
        [15, 16, 16, 16, 16, 16, 16, 15]
    """
    each = -(-layers // stages)
    outermost = sorted(range(stages), key=lambda stage: (min(stage, stages - 1 - stage), -stage))
    smaller = outermost[: stages * each - layers]
    return [each - (stage in smaller) for stage in range(stages)]


def layers_of_ranks(layers: int, one: ParallelDegrees, chunks: int = 1) -> list[int]:
    """Layers of each pipeline rank, which has every ``pipeline``-th stage of all."""
    stages = layers_of_stages(layers, one.pipeline * chunks)
    return [sum(stages[rank :: one.pipeline]) for rank in range(one.pipeline)]


def with_shared_heads(shape: Transformer, one: Configuration) -> Transformer:
    """``shape`` with the heads of keys that its tensor ranks have together, where each is on all of a sub-group: what
    divided by ``tensor`` is the part of a rank."""
    return replace(shape, kv_heads=shape.kv * one.kv_group) if one.kv_group else shape


def no_experts(expert: int, shape: Transformer) -> str:
    """The reason why experts of a model without any cannot be divided; empty if nothing is wrong."""
    if expert > 1 and not shape.experts:
        return f"expert is {expert}: the model has no experts to divide (give it some: experts=8)"
    return ""


def schedule_objections(one: Configuration) -> Iterator[str]:
    """Yield each fault of the schedule and ZeRO of ``one``, whatever it computes."""
    yield from zero_objections(one.zero, one.zero_group, one.replicas, one.expert)
    even = one.batch % (one.data * one.micro_batch) == 0
    yield from SCHEDULES[one.schedule].faults(one.pipeline, one.micro_batches if even else None, one.chunks)
    if one.zero > 1 and one.pipeline > 1:
        yield f"ZeRO {one.zero} with a pipeline exchanges gradients after every micro-batch: use ZeRO 1"
