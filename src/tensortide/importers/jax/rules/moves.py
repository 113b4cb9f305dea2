"""Primitives of JAX that move bytes or nothing at all, and communication between devices."""

from __future__ import annotations

from tensortide.cost.access import Bytes, nothing, selected_rows, size
from tensortide.cost.kinds import elements, kind_of
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON
from tensortide.graph.collectives import COLLECTIVES
from tensortide.importers.jax.rules.register import jax
from tensortide.importers.jax.views import SAME

_VIEWS = "squeeze expand_dims broadcast_in_dim transpose slice split unstack real imag bitcast_convert_type"
_CONTROL = (
    "constant carry row empty empty2 shard unshard copy_to_host_async create_token after_all debug_callback "
    "debug_print axis_index platform_index dimension_size shape_assertion zeros_like new_ref free_ref empty_ref "
    "new_box dce_sink pvary_done unreachable create_linear dim_as_value broadcast_to"
)


@jax(f"{_VIEWS} {_CONTROL} {' '.join(sorted(SAME - {'copy_p'}))}", "0: no bytes move", bytes=nothing, is_free=True)
def free(op: OpCall) -> Cost:
    """A renaming, an allocation, a question about a shape, or control flow."""
    del op
    return FREE


def _copied(op: OpCall) -> Bytes:
    """A reshape in the same storage moves nothing."""
    if op.inputs and op.outputs and op.out.storage == op.inputs[0].storage:
        return Bytes(0, 0)
    return Bytes(size(op.inputs), size(op.outputs))


@jax("reshape", "0 FLOP: a view, or a copy where the elements lie in another order", bytes=_copied)
@jax("copy concatenate rev pad tile stack complex conj", "0 FLOP: read and written", "A copy, elsewhere or reordered.")
def copied(op: OpCall) -> Cost:
    """The same numbers."""
    del op
    return FREE


@jax("gather", "0 FLOP: indices and the selected elements", bytes=selected_rows("indices"))
@jax("dynamic_slice", "0 FLOP: the selected elements", "A part at indices.", bytes=selected_rows("indices"))
@jax("get", "0 FLOP: the selected elements", "The contents of a mutable array.", bytes=selected_rows())
def selected(op: OpCall) -> Cost:
    """Rows at indices."""
    del op
    return FREE


def _replaced(op: OpCall) -> Bytes:
    """The part is read and written; of the rest nobody makes a copy where its memory can be reused."""
    part = op.first("update", "updates", "row", "x1")
    return Bytes(size([part, *op.tensors("indices")]), part.nbytes)


@jax("dynamic_update_slice scatter", "0 FLOP: the part is read and written", bytes=_replaced)
@jax("write_row swap", "0 FLOP: the part is read and written", "A row of an array that a loop fills.", bytes=_replaced)
@jax("result", "0", "The results of one branch of a conditional.", bytes=nothing, is_free=True)
def replaced(op: OpCall) -> Cost:
    """A part of an array takes new values."""
    del op
    return FREE


@jax("addupdate accum_grad_in_ref", "1 per element")
def added(op: OpCall) -> Cost:
    """A sum in place."""
    return elements(op, op.inputs[1].numel if len(op.inputs) > 1 else op.inputs[0].numel, ARITHMETIC)


@jax("symmetric_product lu_pivots_to_permutation", "1 integer op per element")
def permutations(op: OpCall) -> Cost:
    """Permutations of pivots."""
    return Cost(int_ops=sum(tensor.numel for tensor in op.outputs))


_EXCHANGES = " ".join(
    variants.partition("/")[0] for row in COLLECTIVES.values() if not row.reduces for variants in row.jax.split()
)


@jax("psum", "(N - 1) adds per element over N devices", "Sum over devices.")
@jax("pmax pmin", "(N - 1) comparisons per element over N devices", "Largest or smallest over devices.")
@jax("reduce_scatter", "(N - 1) adds per element that stays, over N devices", "Sum over devices, a part on each.")
def reduced(op: OpCall) -> Cost:
    """A collective that combines: a device's share of the work, every element combined once per other device."""
    count = int(op.arg("group_size", 1))
    op.let(N=count)
    made = sum(tensor.numel for tensor in op.outputs)
    weights = COMPARISON if op.base in ("pmax", "pmin") else ARITHMETIC
    shared = made * (count - 1)
    return elements(op, shared if op.base == "reduce_scatter" else -(-shared // count), weights, kind_of(op.outputs))


@jax(_EXCHANGES, "0 FLOP: read and written")
def exchanged(op: OpCall) -> Cost:
    """A collective that moves data between devices."""
    del op
    return FREE
