"""Cost rules of operators of TensorFlow Lite that are instances of no family: of StableHLO, and selections of rows."""

from __future__ import annotations

import math

from tensortide.cost.access import selected_rows
from tensortide.cost.families.products import product
from tensortide.cost.kinds import ARITHMETIC, Kind, elements, kind_of, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

lite = Vocabulary("tflite")


@lite(
    "STABLEHLO_DOT_GENERAL",
    "E k MACs, k the contracted sizes; if nothing is contracted, E multiplications",
    family="contraction",
)
def dot_general(op: OpCall) -> Cost:
    """Contraction of two tensors over pairs of dimensions, batched over others."""
    contracted = op.arg("contracted", ())
    k = math.prod(op.inputs[0].shape[axis] for axis in contracted)
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k) if contracted else product(op, 0, op.out.numel)


@lite("STABLEHLO_CONVOLUTION", "N O Cout (Cin/g) K MACs; with lhs_dilation I for O", family="convolution")
def convolution(op: OpCall) -> Cost:
    """Every output site meets the whole kernel, taps on padding included; of a dilated (transposed) input every input
    site does."""
    image, kernel, made = op.inputs[0], op.inputs[1], op.out
    macs = made.numel * kernel.numel // max(1, kernel.shape[op.arg("features_axis", 0)])
    if any(step != 1 for step in op.arg("lhs_dilation", ())):
        sites = math.prod(image.shape[axis] for axis in op.arg("input_spatial", ()))
        spread = math.prod(made.shape[axis] for axis in op.arg("output_spatial", ()))
        macs = macs // max(1, spread) * sites
    return product(op, macs)


@lite("STABLEHLO_REDUCE", "R (n - 1) (bound)", "A reduction by a subgraph of two elements.", family="reduction")
def reduction(op: OpCall) -> Cost:
    """One operation per element that is combined."""
    work = rows_work(op, max(0, op.inputs[0].numel - op.out.numel))
    return work + Cost(exact=False, reason="by default: 1 FLOP per element that is combined")


@lite("STABLEHLO_SCATTER", "1 per element of the updates (bound)", family="scatter")
def scattered(op: OpCall) -> Cost:
    """A copy with elements combined with the updates, or replaced by them."""
    work = elements(op, op.inputs[-1].numel, ARITHMETIC, kind_of(op.outputs))
    return work + Cost(exact=False, reason="bound: as if every update were combined")


@lite(
    "EMBEDDING_LOOKUP_SPARSE",
    "2 n per index (bound)",
    bytes=selected_rows("ids", "indices", "weights"),
    family="gather",
)
def lookup(op: OpCall) -> Cost:
    """Rows of a table, weighted and added to the rows of a result."""
    width = op.out.shape[-1] if op.out.shape else 1
    work = elements(op, 2 * op.tensor("ids").numel * width, ARITHMETIC, Kind.REAL)
    return work + Cost(exact=False, reason="bound: no row is the first of its sum")


@lite(
    "NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5",
    "14 per pair of boxes, every box against those kept (bound)",
    family="selection",
)
def suppressed(op: OpCall) -> Cost:
    """The overlap of each box with every one that is kept; version 5 also lowers scores, by an exponential each."""
    boxes, kept = op.inputs[1].numel, op.out.numel
    soft = op.base.endswith("V5")
    overlaps = boxes * kept
    return Cost(
        elementwise_flops=(14 + 3 * soft) * overlaps + boxes, transcendentals=overlaps * (1 + soft),
        comparisons=5 * overlaps + boxes, exact=False, reason="bound: as many boxes as may be kept",
    )  # fmt: skip


@lite("BIDIRECTIONAL_SEQUENCE_RNN", "T B (X + H) H MACs in each direction, + 4 per unit and step", family="recurrent")
def both_ways(op: OpCall) -> Cost:
    """A plain recurrent layer forwards, and one backwards."""
    matrices = ("weights", "recurrent", "weights_back", "recurrent_back")
    steps = math.prod(op.inputs[0].shape[:-1])
    units = sum(op.shape(name)[0] for name in ("recurrent", "recurrent_back"))
    return product(op, steps * sum(op.tensor(name).numel for name in matrices), 4 * steps * units)
