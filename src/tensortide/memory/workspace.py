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

from tensortide.graph.model import Graph, OpView
from tensortide.memory import onednn
from tensortide.memory.cuda_workspace import CUDA_RULES
from tensortide.memory.layout import contiguous_copy, is_dense

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


def _batch_norm_backward(op: OpView) -> int:
    """The kernel allocates the gradient of the input twice and drops the first."""
    mask = op.arguments.get("output_mask", (True, True, True))
    return op.inputs[1].nbytes if isinstance(mask, tuple) and mask[0] else 0


def _contiguous(op: OpView) -> int:
    """Contiguous copies of the gradient and of the input, or of the indices."""
    return contiguous_copy(op.inputs[0]) + contiguous_copy(op.inputs[1])


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


WORKSPACE_RULES: dict[str, Rule] = {
    "aten.convolution.default": onednn.convolution,
    "aten.convolution_backward.default": onednn.convolution_backward,
    "aten.mkldnn_rnn_layer.default": onednn.lstm,
    "aten.mkldnn_rnn_layer_backward.default": onednn.lstm_backward,
    "aten.native_batch_norm_backward.default": _batch_norm_backward,
    "aten.native_layer_norm_backward.default": _contiguous,
    "aten.embedding_dense_backward.default": _contiguous,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _attention_backward,
    "aten._safe_softmax.default": _safe_softmax,
    "aten.mse_loss.default": _elementwise_loss,
    "aten.native_dropout.default": _dropout,
    "aten.native_dropout_backward.default": _dropout,
    "aten.smooth_l1_loss.default": _elementwise_loss,
}
"""Bytes beside inputs and outputs, by op."""
