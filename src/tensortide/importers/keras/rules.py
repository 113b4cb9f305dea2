"""Cost rules of Keras layers and operations. The same counts as for the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

from tensortide.cost.families import (
    channelwise,
    combined,
    contraction,
    convolution,
    einsum,
    free,
    gather,
    move,
    normalization,
    pool,
    recurrent,
    reduction,
    resample,
    softmax,
)
from tensortide.cost.families.attention import Problem, forward, top_left
from tensortide.cost.families.products import product
from tensortide.cost.kinds import Weights
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.importers.keras import operations

__all__ = ["operations"]  # imported for the rules that it registers

keras = Vocabulary("keras")
"""Rules of layers, and of operations: ``ops_Name``."""

keras.rows({
    "Subtract ops_Add ops_Subtract ops_Negative": "arithmetic",
    "Multiply ops_Multiply ops_Square": "multiplication",
    "ops_Divide ops_TrueDivide ops_Reciprocal": "division",
    "ops_Power ops_Exp ops_Expm1 ops_Log ops_Log1p ops_Sqrt ops_Rsqrt ops_Sin ops_Cos ops_Tanh ops_Erf activation_tanh "
    "activation_exponential": "special",
    "Maximum Minimum ops_Maximum ops_Minimum ops_Abs ops_Absolute ops_Sign ops_Where ops_Equal ops_NotEqual ops_Less "
    "ops_LessEqual ops_Greater ops_GreaterEqual ops_Relu activation_relu ops_Floor ops_Ceil ops_Round": "comparison",
    "activation_relu6 ops_Relu6 ops_Clip activation_hard_tanh": "bounds",
    "activation_sigmoid ops_Sigmoid": "sigmoid",
    "activation_silu activation_swish ops_Silu": "silu",
    "activation_leaky_relu ops_LeakyRelu": "leaky_relu",
    "activation_gelu ops_Gelu": "gelu",
    "activation_softplus ops_Softplus": "softplus",
    "activation_softsign ops_Softsign": "softsign",
    "activation_elu ops_Elu activation_celu": "elu",
    "activation_selu ops_Selu": "selu",
    "activation_mish": "mish",
    "activation_hard_sigmoid ops_HardSigmoid": "hard_sigmoid",
    "activation_hard_silu activation_hard_swish ops_HardSilu": "hard_swish",
    "Rescaling": Weights(2),
    "Add": combined(),
    "Average": combined(divided=True),
    "Flatten Reshape state ops_Reshape ops_Squeeze ops_ExpandDims ops_StopGradient ops_Ravel": free(),
    "Permute RepeatVector Concatenate ZeroPadding1D ZeroPadding2D ZeroPadding3D Cropping1D Cropping2D Cropping3D "
    "UpSampling1D UpSampling2D UpSampling3D CenterCrop RandomCrop Resizing ops_Transpose ops_Concatenate ops_Stack "
    "ops_Split ops_GetItem ops_Pad ops_Tile ops_Repeat ops_Cast ops_Flip ops_Roll ops_BroadcastTo ops_Swapaxes "
    "ops_Moveaxis ops_OnesLike ops_ZerosLike ops_OneHot ops_Tril ops_Triu": move(),
    "Embedding ops_Take": gather("indices x1"),
    "Resizing_bilinear": resample(4),
    "activation_softmax ops_Softmax": softmax(),
    "activation_log_softmax ops_LogSoftmax": softmax(log=True),
    "ops_Sum": reduction("sum"),
    "ops_Prod": reduction("product"),
    "ops_Mean GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D": reduction("mean"),
    "ops_Max ops_Min ops_Argmax ops_Argmin GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D": reduction("max"),
    "LayerNormalization GroupNormalization": normalization("row", "row", affine="gamma beta scale"),
    "RMSNormalization UnitNormalization": normalization("row", "row", affine="gamma beta scale", centred=False),
    "BatchNormalization": channelwise(channels="mean"),
    "MaxPooling1D MaxPooling2D MaxPooling3D": pool("max", "pool_size"),
    "AveragePooling1D AveragePooling2D AveragePooling3D": pool("mean", "pool_size"),
    "Dense": contraction("*,kn", "0 kernel", bias="bias"),
    "EinsumDense": einsum("x kernel", bias="bias"),
    "Conv1D Conv2D Conv3D": convolution("*IO"),
    "DepthwiseConv1D DepthwiseConv2D": convolution("*OO"),
    "Conv1DTranspose Conv2DTranspose Conv3DTranspose": convolution("*OI", of="x", transposed=True),
    "LSTM": recurrent("kernel recurrent_kernel", 30, bias="bias", bare=22),
    "GRU": recurrent("kernel recurrent_kernel", 22, bias="bias", bare=16),
    "SimpleRNN": recurrent("kernel recurrent_kernel", 4, bias="bias", bare=2),
    "ops_Matmul ops_Dot": contraction("*k"),
})  # fmt: skip


def _attention(op: OpCall, b: int, heads: int, queries: int, keys: int, scaled: bool) -> Cost:
    """Attention of ``b`` samples, dense; a causal mask makes part of it void."""
    pairs = b * queries * keys
    active = b * top_left(queries, keys) if op.arg("causal", False) else pairs
    size, width = op.shape("query")[-1], op.shape("value")[-1]
    return forward(op, Problem(b, heads, heads, queries, keys, size, width, pairs, active, False, False, "", scaled))


@keras("dot_product_attention", "B Hq Sq Sk (Dk + Dv) MACs", family="attention")
def heads(op: OpCall) -> Cost:
    """Attention of several heads."""
    samples, queries, count, _ = op.shape("query")
    return _attention(op, samples, count, queries, op.shape("key")[1], scaled=True)


@keras("Attention", "B Sq Sk (Dk + Dv) MACs", family="attention")
def attention(op: OpCall) -> Cost:
    """Attention of one head without projections."""
    samples, queries, _ = op.shape("query")
    return _attention(op, samples, 1, queries, op.shape("key")[1], scaled=op.has("scale"))


@keras("AdditiveAttention", "B Sq Sk Dv MACs, + 3 D per pair: add, tanh, scaled sum", family="attention")
def additive(op: OpCall) -> Cost:
    """Attention by a sum of tanh."""
    samples, queries, size = op.shape("query")
    pairs = samples * queries * op.shape("key")[1]
    return product(op, pairs * op.shape("value")[-1], pairs * (3 * size + 5) - 2 * samples * queries)


@keras("Dot", "E k MACs", family="contraction")
def dot(op: OpCall) -> Cost:
    """A batch of products over one axis of each."""
    return product(op, op.out.numel * int(op.arg("contracted", 1)))
