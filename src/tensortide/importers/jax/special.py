"""Sparse arrays, cuDNN's recurrent layers and collectives that start and end apart, of JAX's experimental modules."""

from __future__ import annotations

import math

import msgspec

from tensortide.cost.access import selected_rows
from tensortide.cost.families import collective, free, move
from tensortide.cost.families.products import product
from tensortide.cost.families.reductions import merge_comparisons
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.cost.rules.recurrent import LSTM, Layer

jax = Vocabulary("jax")
jax.rows({
    "reciprocal": "division",
    "bcoo_todense bcoo_fromdense bcoo_transpose bcsr_todense bcsr_fromdense coo_todense coo_fromdense csr_todense "
    "csr_fromdense todense": move("A sparse array from a dense one, or back."),
    "psum_start psum_invariant_start unreduced_psum_start": collective("arithmetic"),
    "reduce_scatter_start unreduced_reduce_scatter_start": collective("arithmetic", divided=False),
    "all_gather_start all_gather_reduced_start all_to_all_start pbroadcast_start ppermute_start": collective(),
    "psum_done reduce_scatter_done all_gather_done all_to_all_done pbroadcast_done ppermute_done": free(),
    "assert_consumed_value check consume shard_alike xla_metadata_value with_memory_space_constraint": free(),
    "global_array_to_host_local_array host_local_array_to_global_array": free(),
    "new_log log_read log_extend box_get box_set": free(),
})  # fmt: skip


@jax("bcoo_extract bcsr_extract", "0 FLOP: indices and the selected elements", family="gather",
     bytes=selected_rows("indices", "x0"))  # fmt: skip
def extracted(op: OpCall) -> Cost:
    """The stored elements of a sparse array, taken from a dense one."""
    del op
    return Cost()


_STORED = "as if no stored element were void"


@jax("bcoo_dot_general bcsr_dot_general", "S n MACs, S stored elements, n the sizes of the result that are the right's",
     family="contraction")  # fmt: skip
def sparse_product(op: OpCall) -> Cost:
    """Every stored element of the left meets a row of the right, a dense array."""
    (contracted, batch) = (pair[1] for pair in op.arg("dimension_numbers"))
    right = op.inputs[-1].shape
    columns = math.prod(n for axis, n in enumerate(right) if axis not in (*contracted, *batch))
    op.let(S=op.inputs[0].numel, n=columns)
    return msgspec.structs.replace(product(op, op.inputs[0].numel * columns), exact=False, reason=_STORED)


@jax("bcoo_dot_general_sampled", "E k MACs, E the elements that are stored", family="contraction")
def sampled_product(op: OpCall) -> Cost:
    """Elements of a product of dense arrays, at given places."""
    contracted = op.arg("dimension_numbers")[0][0]
    k = math.prod(op.inputs[0].shape[axis] for axis in contracted)
    op.let(E=op.out.numel, k=k)
    return product(op, op.out.numel * k)


@jax(
    "coo_matvec csr_matvec coo_spmv csr_spmv coo_matmat csr_matmat coo_spmm csr_spmm",
    "S n MACs, n columns of the right",
    family="contraction",
)  # fmt: skip
def sparse_matrix(op: OpCall) -> Cost:
    """Every stored element meets a row of the dense matrix, or an element of the vector."""
    dense = op.inputs[-1].shape
    columns = dense[-1] if len(dense) > 1 else 1
    op.let(S=op.inputs[0].numel, n=columns)
    return msgspec.structs.replace(product(op, op.inputs[0].numel * columns), exact=False, reason=_STORED)


@jax("bcoo_sort_indices bcoo_sum_duplicates", "S L - 2^L + 1 integer ops, L = ceil(log2 S); 1 add per stored element")
def sorted_indices(op: OpCall) -> Cost:
    """Stored elements in the order of their indices; those of equal ones added, if asked."""
    data, indices = op.inputs[0], op.inputs[-1]
    stored = indices.shape[-2] if len(indices.shape) > 1 else 1
    lists = math.prod(indices.shape[:-2])
    op.let(S=stored)
    adds = data.numel if op.base == "bcoo_sum_duplicates" else 0
    cost = Cost(int_ops=lists * merge_comparisons(stored), elementwise_flops=adds)
    return cost + Cost(exact=False, reason="bound: merge sort at worst")


@jax("rnn_fwd", "per layer and direction: T B 4H (X + H) MACs", "An LSTM of cuDNN.", family="recurrent")
@jax(
    "rnn_bwd", "per layer and direction: T B 4H (X + H) MACs for the weights, as many for the rest", family="recurrent"
)
def recurrent(op: OpCall) -> Cost:
    """Gradients of an LSTM of cuDNN, of all that it takes."""
    backward = op.base == "rnn_bwd"
    batch, steps, features = op.inputs[3 if backward else 0].shape
    hidden, directions = int(op.arg("hidden_size")), 1 + bool(op.arg("bidirectional", False))
    op.let(T=steps, B=batch, X=features, H=hidden)
    cost = Cost()
    for number in range(int(op.arg("num_layers", 1))):
        layer = Layer(LSTM, steps * batch, batch, features if not number else directions * hidden, hidden)
        cost += (layer.backward(of_input=True, of_state=True) if backward else layer.forward()) * directions
    return cost


@jax("hessenberg", "5 n^3 / 3 MACs", "Hessenberg form of (n,n).", family="decomposition")
@jax("tridiagonal", "2 n^3 / 3 MACs", "Tridiagonal form of a symmetric (n,n).", family="decomposition")
@jax("cholesky_update", "3 n^2 / 2 MACs", family="decomposition")
def reduced_form(op: OpCall) -> Cost:
    """Cholesky factor of a matrix to which a product of a vector with itself is added."""
    n, count = op.inputs[0].shape[-1], math.prod(op.inputs[0].shape[:-2])
    op.let(n=n)
    macs = {"hessenberg": 5 * n**3 // 3, "tridiagonal": 2 * n**3 // 3}.get(op.base, 3 * n * n // 2)
    return msgspec.structs.replace(product(op, count * macs), exact=False, reason="leading term")
