"""Ops that PyTorch's compiler puts in place of ATen's. Each counts as the op it stands for: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.access import reads
from tensortide.cost.families import move, numbered, pool, random
from tensortide.cost.kinds import Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary

prims = Vocabulary("prims")
prims.rows({
    "iota": numbered(),
    "inductor_seed inductor_seeds inductor_random inductor_randint": random(),
    "inductor_lookup_seed inductor_force_stride_order": move("A value in another place or layout."),
    "fma": Weights(2, complex_flops=8),
    "_low_memory_max_pool_with_offsets": pool("max", "kernel_size"),
})  # fmt: skip


@prims("prepare_softmax_online", "4n - 2 per row: the largest, then the sum of exponentials", family="softmax")
def softmax_statistics(op: OpCall) -> Cost:
    """Maximum and sum of exponentials of each row."""
    count, rows = op.inputs[0].numel, op.outputs[0].numel
    op.let(R=rows, n=count // max(1, rows))
    return Cost(elementwise_flops=4 * count - 2 * rows, transcendentals=count, comparisons=count - rows)


@prims(
    "_low_memory_max_pool_offsets_to_indices",
    "2 d integer ops per element of d dimensions",
    bytes=reads("self"),
    family="window",
)
def pool_indices(op: OpCall) -> Cost:
    """Places in windows as places in the input."""
    return Cost(int_ops=2 * len(op.arg("kernel_size")) * op.out.numel)
