"""Cost rules of Keras layers and operations. The same counts as for the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.access import nothing, selected_rows
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
    HARD_SIGMOID,
    HARD_SWISH,
    LEAKY,
    MISH,
    MULTIPLICATION,
    SELU,
    SIGMOID,
    SILU,
    SOFTPLUS,
    SOFTSIGN,
    SPECIAL,
    describe,
)
from tensortide.cost.rules.products import product

keras = Vocabulary("keras")
"""Rules of layers, and of operations: ``ops_Name``."""

TABLE: dict[str, Weights] = {
    "Subtract ops_Add ops_Subtract ops_Negative": ARITHMETIC,
    "Multiply ops_Multiply ops_Square": MULTIPLICATION,
    "ops_Divide ops_TrueDivide ops_Reciprocal": DIVISION,
    "ops_Power ops_Exp ops_Expm1 ops_Log ops_Log1p ops_Sqrt ops_Rsqrt ops_Sin ops_Cos ops_Tanh ops_Erf activation_tanh "
    "activation_exponential": SPECIAL,
    "Maximum Minimum ops_Maximum ops_Minimum ops_Abs ops_Absolute ops_Sign ops_Where ops_Equal ops_NotEqual ops_Less "
    "ops_LessEqual ops_Greater ops_GreaterEqual ops_Relu activation_relu ops_Floor ops_Ceil ops_Round": COMPARISON,
    "activation_relu6 ops_Relu6 ops_Clip activation_hard_tanh": BOUNDS,
    "activation_sigmoid ops_Sigmoid": SIGMOID,
    "activation_silu activation_swish ops_Silu": SILU,
    "activation_leaky_relu ops_LeakyRelu": LEAKY,
    "activation_gelu ops_Gelu": GELU,
    "activation_softplus ops_Softplus": SOFTPLUS,
    "activation_softsign ops_Softsign": SOFTSIGN,
    "activation_elu ops_Elu activation_celu": ELU,
    "activation_selu ops_Selu": SELU,
    "activation_mish": MISH,
    "activation_hard_sigmoid ops_HardSigmoid": HARD_SIGMOID,
    "activation_hard_silu activation_hard_swish ops_HardSilu": HARD_SWISH,
    "Rescaling": Weights(2),
    "ops_Cumsum ops_Cumprod": ARITHMETIC,
}
"""FLOPs per output element, of which special functions and comparisons."""

for _names, _weights in TABLE.items():
    keras(_names, describe(_weights), "Element by element, operands broadcast.")(simple(_weights))


@keras("Add Average", "(n - 1) E: a sum of n tensors; Average: + E divisions")
def add(op: OpCall) -> Cost:
    """Sum or mean of several tensors."""
    count = len(op.inputs) - 1 + (op.base == "Average")
    return elements(op, count * op.out.numel, ARITHMETIC)


@keras(
    "Flatten Reshape state ops_Reshape ops_Squeeze ops_ExpandDims ops_StopGradient ops_Ravel", "0: no bytes move",
    bytes=nothing, is_free=True,
)  # fmt: skip
def free(op: OpCall) -> Cost:
    """A renaming."""
    del op
    return FREE


@keras(
    "Permute RepeatVector Concatenate ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D "
    "UpSampling1D UpSampling2D UpSampling3D CenterCrop RandomCrop Resizing ops_Transpose ops_Concatenate ops_Stack "
    "ops_Split ops_GetItem ops_Pad ops_Tile ops_Repeat ops_Cast ops_Flip ops_Roll ops_BroadcastTo ops_Swapaxes "
    "ops_Moveaxis ops_OnesLike ops_ZerosLike ops_OneHot ops_Tril ops_Triu ops_Arange",
    "0 FLOP: read and written", "A copy, in another order, layout or dtype.",
)  # fmt: skip
@keras(
    "Embedding ops_Take", "0 FLOP: indices and the selected rows", "Rows by their indices.",
    bytes=selected_rows("indices", "x1"),
)  # fmt: skip
def moved(op: OpCall) -> Cost:
    """Nothing is computed: bytes move."""
    del op
    return Cost()


@keras("Resizing_bilinear", "7 per output: 4 multiplies, 3 adds")
def resized(op: OpCall) -> Cost:
    """Images of another size."""
    return elements(op, 7 * op.out.numel, ARITHMETIC)


@keras("activation_softmax ops_Softmax", "R (5n - 2)", "Maximum n-1, subtract n, exp n, add n-1, divide n.")
@keras("activation_log_softmax ops_LogSoftmax", "R (5n - 1)", "A softmax's logarithm.")
def softmax(op: OpCall) -> Cost:
    """A softmax over the last axis."""
    *outer, n = op.inputs[0].shape
    rows, log = math.prod(outer), "log" in op.base.lower()
    op.let(R=rows, n=n)
    return softmax_of(op, rows, n, log=log)


@keras("ops_Sum ops_Prod ops_Max ops_Min ops_Mean ops_Argmax ops_Argmin", "1 per input element (bound: n - 1 per row)")
def reduction(op: OpCall) -> Cost:
    """Sum, mean or largest of rows."""
    compared = op.base in ("ops_Max", "ops_Min", "ops_Argmax", "ops_Argmin")
    return elements(op, op.inputs[0].numel, COMPARISON if compared else ARITHMETIC)


@keras("BatchNormalization", "per channel 2m + 5, folded into a scale and a shift")
def batch_norm(op: OpCall) -> Cost:
    """Normalization with running statistics."""
    channels = op.tensor("mean").numel
    return Cost(elementwise_flops=2 * op.out.numel + 5 * channels, transcendentals=channels)


@keras("LayerNormalization GroupNormalization", "per row 5n + 2, + n for scale and for shift")
@keras("RMSNormalization UnitNormalization", "per row 3n + 2, + n for scale")
def norm(op: OpCall) -> Cost:
    """Normalization of rows by their own statistics."""
    n = max(1, int(op.arg("row", 1)))
    rows = op.out.numel // n
    op.let(R=rows, n=n)
    affine = sum(op.has(name) for name in ("gamma", "beta", "scale"))
    each = (5 if op.base in ("LayerNormalization", "GroupNormalization") else 3) * n + 2 + affine * n
    return Cost(elementwise_flops=rows * each, transcendentals=2 * rows)


def _with_bias(op: OpCall, macs: int) -> Cost:
    return product(op, macs, op.out.numel if op.has("bias") else 0)


@keras("Dense", "R k n MACs")
def dense(op: OpCall) -> Cost:
    """Rows of k with a kernel (k, n)."""
    k = op.shape("kernel")[0]
    op.let(k=k, E=op.out.numel)
    return _with_bias(op, op.out.numel * k)


@keras("EinsumDense", "product of all distinct indices MACs")
def einsum_dense(op: OpCall) -> Cost:
    """A product in Einstein's notation."""
    left, _, _ = str(op.arg("equation", "")).partition("->")
    sizes: dict[str, int] = {}
    for term, name in zip(left.split(","), ("x", "kernel"), strict=True):
        sizes |= dict(zip(term, op.shape(name), strict=True))
    return _with_bias(op, math.prod(sizes.values()))


