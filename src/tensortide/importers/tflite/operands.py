"""Names of the inputs of operators, and which operators only rename what they take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tensortide.graph.handles import Handle
from tensortide.importers.tflite.schema import Model, Operator, Stored, Subgraph
from tensortide.importers.tflite.trips import whole_numbers

VIEWS = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "READ_VARIABLE", "STABLEHLO_RESHAPE"})
"""Operators whose output is their first input under another shape."""

_LSTM = (
    "input input_to_input input_to_forget input_to_cell input_to_output recurrent_to_input recurrent_to_forget "
    "recurrent_to_cell recurrent_to_output cell_to_input cell_to_forget cell_to_output input_gate_bias "
    "forget_gate_bias cell_gate_bias output_gate_bias projection projection_bias output_state cell_state"
)
_NAMES = {
    "CONV_2D": "input filter bias",
    "CONV_3D": "input filter bias",
    "DEPTHWISE_CONV_2D": "input filter bias",
    "FULLY_CONNECTED": "input weights bias",
    "TRANSPOSE_CONV": "output_shape filter input bias",
    "CONV_3D_TRANSPOSE": "output_shape filter input bias",
    "BATCH_MATMUL": "x y",
    "EMBEDDING_LOOKUP": "indices params",
    "GATHER": "params indices",
    "GATHER_ND": "params indices",
    "STABLEHLO_GATHER": "params indices",
    "HASHTABLE_LOOKUP": "indices keys params",
    "EMBEDDING_LOOKUP_SPARSE": "ids indices shape weights params",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _LSTM,
    "LSTM": _LSTM,
    "UNIDIRECTIONAL_SEQUENCE_RNN": "input weights recurrent bias state",
    "RNN": "input weights recurrent bias state",
    "BIDIRECTIONAL_SEQUENCE_RNN": "input weights recurrent bias state weights_back recurrent_back bias_back state_back",
    "SVDF": "input weights_feature weights_time bias state",
}


def operands(name: str, present: Sequence[int]) -> tuple[str, ...]:
    """Name the inputs of an operator that are ``present``, by their numbers; others are ``input_3``."""
    names = _NAMES.get(name, "").split()
    return tuple(names[i] if i < len(names) else f"input_{i}" for i in present)


def first_axis(
    model: Model, graph: Subgraph, op: Operator, inputs: Sequence[tuple[int, Handle]], tensor: Stored
) -> int | None:
    """Return the first size of ``tensor``, which ``op`` computes and whose first axis is open, from those of its
    ``inputs`` (by their places); None where they do not tell it. It may carry an expression."""
    opened = [(graph.tensors[op.inputs[place]], handle) for place, handle in inputs]
    source = next(((stored, handle) for stored, handle in opened if stored.dynamic == (0,)), None)
    if source is None:
        return None
    stored, handle = source
    size = handle.shape[0]
    if op.name in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"):
        blocks = whole_numbers(model, graph, op.inputs[1]) if len(op.inputs) > 1 else None
        if not blocks or min(blocks) < 1:
            return None
        count = math.prod(blocks)
        return size * count if op.name == "SPACE_TO_BATCH_ND" else size // count
    if op.name in VIEWS:
        return size * math.prod(handle.shape[1:]) // (math.prod(tensor.shape[1:]) or 1)
    return size if tensor.shape[0] == stored.shape[0] else None
