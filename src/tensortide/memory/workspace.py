"""Memory that PyTorch's kernels take beyond what an op returns, where its source is understood.

A rule answers, for one op, how many bytes its kernel holds at its own peak beside its inputs and its outputs: copies
of operands in another layout, packed weights, masks. Rules come from reading the kernels and are compared with the
allocator's own record. Left out on purpose: scratch that grows with the number of threads (a fact of the machine,
not of the step), and a few bytes for wrapped Python scalars. CUDA kernels have rules of their own
(``cuda_workspace``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tensortide.graph.model import Graph, OpView, Tensor
from tensortide.memory import onednn
from tensortide.memory.cuda_workspace import CUDA_RULES
from tensortide.memory.layout import contiguous_copy, is_channels_last, is_dense

if TYPE_CHECKING:
    from tensortide.memory.lifetimes import Ints

Rule: TypeAlias = Callable[[OpView], int]
Workspace: TypeAlias = bool | Sequence[int]
"""Workspace that counts: as far as rules know it, none, or the bytes of each op, as they were measured."""


def workspace_bytes(graph: Graph, device: str, counted: Workspace = True) -> Ints:
    """Bytes that the kernel of each op of ``graph`` holds on ``device`` beside its inputs and outputs, if counted."""
    import numpy as np

    if not isinstance(counted, bool):
        return np.array(counted, np.int64)
    if not counted:
        return np.zeros(len(graph), np.int64)
    extra = np.zeros(len(graph), np.int64)
    rules = rules_of(device)
    known = [call.op in rules for call in graph.calls]
    for i, op in enumerate(graph.ops):
        if known[op.call]:
            extra[i] = workspace_of(graph, i, device)
    return extra


def workspace_of(graph: Graph, index: int, device: str) -> int:
    """Bytes that the kernel of op ``index`` holds on ``device`` beside its inputs and outputs, as far as known."""
    view = graph[index]
    rule = rules_of(device).get(view.name)
    if rule is None:
        return 0
    return rule(view) if graph.storages[view.inputs[0].storage].device == device else 0


def rules_of(device: str) -> Mapping[str, Rule]:
    """The rules of kernels on ``device``, by op."""
    return {"cpu": WORKSPACE_RULES, "cuda": CUDA_RULES}.get(device.partition(":")[0], {})


DENSE: dict[str, tuple[int, ...]] = {
    "_softmax": (0,),
    "_log_softmax": (0,),
    "_softmax_backward_data": (0, 1),
    "_log_softmax_backward_data": (0, 1),
    "native_layer_norm": (0,),
    "native_layer_norm_backward": (0, 1),
    "embedding_dense_backward": (0, 1),
    "max_pool3d_with_indices_backward": (0, 2),
    "avg_pool3d_backward": (0,),
    "_adaptive_avg_pool3d_backward": (0,),
    "adaptive_max_pool3d_backward": (0, 2),
    "fractional_max_pool2d_backward": (0, 2),
    "fractional_max_pool3d_backward": (0, 2),
    "upsample_nearest1d_backward": (0,),
    "upsample_nearest3d_backward": (0,),
    "_upsample_nearest_exact1d_backward": (0,),
    "_upsample_nearest_exact3d_backward": (0,),
    "upsample_linear1d_backward": (0,),
    "upsample_bicubic2d_backward": (0,),
    "upsample_trilinear3d_backward": (0,),
    "reflection_pad1d_backward": (0,),
    "reflection_pad3d_backward": (0,),
    "replication_pad1d_backward": (0,),
    "replication_pad3d_backward": (0,),
    "grid_sampler_2d_backward": (0,),
    "col2im": (0,),
}
"""Operands that kernels need dense: they copy what is strided otherwise, such as the gradient of a sum, which repeats
one number."""
AS_FIRST: dict[str, tuple[int, ...]] = {
    "max_pool2d_with_indices_backward": (0, 2),
    "avg_pool2d_backward": (0,),
    "_adaptive_avg_pool2d_backward": (0,),
    "upsample_nearest2d_backward": (0,),
    "upsample_bilinear2d_backward": (0,),
    "_upsample_nearest_exact2d_backward": (0,),
    "reflection_pad2d_backward": (0,),
    "replication_pad2d_backward": (0,),
    "pixel_unshuffle": (0,),
}
"""Operands that kernels of images need dense, or all with their channels last if the first has them so: the result,
too."""
PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
"""Factors of matrix products, which the library takes if one of their dimensions lies dense."""


def _densified(op: OpView) -> int:
    """Dense copies of the operands that the kernel needs so."""
    return sum(contiguous_copy(op.inputs[place]) for place in DENSE[op.name.split(".")[1]])


def _ordered(tensor: Tensor, last: bool) -> int:
    """Bytes of the copy that makes an image dense, with its channels last if that is asked: none if it is so."""
    return 0 if is_dense(tensor, (0, 2, 3, 1) if last else None) else tensor.nbytes


def _as_first(op: OpView) -> int:
    """Copies of operands and of the result in the order of the first."""
    last = is_channels_last(op.inputs[0])
    operands = [op.inputs[place] for place in AS_FIRST[op.name.split(".")[1]]]
    return sum(_ordered(x, last) for x in (*operands, op.outputs[0]))


def _factors(op: OpView) -> int:
    """Copies of the factors whose rows and columns both have gaps; of a batch one matrix after the other."""
    copied = 0
    for place in PRODUCTS[op.name.split(".")[1]]:
        x = op.inputs[place]
        (rows, columns), (down, right) = x.shape[-2:], x.strides[-2:]
        if not (down == 1 and right >= max(1, rows)) and not (right == 1 and down >= max(1, columns)):
            copied += x.itemsize * rows * columns
    return copied if op.outputs[0].numel else 0


def _gelu_backward(op: OpView) -> int:
    """Dense copies of the gradient and of the result for the kernel of oneDNN, which is that of dense fp32 inputs. That
    of bf16 depends on the machine."""
    gradient, x = op.inputs[:2]
    if x.dtype != "float32" or op.arguments.get("approximate", "none") != "none" or not is_dense(x):
        return 0
    return contiguous_copy(gradient) + contiguous_copy(op.outputs[0])


def _log_sum_exp(op: OpView) -> int:
    """The exponential of every element, and the largest of each row."""
    return op.inputs[0].nbytes + op.outputs[0].nbytes


def _batch_norm_backward(op: OpView) -> int:
    """The kernel of operands in one order, dense or channels last, allocates the gradient of the input twice and drops
    the first."""
    gradient, x = op.inputs[:2]
    mask = op.arguments.get("output_mask", (True, True, True))
    wanted = isinstance(mask, tuple) and mask[0]
    last = is_channels_last(x)
    return x.nbytes if wanted and is_channels_last(gradient) == last and (last or is_dense(gradient)) else 0


def _attention_backward(op: OpView) -> int:
    """A copy of the output's gradient unless it lies as (batch, sequence, heads, width)."""
    gradient = op.inputs[0]
    return 0 if is_dense(gradient, (0, 2, 1, 3)) else gradient.nbytes


