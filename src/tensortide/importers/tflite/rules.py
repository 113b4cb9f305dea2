"""Cost rules of TensorFlow Lite's operators. The same counts as for the ops of other vocabularies: docs/cost.md.

What an operator is fused with (an activation) is charged with it. Weights tell more than options do: groups show as a
depth of the weights that is smaller than that of the input.
"""

from __future__ import annotations

import math

from tensortide.cost.families import (
    combined,
    contraction,
    convolution,
    fill,
    fourier,
    free,
    gather,
    integer,
    local_response,
    move,
    numbered,
    part,
    placed,
    pool,
    random,
    recurrent,
    reduction,
    resample,
    running,
    sampled,
    search,
    segment,
    selected,
    softmax,
    sort,
    topk,
)
from tensortide.cost.families.products import product
from tensortide.cost.kinds import Weights, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.graph.model import Tensor
from tensortide.importers.tflite import newer

__all__ = ["newer"]  # imported for the rules that it registers

lite = Vocabulary("tflite", then="fused_activation")
lite.rows({
    "SUB NEG ADD STABLEHLO_ADD STABLEHLO_SUBTRACT STABLEHLO_NEGATE": "arithmetic",
    "MUL SQUARE STABLEHLO_MULTIPLY": "multiplication",
    "SQUARED_DIFFERENCE DEQUANTIZE": Weights(2),
    "DIV STABLEHLO_DIVIDE": "division",
    "FLOOR_DIV FLOOR_MOD STABLEHLO_REMAINDER": "remainder",
    "MAXIMUM MINIMUM EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL RELU ABS SIGN FLOOR CEIL ROUND SELECT "
    "SELECT_V2 STABLEHLO_MAXIMUM STABLEHLO_MINIMUM STABLEHLO_ABS STABLEHLO_FLOOR STABLEHLO_COMPARE "
    "STABLEHLO_SELECT": "comparison",
    "RELU6 RELU_N1_TO_1 RELU_0_TO_1 STABLEHLO_CLAMP": "bounds",
    "POW EXP LOG SQRT RSQRT SIN COS TANH ATAN2 STABLEHLO_POWER STABLEHLO_EXPONENTIAL STABLEHLO_LOG STABLEHLO_RSQRT "
    "STABLEHLO_COSINE STABLEHLO_TANH STABLEHLO_CBRT": "special",
    "LOGISTIC STABLEHLO_LOGISTIC": "sigmoid",
    "LEAKY_RELU PRELU": "leaky_relu",
    "ELU": "elu",
    "HARD_SWISH": "hard_swish",
    "GELU": "gelu",
    "COMPLEX_ABS": Weights(4, 1),
    "QUANTIZE": "quantize",
    "FAKE_QUANT": "fake_quantize",
    "CONCATENATION": move("Tensors one after the other."),
    "MAX_POOL_2D": pool("max", "filter_width filter_height"),
    "AVERAGE_POOL_2D": pool("mean", "filter_width filter_height"),
    "L2_POOL_2D": pool("rms", "filter_width filter_height"),
    "CONV_2D": convolution("O*I", kernel="filter", image="input"),
    "CONV_3D": convolution("*IO", kernel="filter", image="input"),
    "DEPTHWISE_CONV_2D": convolution("1*O", kernel="filter", image="input"),
    "TRANSPOSE_CONV": convolution("O*I", kernel="filter", of="input", image="input", transposed=True),
    "CONV_3D_TRANSPOSE": convolution("*OI", kernel="filter", of="input", image="input", transposed=True),
    "FULLY_CONNECTED": contraction("*,nk", "input weights", bias="bias"),
    "BATCH_MATMUL": contraction("*_k", "x", turned="adj_x"),
    "RESHAPE SQUEEZE EXPAND_DIMS BITCAST SHAPE RANK IF READ_VARIABLE VAR_HANDLE CALL_ONCE HASHTABLE REAL IMAG "
    "HASHTABLE_IMPORT HASHTABLE_SIZE STABLEHLO_RESHAPE": free(),
    "TRANSPOSE PACK UNPACK SPLIT SPLIT_V TILE BROADCAST_TO SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND SPACE_TO_DEPTH "
    "DEPTH_TO_SPACE CAST REVERSE_V2 REVERSE_SEQUENCE RESIZE_NEAREST_NEIGHBOR MATRIX_DIAG MATRIX_SET_DIAG DENSIFY "
    "DILATE ASSIGN_VARIABLE SCATTER_ND SPARSE_TO_DENSE CONCAT_EMBEDDINGS STABLEHLO_CONCATENATE "
    "STABLEHLO_BROADCAST_IN_DIM STABLEHLO_TRANSPOSE STABLEHLO_CONVERT": move(),
    "SLICE STRIDED_SLICE STABLEHLO_SLICE STABLEHLO_DYNAMIC_SLICE": part(),
    "PAD PADV2 MIRROR_PAD DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_DYNAMIC_UPDATE_SLICE": placed(),
    "FILL ZEROS_LIKE": fill(),
    "ONE_HOT": placed(meaning="Zeros with a one for every index."),
    "GATHER GATHER_ND EMBEDDING_LOOKUP HASHTABLE_LOOKUP HASHTABLE_FIND STABLEHLO_GATHER": gather(),
    "LOGICAL_AND LOGICAL_OR LOGICAL_NOT BITWISE_XOR RIGHT_SHIFT STABLEHLO_AND STABLEHLO_OR "
    "STABLEHLO_SHIFT_LEFT": integer(),
    "RANDOM_UNIFORM RANDOM_STANDARD_NORMAL": random(),
    "STABLEHLO_RNG_BIT_GENERATOR": random(),
    "MULTINOMIAL": sampled(),
    "BROADCAST_ARGS": integer("inputs"),
    "RANGE STABLEHLO_IOTA": numbered(),
    "ADD_N": combined(),
    "SUM": reduction("sum"),
    "REDUCE_PROD": reduction("product"),
    "REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN": reduction("max"),
    "MEAN": reduction("mean"),
    "CUMSUM": running(),
    "UNSORTED_SEGMENT_SUM SEGMENT_SUM UNSORTED_SEGMENT_PROD": segment(),
    "UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN": segment("comparison"),
    "UNIQUE WHERE": selected(),
    "STABLEHLO_SORT": sort("dimension"),
    "BUCKETIZE": search("boundaries"),
    "STABLEHLO_REDUCE_WINDOW": pool("sum", "window"),
    "SOFTMAX": softmax(),
    "LOG_SOFTMAX": softmax(log=True),
    "LOCAL_RESPONSE_NORMALIZATION": local_response(radius="radius"),
    "RESIZE_BILINEAR": resample(4),
    "TOPK_V2": topk(),
    "RFFT2D": fourier(2, real=True),
    "UNIDIRECTIONAL_SEQUENCE_RNN RNN": recurrent("weights recurrent", 4),
})  # fmt: skip


