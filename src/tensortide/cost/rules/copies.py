"""Ops that move bytes or nothing at all: copies, fills, allocations, queries, communication. Hardly any FLOPs.

Counting convention: docs/cost.md, bytes.
"""

from __future__ import annotations

from tensortide.cost.access import Bytes, reads, size, writes_only, written
from tensortide.cost.families import collective, fill, folded, free, move
from tensortide.cost.kinds import Kind, dtype_kind
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary, registered, rule
from tensortide.graph.communication import OPS, Part, named

aten = Vocabulary("aten", "fill")
ALLOCATIONS = (
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided empty_quantized set resize resize_as "
    "sparse_coo_tensor _sparse_coo_tensor_unsafe _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors "
    "sparse_compressed_tensor _sparse_compressed_tensor_unsafe _sparse_compressed_tensor_with_dims "
    "_resize_output _empty_affine_quantized _empty_per_channel_affine_quantized resize_as_sparse sparse_resize "
    "sparse_resize_and_clear _efficientzerotensor"
)
QUESTIONS = (
    "is_same_size is_pinned is_coalesced is_set_to _has_same_storage_numel qscheme q_scale q_zero_point "
    "q_per_channel_axis sparse_dim dense_dim _dimI _dimV _nnz _version record_stream _assert_tensor_metadata "
    "_fused_sdp_choice _cudnn_init_dropout_state _print sym_constrain_range sym_constrain_range_for_size "
    "_functional_sym_constrain_range _functional_sym_constrain_range_for_size _make_dep_token _use_cudnn_ctc_loss "
    "_use_miopen_ctc_loss _new_zeros_with_same_feature_meta _nested_tensor_size _nested_tensor_strides "
    "_nested_tensor_storage_offsets _nested_get_offsets _nested_get_lengths _nested_get_ragged_idx "
    "_nested_get_min_seqlen _nested_get_max_seqlen _nested_get_jagged_dummy _assert_scalar _functional_assert_scalar "
    "_validate_compressed_sparse_indices _conj _neg_view _unsafe_view lift lift_fresh _reshape_alias detach alias "
    "_coalesced _fw_primal _make_dual _indices _values indices values crow_indices col_indices ccol_indices "
    "row_indices _mkldnn_reshape _mkldnn_transpose t_ transpose_ squeeze_ unsqueeze_ as_strided_ "
    "swapaxes_ swapdims_ detach_ q_per_channel_scales q_per_channel_zero_points from_file"
)
PADDINGS = "reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d"
COPIES = (
    "clone copy _to_copy _copy_from _copy_from_and_resize contiguous cat _cat stack _stack _chunk_cat block_diag "
    f"repeat tile flip roll rot90 tril triu narrow_copy constant_pad_nd {PADDINGS} pixel_shuffle pixel_unshuffle "
    "channel_shuffle native_channel_shuffle diag_embed unsafe_split unsafe_split_with_sizes split_copy "
    "split_with_sizes_copy chunk_copy unbind_copy expand_copy view_copy _reshape_alias_copy _reshape_copy "
    "permute_copy transpose_copy t_copy squeeze_copy unsqueeze_copy select_copy slice_copy diagonal_copy "
    "as_strided_copy detach_copy alias_copy unfold_copy view_as_real_copy view_as_complex_copy lift_fresh_copy "
    "_conj_copy _neg_view_copy _pin_memory _lazy_clone to_mkldnn _to_dense _to_sparse _to_sparse_csr to_padded_tensor "
    "_to_sparse_csc _to_sparse_bsr _to_sparse_bsc _coalesce sparse_mask _sparse_mask_projection "
    "copy_sparse_to_sparse int_repr "
    "_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _nested_view_from_buffer_copy "
    "_jagged_to_padded_dense_forward _padded_dense_to_jagged_forward _nested_from_padded _nested_tensor_from_mask "
    "_nested_from_padded_tensor _nested_tensor_from_tensor_list _pack_padded_sequence _cudnn_rnn_flatten_weight "
    "mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight _convert_weight_to_int4pack "
    "_convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight lu_unpack repeat_interleave _cslt_compress "
    "_to_sparse_semi_structured _sparse_semi_structured_tile _sparse_semi_structured_apply "
    "_sparse_semi_structured_apply_dense"
)
FILLS = (
    "zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full fill zero scalar_tensor eye "
    "tril_indices triu_indices"
)


def _replaced(op: OpCall) -> Bytes:
    """The part of self that stays, and src, are read."""
    source = size([op.tensor("src")])
    return Bytes(max(source, size([op.tensor("self")])), written(op))


aten.rows({
    f"{ALLOCATIONS} {QUESTIONS}": free("An allocation, a renaming or a question about metadata."),
    COPIES: move(),
    FILLS: fill(),
    "select_backward slice_backward diagonal_backward as_strided_scatter _nested_select_backward "
    "value_selecting_reduction_backward": move("The gradient of a view: zeros with a copy in a part of them."),
    "select_scatter slice_scatter diagonal_scatter": move(
        "A copy with one part from elsewhere.", formula="0 FLOP: the part of self that stays and src are read",
        bytes=_replaced,
    ),
    " ".join(f"{name}_backward" for name in PADDINGS.split()): folded("fill", bytes=reads("grad_output")),
    "_local_scalar_dense item is_nonzero": move("One element given to the program."),
    "_nested_tensor_from_mask_left_aligned": move("A check of a mask.", bytes=reads("mask")),
    "_assert_async _functional_assert_async": move("A check of one flag on the device.", bytes=reads("self")),
})  # fmt: skip


@aten(
    "arange range",
    "1 integer op (2 FLOP if floating) per element",
    meaning="Start plus index times step.",
    bytes=writes_only,
)
@aten(
    "linspace logspace",
    "2 FLOP per element (3 and a power for logspace)",
    meaning="Evenly spaced points.",
    bytes=writes_only,
)
@aten(
    "hann_window hamming_window blackman_window bartlett_window kaiser_window fft_fftfreq fft_rfftfreq",
    "4 per element",
    bytes=writes_only,
)
def generated(op: OpCall) -> Cost:
    """A window function: a multiple of the index, a cosine and a linear form of it."""
    count = op.out.numel
    if dtype_kind(op.out.dtype) is Kind.INTEGER:
        return Cost(int_ops=count)
    special = op.base == "logspace" or op.base.endswith("_window")
    flops = {"logspace": 3, "blackman_window": 10}.get(op.base, 4 if special else 2)
    return Cost(elementwise_flops=flops * count, transcendentals=special * count)


# Communication between devices: copies, and the arithmetic of reductions on the way. How many devices take part is a
# value that is not known: a reduction counts one operation per element received.


registered(named(Part.MOVES), collective(meaning="Data sent to other devices."))
registered(
    named(Part.PACKS), collective(meaning="Shards of parameters or gradients, packed for an exchange or unpacked.")
)
registered(named(Part.WAITS, Part.NAMES), free("Waiting for data or for other processes, or naming them."))


@rule(*named(Part.REDUCES), formula="1 per element received (bound from below)", family="collective")
def reduced(op: OpCall) -> Cost:
    """Data combined with that of other devices."""
    outputs = op.outputs or [tensor for name in OPS[op.name].writes for tensor in op.tensors(name)]
    count = sum(tensor.numel for tensor in outputs)
    return Cost(elementwise_flops=count, exact=False, reason="one operation per element received")