def _safe_softmax(op: OpView) -> int:
    """A mask of the elements that are minus infinity, and of the rows that are nothing else."""
    x = op.inputs[0]
    dim = op.arguments.get("dim")
    return x.numel + (x.numel // x.shape[dim] if isinstance(dim, int) and x.shape and x.shape[dim] else 0)


def _elementwise_loss(op: OpView) -> int:
    """A second buffer of the loss of every element, where it is reduced (``reduction`` other than 0)."""
    x, y = op.inputs[:2]
    if op.arguments.get("reduction", 1) == 0:
        return 0
    return x.itemsize * math.prod(
        max(a, b) for a, b in itertools.zip_longest(x.shape[::-1], y.shape[::-1], fillvalue=1)
    )


def _dropout(op: OpView) -> int:
    """The mask in the dtype of what it is multiplied with."""
    return 0 if op.arguments.get("train") is False else op.inputs[0].nbytes


def _promoted(op: OpView) -> int:
    """Operands in the dtype of the result, where theirs is another one."""
    result = op.outputs[0]
    return sum(x.numel * result.itemsize for x in op.inputs if x.dtype != result.dtype and x.shape)


WORKSPACE_RULES: dict[str, Rule] = {
    "aten.convolution.default": onednn.convolution,
    "aten.convolution_backward.default": onednn.convolution_backward,
    "aten.mkldnn_rnn_layer.default": onednn.lstm,
    "aten.mkldnn_rnn_layer_backward.default": onednn.lstm_backward,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    "aten.gelu_backward.default": _gelu_backward,
    "aten.logsumexp.default": _log_sum_exp,
    **{f"aten.{name}.default": _densified for name in DENSE},
    **{f"aten.{name}.default": _as_first for name in AS_FIRST},
    **{f"aten.{name}.default": _factors for name in PRODUCTS},
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
    "aten._safe_softmax.default": _safe_softmax,
    "aten.mse_loss.default": _elementwise_loss,
    "aten.native_dropout.default": _dropout,
    "aten.native_dropout_backward.default": _dropout,
    "aten.smooth_l1_loss.default": _elementwise_loss,
    **{f"aten.{name}.Tensor": _promoted for name in ("add", "sub", "mul", "div")},
}
"""Bytes beside inputs and outputs, by op."""