@keras("Conv1D Conv2D Conv3D", "N O K (Cin/g) Cout MACs; the kernel is (window, Cin/g, Cout)")
@keras("DepthwiseConv1D DepthwiseConv2D", "E K MACs; the kernel is (window, Cin, multiplier)")
def convolution(op: OpCall) -> Cost:
    """Every output site meets the whole kernel once, taps on padding included."""
    kernel = op.shape("kernel")
    taps = math.prod(kernel[:-2] if op.base.startswith("Depthwise") else kernel[:-1])
    op.let(E=op.out.numel, taps=taps)
    return _with_bias(op, op.out.numel * taps)


@keras("Conv1DTranspose Conv2DTranspose Conv3DTranspose", "N I K Cout Cin MACs, by input sites")
def transposed(op: OpCall) -> Cost:
    """Every input site meets the whole kernel once."""
    return _with_bias(op, op.tensor("x").numel * math.prod(op.shape("kernel")[:-1]))


@keras("MaxPooling1D MaxPooling2D MaxPooling3D", "K - 1 comparisons per output")
@keras("AveragePooling1D AveragePooling2D AveragePooling3D", "K per output: K - 1 adds, 1 division")
def pooled(op: OpCall) -> Cost:
    """Largest or mean of each window."""
    window, count = math.prod(op.arg("pool_size", ())), op.out.numel
    if op.base.startswith("Max"):
        return elements(op, (window - 1) * count, COMPARISON)
    return elements(op, window * count, ARITHMETIC) + Cost(transcendentals=count)


