"""Variables, optimizer steps, row lookups and row updates of TensorFlow graphs. Counting convention: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.access import Bytes, reads, selected_rows, size, writes_only
from tensortide.cost.kinds import Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import rule


def _moved(op: OpCall) -> Bytes:
    """The value is read, the variable written."""
    return Bytes(size(op.inputs[1:2]), op.inputs[1].numel * op.inputs[1].itemsize)


def _added(op: OpCall) -> Bytes:
    """Variable and value are read, the variable written."""
    read, wrote = _moved(op)
    return Bytes(read + wrote, wrote)


@rule("tf::Assign", "tf::AssignVariableOp", formula="0 FLOP: value read, variable written", bytes=_moved)
def assign(op: OpCall) -> Cost:
    """A variable gets a value."""
    del op
    return Cost()


@rule(
    "tf::AssignAdd", "tf::AssignSub", "tf::AssignAddVariableOp", "tf::AssignSubVariableOp",
    formula="1 per element", bytes=_added,
)  # fmt: skip
def assign_add(op: OpCall) -> Cost:
    """A value is added to a variable, or taken from it."""
    return elements(op, op.inputs[1].numel, Weights(1, 0, 0, 2))


STEPS: dict[str, tuple[int, int, tuple[str, ...], str]] = {
    "GradientDescent": (2, 0, (), "scale and subtract the gradient"),
    "Momentum": (4, 0, ("accum",), "decay, add the gradient; scale and subtract"),
    "Adagrad": (6, 2, ("accum",), "square and add; root, divide, scale, subtract"),
    "Adam": (13, 2, ("m", "v"), "first moment 3, second moment 4, denominator 3, update 3"),
    "RMSProp": (11, 1, ("ms", "mom"), "mean square 4, denominator 2, momentum 4, update 1"),
}
"""Optimizer steps: FLOPs and special functions per element, the state they read and write, what they do."""


def _step(name: str) -> None:
    flops, special, slots, text = STEPS[name]

    def moved(op: OpCall) -> Bytes:
        """Variable, gradient and state are read; variable and state written. With indices, only the rows they name."""
        gradient = op.tensor("delta" if name == "GradientDescent" else "grad")
        state = (1 + len(slots)) * gradient.numel * gradient.itemsize
        return Bytes(state + gradient.region_bytes + size(op.tensors("indices")), state)

    @rule(
        *(f"tf::{prefix}Apply{name}" for prefix in ("", "Resource", "Sparse", "ResourceSparse")),
        formula=f"{flops} per element (Momentum: + 2 Nesterov)" if name == "Momentum" else f"{flops} per element",
        bytes=moved,
    )
    def step(op: OpCall) -> Cost:
        count = op.tensor("delta" if name == "GradientDescent" else "grad").numel
        each = flops + (2 if op.arg("use_nesterov", False) else 0)
        op.let(elements=count, per_element=each)
        return Cost(elementwise_flops=each * count, transcendentals=special * count)

    step.__doc__ = f"One step per element of the gradient: {text}."


for _name in STEPS:
    _step(_name)


@rule(
    "tf::Gather", "tf::GatherV2", "tf::GatherNd", "tf::ResourceGather", "tf::ResourceGatherNd",
    formula="0 FLOP: indices and the selected rows", bytes=selected_rows("indices"),
)  # fmt: skip
def gather(op: OpCall) -> Cost:
    """Rows by their indices."""
    del op
    return Cost()


def _updated_rows(op: OpCall) -> Bytes:
    """Indices, updates and the rows they touch are read; the rows written."""
    updates = op.tensor("updates")
    rows = updates.numel * updates.itemsize
    return Bytes(size([*op.tensors("indices"), updates]) + rows, rows)


@rule(
    *(f"tf::{kind}Scatter{how}" for kind in ("", "Resource") for how in ("Add", "Sub", "NdAdd", "NdSub")),
    "tf::ScatterMul", "tf::ScatterDiv",
    formula="1 per element of the updates", bytes=_updated_rows,
)  # fmt: skip
def scatter_add(op: OpCall) -> Cost:
    """Rows of a variable changed in place."""
    return elements(op, op.tensor("updates").numel, Weights(1, 0, 0, 2))


def _replaced_rows(op: OpCall) -> Bytes:
    updates = op.tensor("updates")
    return Bytes(size([*op.tensors("indices"), updates]), updates.numel * updates.itemsize)


@rule(
    "tf::ScatterUpdate", "tf::ResourceScatterUpdate", "tf::ScatterNdUpdate",
    formula="0 FLOP: rows written", bytes=_replaced_rows,
)  # fmt: skip
def scatter(op: OpCall) -> Cost:
    """Rows of a variable replaced."""
    del op
    return Cost()


@rule("tf::ScatterNd", formula="1 per element of the updates", bytes=reads("indices", "updates"))
def scatter_new(op: OpCall) -> Cost:
    """Zeros with updates added at indices."""
    return elements(op, op.tensor("updates").numel, Weights(1, 0, 0, 2))


@rule(
    "tf::UnsortedSegmentSum", "tf::SegmentSum", "tf::UnsortedSegmentProd",
    formula="1 per element (bound: distinct segments need one less)", bytes=reads("data", "segment_ids"),
)  # fmt: skip
def segment_sum(op: OpCall) -> Cost:
    """Sum of the rows of equal segment."""
    work = elements(op, op.inputs[0].numel, Weights(1, 0, 0, 2))
    return work + Cost(exact=False, reason="bound: equal segments are not seen")


@rule("tf::UnsortedSegmentMax", "tf::UnsortedSegmentMin", formula="1 compared per element (bound)")
def segment_extremum(op: OpCall) -> Cost:
    """Largest or smallest of the rows of equal segment."""
    work = elements(op, op.inputs[0].numel, Weights(1, 0, 1))
    return work + Cost(exact=False, reason="bound: equal segments are not seen")


@rule(
    "tf::RandomUniform", "tf::RandomUniformInt", "tf::RandomStandardNormal", "tf::TruncatedNormal", "tf::RandomShuffle",
    "tf::RandomGamma", "tf::StatelessRandomUniform", "tf::StatelessRandomNormal", "tf::StatelessTruncatedNormal",
    formula="E random draws, written", bytes=writes_only,
)  # fmt: skip
def drawn(op: OpCall) -> Cost:
    """One draw per element."""
    return Cost(random_draws=op.out.numel)


@rule("tf::Multinomial", formula="2 n per row; per sample one random draw and log2 n comparisons")
def multinomial(op: OpCall) -> Cost:
    """Samples from rows of weights: normalized running sums, searched."""
    count, samples = op.tensor("logits").numel, op.out.numel
    searched = samples * int(op.shape("logits")[-1]).bit_length()
    return Cost(elementwise_flops=2 * count + searched, comparisons=searched, random_draws=samples)


@rule(
    "tf::LogUniformCandidateSampler",
    "tf::UniformCandidateSampler",
    formula="one draw per sample, 10 per expected count",
)
def sampler(op: OpCall) -> Cost:
    """Shared negative samples, and how often each class is expected among them: a probability (two adds, two divisions,
    a logarithm) and ``-expm1(n log1p(-p))``."""
    samples, expected = op.outputs[0].numel, sum(tensor.numel for tensor in op.outputs[1:])
    cost = Cost(elementwise_flops=10 * expected, transcendentals=5 * expected, random_draws=samples)
    return cost + Cost(exact=False, reason="draws that are rejected as duplicates are not seen")
