"""Names of the inputs of operators, and which operators only rename what they take."""

from __future__ import annotations

from collections.abc import Sequence

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