@lite("L2_NORMALIZATION", "per row 3n + 1: squares, sum, root, division", family="normalization")
def normalized(op: OpCall) -> Cost:
    """Rows divided by their length."""
    rows = op.inputs[0].numel // max(1, int(op.inputs[0].shape[-1]))
    return rows_work(op, 3 * op.inputs[0].numel + rows, op.inputs[0].numel + rows)


def _steps(op: OpCall) -> int:
    """Count the steps of all samples: every axis of the input but the last."""
    return math.prod(op.inputs[0].shape[:-1])


@lite(
    "UNIDIRECTIONAL_SEQUENCE_LSTM LSTM BIDIRECTIONAL_SEQUENCE_LSTM", "T B (weights) MACs, + 30 per unit and step",
    family="recurrent",
)  # fmt: skip
def lstm(op: OpCall) -> Cost | None:
    """A whole LSTM layer: each step meets all its matrices once."""
    matrices = [
        value for name, value in op.arguments.items()
        if isinstance(value, Tensor) and name != "input" and _is_matrix(name, value)
    ]  # fmt: skip
    if not matrices:
        return None
    return product(op, _steps(op) * sum(tensor.numel for tensor in matrices), 30 * op.out.numel)


def _is_matrix(name: str, tensor: Tensor) -> bool:
    states = name.endswith("state") or name in ("input_18", "input_19", "input_35", "input_36", "input_37", "input_38")
    return not states and len(tensor.shape) == 2


@lite("SVDF", "B (weights of features + weights of time) MACs", family="contraction")
def svdf(op: OpCall) -> Cost:
    """A layer of filters of rank one over features and time."""
    macs = _steps(op) * (op.tensor("weights_feature").numel + op.tensor("weights_time").numel)
    return product(op, macs, op.out.numel)
