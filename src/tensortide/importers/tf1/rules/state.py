"""Updates of variables, optimizer steps and random draws of TensorFlow graphs. Counting convention: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.access import Bytes, BytesRule, reads, size, writes_only
from tensortide.cost.kinds import elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON
from tensortide.graph.model import Tensor
from tensortide.importers.tf1.rules.moves import assigned, replaced_rows, tf


def _changed(written: BytesRule) -> BytesRule:
    """Read first what ``written`` writes."""

    def rule(op: OpCall) -> Bytes:
        read, wrote = written(op)
        return Bytes(read + wrote, wrote)

    return rule


@tf("AssignAdd AssignSub AssignAddVariableOp AssignSubVariableOp", "1 per element", bytes=_changed(assigned))
def assign_add(op: OpCall) -> Cost:
    """A value is added to a variable, or taken from it."""
    return elements(op, op.inputs[1].numel, ARITHMETIC)


STEPS = {
    "GradientDescent": (2, 0, 0, "scale and subtract the gradient"),
    "Momentum": (4, 0, 1, "decay, add the gradient; scale and subtract"),
    "Adagrad": (6, 2, 1, "square and add; root, divide, scale, subtract"),
    "Adam": (13, 2, 2, "first moment 3, second moment 4, denominator 3, update 3"),
    "RMSProp": (11, 1, 2, "mean square 4, denominator 2, momentum 4, update 1"),
}
"""Optimizer steps: FLOPs and special functions per element, how many slots they read and write, what they do."""


def _gradient(op: OpCall) -> Tensor:
    return op.tensor("delta" if op.has("delta") else "grad")


def _stepped(op: OpCall) -> Bytes:
    """Variable, gradient and slots are read; variable and slots written. With indices, only the rows they name."""
    gradient, slots = _gradient(op), STEPS[op.base.rpartition("Apply")[2]][2]
    state = (1 + slots) * gradient.numel * gradient.itemsize
    return Bytes(state + gradient.region_bytes + size(op.tensors("indices")), state)


def step(op: OpCall) -> Cost:
    """One step per element of the gradient."""
    flops, special, *_ = STEPS[op.base.rpartition("Apply")[2]]
    count, each = _gradient(op).numel, flops + (2 if op.arg("use_nesterov", False) else 0)
    op.let(elements=count, per_element=each)
    return Cost(elementwise_flops=each * count, transcendentals=special * count)


for _name, (_flops, _, _, _text) in STEPS.items():
    _names = f"Apply{_name} ResourceApply{_name} SparseApply{_name} ResourceSparseApply{_name}"
    _formula = f"{_flops} per element" + " (Momentum: + 2 Nesterov)" * (_name == "Momentum")
    tf(_names, _formula, f"One step per element of the gradient: {_text}.", bytes=_stepped)(step)


@tf(
    "ScatterAdd ScatterSub ScatterNdAdd ScatterNdSub ResourceScatterAdd ResourceScatterSub ResourceScatterNdAdd "
    "ResourceScatterNdSub ScatterMul ScatterDiv",
    "1 per element of the updates",
    bytes=_changed(replaced_rows),
)
@tf(
    "ScatterNd", "1 per element of the updates", "Zeros with updates added at indices.",
    bytes=reads("indices", "updates"),
)  # fmt: skip
def scatter_add(op: OpCall) -> Cost:
    """Rows of a variable changed in place."""
    return elements(op, op.tensor("updates").numel, ARITHMETIC)


@tf(
    "UnsortedSegmentSum SegmentSum UnsortedSegmentProd",
    "1 per element (bound: distinct segments need one less)", bytes=reads("data", "segment_ids"),
)  # fmt: skip
@tf(
    "UnsortedSegmentMax UnsortedSegmentMin", "1 compared per element (bound)",
    "Largest or smallest of the rows of equal segment.",
)  # fmt: skip
def segment_sum(op: OpCall) -> Cost:
    """Sum of the rows of equal segment."""
    work = elements(op, op.inputs[0].numel, COMPARISON if "SegmentM" in op.base else ARITHMETIC)
    return work + Cost(exact=False, reason="bound: equal segments are not seen")


@tf(
    "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal RandomShuffle RandomGamma "
    "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal",
    "E random draws, written", bytes=writes_only,
)  # fmt: skip
def drawn(op: OpCall) -> Cost:
    """One draw per element."""
    return Cost(random_draws=op.out.numel)


@tf("Multinomial", "2 n per row; per sample one random draw and log2 n comparisons")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    count, samples = op.tensor("logits").numel, op.out.numel
    searched = samples * int(op.shape("logits")[-1]).bit_length()
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@tf("LogUniformCandidateSampler UniformCandidateSampler", "one draw per sample, 10 per expected count")
def sampler(op: OpCall) -> Cost:
    """Shared negative samples, and how often each class is expected among them: a probability (two adds, two divisions,
    a logarithm) and ``-expm1(n log1p(-p))``."""
    samples, expected = op.outputs[0].numel, sum(tensor.numel for tensor in op.outputs[1:])
    cost = Cost(elementwise_flops=10 * expected, transcendentals=5 * expected, random_draws=samples)
    return cost + Cost(exact=False, reason="draws that are rejected as duplicates are not seen")