@keras("GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D", "n - 1 comparisons per row")
@keras("GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D", "n per row: n - 1 adds, a division")
def pooled_to_one(op: OpCall) -> Cost:
    """Largest or mean of all of space."""
    if "Max" in op.base:
        return elements(op, op.inputs[0].numel - op.out.numel, COMPARISON)
    return rows_work(op, op.inputs[0].numel, op.out.numel)


@keras("LSTM", "T B 4H (X + H) MACs, + 30 per unit and step (22 without bias)")
@keras("GRU", "T B 3H (X + H) MACs, + 22 per unit and step (16 without bias)")
@keras("SimpleRNN", "T B H (X + H) MACs, + 4 per unit and step (2 without bias)")
def recurrent(op: OpCall) -> Cost:
    """A recurrent layer over all steps."""
    samples, steps, _ = op.shape("x")
    macs = steps * samples * (math.prod(op.shape("kernel")) + math.prod(op.shape("recurrent_kernel")))
    full, bare = {"LSTM": (30, 22), "GRU": (22, 16), "SimpleRNN": (4, 2)}[op.base]
    units = op.shape("recurrent_kernel")[0]
    op.let(T=steps, B=samples, H=units)
    return product(op, macs, (full if op.has("bias") else bare) * steps * samples * units)


@keras("dot_product_attention", "B Hq Sq Sk (Dk + Dv) MACs")
def heads(op: OpCall) -> Cost:
    """Attention of several heads, dense; a causal mask makes part of it void."""
    (samples, queries, count, size), keys = op.shape("query"), op.shape("key")[1]
    wide = op.shape("value")[-1]
    return _attention(op, samples * count, queries, keys, size + wide, scaled=True)


def _attention(op: OpCall, rows: int, queries: int, keys: int, sizes: int, *, scaled: bool) -> Cost:
    pairs = queries * keys
    op.let(pairs=pairs)
    cost = product(op, rows * pairs * sizes, rows * (pairs * (5 + scaled) - 2 * queries))
    if op.arg("causal", False):
        seen = keys * (keys + 1) // 2 + (queries - keys) * keys if queries >= keys else queries * (queries + 1) // 2
        return cost + Cost(active_macs=rows * (seen - pairs) * sizes)
    return cost


@keras("Attention", "B Sq Sk (Dk + Dv) MACs")
def attention(op: OpCall) -> Cost:
    """Attention of one head without projections."""
    samples, queries, size = op.shape("query")
    return _attention(op, samples, queries, op.shape("key")[1], size + op.shape("value")[-1], scaled=op.has("scale"))


@keras("AdditiveAttention", "B Sq Sk Dv MACs, + 3 D per pair: add, tanh, scaled sum")
def additive(op: OpCall) -> Cost:
    """Attention by a sum of tanh."""
    samples, queries, size = op.shape("query")
    pairs = samples * queries * op.shape("key")[1]
    return product(op, pairs * op.shape("value")[-1], pairs * (3 * size + 5) - 2 * samples * queries)


@keras("Dot", "E k MACs")
def dot(op: OpCall) -> Cost:
    """A batch of products over one axis of each."""
    return product(op, op.out.numel * int(op.arg("contracted", 1)))


@keras("ops_Matmul ops_Dot", "E k MACs")
def matmul(op: OpCall) -> Cost:
    """Batch of products."""
    return product(op, op.out.numel * op.inputs[0].shape[-1])
