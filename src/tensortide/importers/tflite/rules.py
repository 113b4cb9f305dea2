"""Cost rules of TensorFlow Lite's operators. The same counts as for the ops of other vocabularies: docs/cost.md.

What an operator is fused with (an activation) is charged with it. Weights tell more than options do: groups show as a
depth of the weights that is smaller than that of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tensortide.cost.access import Bytes, nothing, selected_rows, size, writes_only
from tensortide.cost.forms import simple, softmax_of
from tensortide.cost.kinds import Weights, elements, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import FREE, Cost
from tensortide.cost.registry import Vocabulary
from tensortide.cost.rules.pointwise import (
    ARITHMETIC,
    BOUNDS,
    COMPARISON,
    DIVISION,
    ELU,
    GELU,
    HARD_SWISH,
    LEAKY,
    MULTIPLICATION,
    REMAINDER,
    SIGMOID,
    SPECIAL,
    describe,
)
from tensortide.cost.rules.products import product
from tensortide.graph.model import Tensor

lite = Vocabulary("tflite")

_ACTIVATIONS = {
    "RELU": COMPARISON, "RELU_N1_TO_1": BOUNDS, "RELU6": BOUNDS, "TANH": SPECIAL,
    "SIGN_BIT": COMPARISON,
}  # fmt: skip

TABLE: dict[str, Weights] = {
    "SUB NEG ADD": ARITHMETIC,
    "MUL SQUARE": MULTIPLICATION,
    "SQUARED_DIFFERENCE": Weights(2),
    "DIV": DIVISION,
    "FLOOR_DIV FLOOR_MOD": REMAINDER,
    "MAXIMUM MINIMUM EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL RELU ABS SIGN FLOOR CEIL ROUND SELECT "
    "SELECT_V2": COMPARISON,
    "RELU6 RELU_N1_TO_1 RELU_0_TO_1": BOUNDS,
    "POW EXP LOG SQRT RSQRT SIN COS TANH ATAN2": SPECIAL,
    "LOGISTIC": SIGMOID,
    "LEAKY_RELU PRELU": LEAKY,
    "ELU": ELU,
    "HARD_SWISH": HARD_SWISH,
    "GELU": GELU,
    "COMPLEX_ABS": Weights(4, 1),
    "DEQUANTIZE": Weights(2),
    "QUANTIZE": Weights(4, 1, 3),
    "FAKE_QUANT": Weights(6, 1, 3),
}
"""FLOPs per output element, of which special functions and comparisons."""


def _then_fused(op: OpCall, cost: Cost) -> Cost:
    """Add the activation that an operator ends with."""
    weights = _ACTIVATIONS.get(str(op.arg("fused_activation", "")))
    return cost if weights is None else cost + elements(op, op.out.numel, weights)


def _each(weights: Weights) -> Callable[[OpCall], Cost | None]:
    plain = simple(weights)

    def work(op: OpCall) -> Cost | None:
        cost = plain(op)
        return None if cost is None else _then_fused(op, cost)

    return work


for _names, _weights in TABLE.items():
    lite(_names, describe(_weights), "Element by element, operands broadcast; with what is fused.")(_each(_weights))


@lite("LOGICAL_AND LOGICAL_OR LOGICAL_NOT BITWISE_XOR RIGHT_SHIFT", "1 integer op per output element")
def logical(op: OpCall) -> Cost:
    """Work on booleans and bits."""
    return Cost(int_ops=op.out.numel)


@lite(
    "RESHAPE SQUEEZE EXPAND_DIMS BITCAST SHAPE RANK IF READ_VARIABLE VAR_HANDLE CALL_ONCE HASHTABLE REAL IMAG",
    "0: no bytes move", bytes=nothing, is_free=True,
)  # fmt: skip
def free(op: OpCall) -> Cost:
    """A renaming, a question about a shape, or the place where branches meet."""
    del op
    return FREE


@lite(
    "TRANSPOSE PACK UNPACK SPLIT SPLIT_V TILE BROADCAST_TO SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND SPACE_TO_DEPTH "
    "DEPTH_TO_SPACE CAST REVERSE_V2 REVERSE_SEQUENCE RESIZE_NEAREST_NEIGHBOR MATRIX_DIAG MATRIX_SET_DIAG DENSIFY "
    "BROADCAST_ARGS DILATE ASSIGN_VARIABLE SCATTER_ND",
    "0 FLOP: read and written", "A copy, in another order, layout or dtype.",
)  # fmt: skip
@lite("CONCATENATION", "0 FLOP: read and written; with what is fused", "Tensors one after the other.")
@lite(
    "SLICE STRIDED_SLICE", "0 FLOP: what is taken is read and written", "A copy of a part.",
    bytes=lambda op: Bytes(size(op.outputs), size(op.outputs)),
)  # fmt: skip
@lite(
    "PAD PADV2 MIRROR_PAD DYNAMIC_UPDATE_SLICE", "0 FLOP: read and written", "A tensor in a larger one.",
    bytes=lambda op: Bytes(size(op.inputs[:1]), size(op.outputs)),
)  # fmt: skip
@lite("FILL ZEROS_LIKE ONE_HOT RANGE", "0 FLOP: written", "A fill.", bytes=writes_only)
@lite(
    "GATHER GATHER_ND EMBEDDING_LOOKUP", "0 FLOP: indices and the selected rows", "Rows by their indices.",
    bytes=selected_rows("indices"),
)  # fmt: skip
def moved(op: OpCall) -> Cost:
    """Nothing is computed: bytes move."""
    return _then_fused(op, Cost()) if op.base == "CONCATENATION" else Cost()


@lite("RANDOM_UNIFORM RANDOM_STANDARD_NORMAL", "E random draws, written", bytes=writes_only)
def drawn(op: OpCall) -> Cost:
    """One draw per element."""
    return Cost(random_draws=op.out.numel)


@lite("ADD_N", "(n - 1) E: a sum of n tensors")
def add_n(op: OpCall) -> Cost:
    """Sum of a list of tensors."""
    return elements(op, (len(op.inputs) - 1) * op.out.numel, ARITHMETIC)


@lite("SUM REDUCE_PROD", "R (n - 1)")
@lite("REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL ARG_MAX ARG_MIN", "R (n - 1) comparisons", "Largest or smallest.")
def reduction(op: OpCall) -> Cost:
    """n - 1 additions or products per row of n."""
    count = max(0, op.inputs[0].numel - op.out.numel)
    compared = op.base not in ("SUM", "REDUCE_PROD")
    return elements(op, count, COMPARISON if compared else ARITHMETIC)


@lite("MEAN", "R n: n - 1 adds and a division per row")
def mean(op: OpCall) -> Cost:
    """Average."""
    return rows_work(op, op.inputs[0].numel, op.out.numel)


@lite("CUMSUM UNSORTED_SEGMENT_SUM SEGMENT_SUM UNSORTED_SEGMENT_PROD", "1 per element (bound)")
def scan(op: OpCall) -> Cost:
    """Running sum, or sum of the rows of equal segment."""
    work = elements(op, op.inputs[0].numel, ARITHMETIC)
    return work + Cost(exact=False, reason="bound: axes and segments are values")


@lite("SOFTMAX", "R (5n - 2)", "Per row: maximum n-1, subtract n, exp n, add n-1, divide n.")
@lite("LOG_SOFTMAX", "R (5n - 1)", "Per row: maximum n-1, subtract n, exp n, add n-1, log 1, subtract n.")
def softmax(op: OpCall) -> Cost:
    """A softmax or its logarithm."""
    *outer, n = op.inputs[0].shape
    rows = math.prod(outer)
    op.let(R=rows, n=n)
    log = op.base == "LOG_SOFTMAX"
    return softmax_of(op, rows, n, log=log)


@lite("L2_NORMALIZATION", "per row 3n + 1: squares, sum, root, division")
def normalized(op: OpCall) -> Cost:
    """Rows divided by their length."""
    rows = op.inputs[0].numel // max(1, int(op.inputs[0].shape[-1]))
    return _then_fused(op, rows_work(op, 3 * op.inputs[0].numel + rows, op.inputs[0].numel + rows))


@lite("LOCAL_RESPONSE_NORMALIZATION", "per element d + 4; d = 2 radius + 1")
def local_response(op: OpCall) -> Cost:
    """Normalization over a window of channels."""
    window = 2 * int(op.arg("radius", 0)) + 1
    return Cost(elementwise_flops=(window + 4) * op.out.numel, transcendentals=2 * op.out.numel)


@lite("MAX_POOL_2D", "K - 1 comparisons per output")
@lite("AVERAGE_POOL_2D L2_POOL_2D", "K per output: K - 1 adds, 1 division (L2: + K squares, 1 root)")
def pooled(op: OpCall) -> Cost:
    """Largest, mean or length of each window."""
    window = int(op.arg("filter_width", 1)) * int(op.arg("filter_height", 1))
    op.let(K=window)
    count = op.out.numel
    if op.base == "MAX_POOL_2D":
        return _then_fused(op, elements(op, (window - 1) * count, COMPARISON))
    each = window if op.base == "AVERAGE_POOL_2D" else 2 * window + 1
    return _then_fused(op, elements(op, each * count, ARITHMETIC) + Cost(transcendentals=count))


@lite("RESIZE_BILINEAR", "7 per output: 4 multiplies, 3 adds")
def resized(op: OpCall) -> Cost:
    """Images of another size."""
    return elements(op, 7 * op.out.numel, ARITHMETIC)


@lite("TOPK_V2", "n ceil(log2(k + 1)) comparisons per row")
def top(op: OpCall) -> Cost:
    """Largest elements of each row."""
    return elements(op, op.inputs[0].numel * int(op.outputs[0].shape[-1]).bit_length(), COMPARISON)


@lite("RFFT2D", "ceil(2.5 n log2 n) per image")
def fourier(op: OpCall) -> Cost:
    """Fourier transform of images of real numbers."""
    n = math.prod(op.inputs[0].shape[-2:])
    each = math.ceil(2.5 * n * math.log2(n)) if n > 1 else 0
    flops = op.inputs[0].numel // max(1, n) * each
    return Cost(elementwise_flops=flops, exact=False, reason="FFT by convention: 5 n log2 n")


def _with_bias(op: OpCall, macs: int) -> Cost:
    return _then_fused(op, product(op, macs, op.out.numel if op.has("bias") else 0))


@lite("CONV_2D", "N O kh kw (Cin/g) Cout MACs; the filter is (Cout, kh, kw, Cin/g)")
@lite("CONV_3D", "N O kd kh kw (Cin/g) Cout MACs; the filter is (kd, kh, kw, Cin/g, Cout)")
@lite("DEPTHWISE_CONV_2D", "E kh kw MACs; the filter is (1, kh, kw, C)")
def convolution(op: OpCall) -> Cost | None:
    """Every output site meets the whole filter once, taps on padding included."""
    image, kernel = op.shape("input"), op.shape("filter")
    last = 0 if op.base == "CONV_2D" else -1
    if len(kernel) != len(image) or not kernel or op.out.shape[-1] != kernel[last]:
        return None
    if op.base == "DEPTHWISE_CONV_2D":
        return _with_bias(op, op.out.numel * math.prod(kernel[1:-1]))
    depth = kernel[-1] if op.base == "CONV_2D" else kernel[-2]
    if depth == 0 or image[-1] % depth:
        return None
    op.let(groups=image[-1] // depth)
    return _with_bias(op, op.out.numel * math.prod(kernel) // max(1, kernel[last]))


@lite("TRANSPOSE_CONV", "N I kh kw Cout Cin MACs, by input sites; the filter is (Cout, kh, kw, Cin)")
@lite("CONV_3D_TRANSPOSE", "N I kd kh kw Cout Cin MACs, by input sites; the filter is (kd, kh, kw, Cout, Cin)")
def transposed(op: OpCall) -> Cost | None:
    """Every input site meets the whole filter once."""
    image, kernel = op.shape("input"), op.shape("filter")
    if len(kernel) != len(image) or not kernel or image[-1] != kernel[-1]:
        return None
    return _with_bias(op, math.prod(image) * math.prod(kernel[:-1]))


@lite("FULLY_CONNECTED", "E k MACs; the weights are (n, k)")
def fully_connected(op: OpCall) -> Cost | None:
    """Rows of k, however the input is shaped, with weights whose last axis is contracted."""
    weights = op.shape("weights")
    if len(weights) != 2 or op.out.shape[-1:] != weights[:1]:
        return None
    op.let(n=weights[0], k=weights[1])
    return _with_bias(op, op.out.numel * weights[1])


@lite("BATCH_MATMUL", "b m n k MACs")
def batch_matmul(op: OpCall) -> Cost | None:
    """Batch of products; either operand possibly transposed, or broadcast over the batch."""
    left = op.shape("x")
    if len(left) < 2:
        return None
    k = left[-2 if op.arg("adj_x", 0) else -1]
    op.let(k=k, E=op.out.numel)
    return product(op, op.out.numel * k)


def _steps(op: OpCall) -> int:
    """Count the steps of all samples: every axis of the input but the last."""
    return math.prod(op.inputs[0].shape[:-1])


@lite("UNIDIRECTIONAL_SEQUENCE_LSTM LSTM BIDIRECTIONAL_SEQUENCE_LSTM", "T B (weights) MACs, + 30 per unit and step")
def lstm(op: OpCall) -> Cost | None:
    """A whole LSTM layer: each step meets all its matrices once."""
    matrices = [
        value for name, value in op.arguments.items()
        if isinstance(value, Tensor) and name != "input" and _is_matrix(name, value)
    ]  # fmt: skip
    if not matrices:
        return None
    units = op.out.numel
    return product(op, _steps(op) * sum(tensor.numel for tensor in matrices), 30 * units)


def _is_matrix(name: str, tensor: Tensor) -> bool:
    states = name.endswith("state") or name in ("input_18", "input_19", "input_35", "input_36", "input_37", "input_38")
    return not states and len(tensor.shape) == 2


@lite("UNIDIRECTIONAL_SEQUENCE_RNN RNN", "T B (X + H) H MACs, + 4 per unit and step")
def rnn(op: OpCall) -> Cost:
    """A plain recurrent layer, or one step of it."""
    macs = _steps(op) * (op.tensor("weights").numel + op.tensor("recurrent").numel)
    return product(op, macs, 4 * op.out.numel)


@lite("SVDF", "B (weights of features + weights of time) MACs")
def svdf(op: OpCall) -> Cost:
    """A layer of filters of rank one over features and time."""
    macs = _steps(op) * (op.tensor("weights_feature").numel + op.tensor("weights_time").numel)
    return _then_fused(op, product(op, macs, op.out.numel))
