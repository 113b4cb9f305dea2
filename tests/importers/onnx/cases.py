"""One-op models whose output shapes onnxruntime tells by running them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[Any]
_DTYPES = {"float32": 1, "int64": 7, "bool": 9, "uint8": 2, "int8": 3, "int32": 6}
_RANDOM = np.random.default_rng(0)


@dataclass(frozen=True, eq=False)
class Case:
    """A model of one node, and its inputs: ``stored`` are those that are in the file."""

    op: str
    inputs: Sequence[Array | None]
    outputs: int
    opset: int
    stored: Sequence[int]
    domain: str
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the inputs; omitted ones are empty."""
        return ["" if array is None else f"i{place}" for place, array in enumerate(self.inputs)]

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs that are not stored."""
        pairs = enumerate(self.inputs)
        return {f"i{place}": array for place, array in pairs if array is not None and place not in self.stored}

    def model(self) -> Any:
        """Return the ModelProto."""
        outputs = [f"o{place}" for place in range(self.outputs)]
        node = helper.make_node(self.op, self.names, outputs, domain=self.domain, name="n", **self.attributes)
        stored = [
            onnx.numpy_helper.from_array(array, f"i{place}")
            for place, array in enumerate(self.inputs) if array is not None and place in self.stored
        ]  # fmt: skip
        ports = [
            helper.make_tensor_value_info(name, _DTYPES[array.dtype.name], list(array.shape))
            for name, array in self.feeds.items()
        ]
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(self.domain, 1)] if self.domain else []
        graph = helper.make_graph([node], "g", ports, ends, stored)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


CASES: list[Case] = []


def named(case: Case) -> str:
    """Name a case: its op, its number, its attributes."""
    attributes = ", ".join(f"{key}={value}" for key, value in case.attributes.items())
    return f"{case.op}-{CASES.index(case)}({attributes})"


def case(
    op: str, ins: Sequence[Array | None], outs: int = 1, opset: int = 17, init: Sequence[int] = (), domain: str = "",
    **attributes: Any,
) -> None:  # fmt: skip
    """Add a case."""
    arrays = [None if array is None else np.asarray(array) for array in ins]
    CASES.append(Case(op, arrays, outs, opset, init, domain, attributes))


def f(*shape: int) -> Array:
    """Random numbers."""
    return _RANDOM.standard_normal(shape).astype("float32")


def i(*values: int) -> Array:
    """Integers."""
    return np.array(values, dtype="int64")


# convs
for ap in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
    case("Conv", [f(2, 6, 17, 19), f(8, 6, 3, 5)], strides=[2, 3], auto_pad=ap)
    case("MaxPool", [f(2, 6, 17, 19)], outs=2, kernel_shape=[3, 4], strides=[2, 3], auto_pad=ap)
    case("AveragePool", [f(2, 6, 17, 19)], kernel_shape=[3, 4], strides=[2, 3], auto_pad=ap)
    case("ConvTranspose", [f(2, 6, 7, 9), f(6, 4, 3, 5)], strides=[2, 3], auto_pad=ap)
case("Conv", [f(2, 6, 17, 19), f(9, 2, 3, 3), f(9)], group=3, dilations=[2, 3], pads=[1, 2, 3, 4])
case("Conv", [f(2, 6, 17), f(12, 1, 4)], group=6)
case("Conv", [f(1, 2, 5, 6, 7), f(4, 2, 2, 3, 3)], strides=[1, 2, 1])
case(
    "ConvTranspose",
    [f(2, 6, 7, 9), f(6, 4, 3, 5), f(8)],
    group=2,
    strides=[2, 3],
    output_padding=[1, 2],
    pads=[1, 0, 1, 2],
    dilations=[2, 1],
)
case("ConvTranspose", [f(2, 6, 7, 9), f(6, 4, 3, 3)], strides=[2, 2], output_shape=[15, 19])
for cm in (0, 1):
    case("MaxPool", [f(1, 3, 10, 11)], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=cm)
    case("MaxPool", [f(1, 3, 12, 13)], kernel_shape=[2, 3], strides=[3, 2], dilations=[2, 2], ceil_mode=cm)
    case(
        "AveragePool", [f(1, 3, 10, 11)], kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=cm, opset=19
    )
case("LpPool", [f(1, 3, 10, 11)], kernel_shape=[2, 2], strides=[3, 3], opset=18)
for op in ("GlobalAveragePool", "GlobalMaxPool"):
    case(op, [f(2, 3, 4, 5)])
case("MaxUnpool", [f(1, 1, 2, 2), np.array([[[[5, 7], [13, 15]]]], dtype="int64")], kernel_shape=[2, 2], strides=[2, 2])
# recurrent
for op, g in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    for d, dn in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
        case(
            op,
            [f(7, 3, 5), f(d, g * 6, 5), f(d, g * 6, 6), f(d, 2 * g * 6)],
            outs=3 if g == 4 else 2,
            hidden_size=6,
            direction=dn,
        )
    case(op, [f(7, 3, 5), f(1, g * 6, 5), f(1, g * 6, 6), None, np.array([7, 3, 2], "int32")], outs=2, hidden_size=6)
    case(op, [f(3, 7, 5), f(1, g * 6, 5), f(1, g * 6, 6)], outs=2, hidden_size=6, layout=1)
# matmul etc
case("MatMul", [f(3, 4), f(4)])
case("MatMul", [f(4), f(4)])
case("MatMul", [f(2, 1, 3, 4), f(5, 4, 6)])
case("MatMul", [f(4), f(2, 4, 3)])
case("Gemm", [f(4, 3), f(5, 4), f(5)], transA=1, transB=1, alpha=0.5)
for e, s in (
    ("ij,jk->ik", [(3, 4), (4, 5)]),
    ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
    ("bij,bkj->bik", [(2, 3, 1), (2, 5, 1)]),
    ("...ij,jk", [(2, 3, 4), (4, 5)]),
    ("ii", [(3, 3)]),
    ("ij->ji", [(3, 4)]),
    ("i,j,k->ijk", [(2,), (3,), (4,)]),
    ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
):
    case("Einsum", [f(*x) for x in s], equation=e)
case("MatMulInteger", [np.ones((3, 4), "uint8"), np.ones((4, 5), "int8")])
case("ConvInteger", [np.ones((1, 3, 8, 8), "uint8"), np.ones((4, 3, 3, 3), "uint8")])
case(
    "QLinearMatMul",
    [
        np.ones((3, 4), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((4, 5), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
    ],
)
case(
    "QLinearConv",
    [
        np.ones((1, 3, 8, 8), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((4, 3, 3, 3), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones(4, "int32"),
    ],
    pads=[1, 1, 1, 1],
)
case("QuantizeLinear", [f(3, 4), np.ones((), "float32"), np.zeros((), "int8")])
case("DequantizeLinear", [np.ones((3, 4), "int8"), np.ones((), "float32")])
case("DynamicQuantizeLinear", [f(3, 4)], outs=3)
# arrays
case("Reshape", [f(2, 3, 4), i(0, -1, 2)], init=(1,))
case("Reshape", [f(0, 3), i(0, 3)], init=(1,), opset=14)
case("Flatten", [f(2, 3, 4)], axis=-1)
case("Flatten", [f(2, 3, 4)], axis=0)
case("Squeeze", [f(2, 1, 3, 1), i(-1)], init=(1,))
case("Squeeze", [f(2, 1, 3, 1)])
case("Unsqueeze", [f(2, 3), i(0, -1)], init=(1,))
case("Squeeze", [f(2, 1, 3)], opset=11, axes=[1])
case("Unsqueeze", [f(2, 3)], opset=11, axes=[0, 3])
case("Transpose", [f(2, 3, 4)])
case("Transpose", [f(2, 3, 4)], perm=[2, 0, 1])
case("Expand", [f(3, 1), i(2, 1, 4)], init=(1,))
case("Tile", [f(2, 3), i(2, 3)], init=(1,))
case("Concat", [f(2, 3), f(2, 4)], axis=-1)
case("Split", [f(7, 3)], outs=3, axis=0, opset=18, num_outputs=3)
case("Split", [f(6, 3)], outs=3, axis=0)
case("Split", [f(6, 3), i(1, 5)], outs=2, init=(1,))
case("Split", [f(6, 3)], outs=2, opset=11, split=[2, 4], axis=0)
for start, end, at, by in (
    ([1], [4], [0], [1]),
    ([-3], [100], [0], [2]),
    ([5], [-100], [0], [-2]),
    ([-1], [0], [1], [-1]),
    ([3], [1], [0], [1]),
    ([100], [-1000], [0], [-3]),
    ([0], [-1], [-1], [3]),
    ([-100], [3], [0], [1]),
):
    case("Slice", [f(7, 5), i(*start), i(*end), i(*at), i(*by)], init=(1, 2, 3, 4))
case("Slice", [f(7, 5)], opset=9, starts=[1, -2], ends=[5, 100])
case("Pad", [f(3, 4), i(1, 0, 2, 3)], init=(1,))
case("Pad", [f(3, 4), i(-1, 0, 2, 3)], init=(1,))
case("Pad", [f(3, 4), i(1, 2), None, i(1)], init=(1, 3), opset=18)
case("Pad", [f(3, 4)], opset=10, pads=[1, 2, 3, 4])
case("Gather", [f(3, 4, 5), np.zeros((2, 6), "int64")], axis=1)
case("GatherElements", [f(3, 4), np.zeros((2, 4), "int64")], axis=0)
case("GatherND", [f(3, 4, 5), np.zeros((2, 2), "int64")])
case("GatherND", [f(3, 4, 5), np.zeros((3, 2, 1), "int64")], batch_dims=1)
case("ScatterND", [f(4, 5), np.zeros((2, 1), "int64"), f(2, 5)])
case("ScatterElements", [f(4, 5), np.zeros((2, 5), "int64"), f(2, 5)], axis=0)
case("DepthToSpace", [f(1, 8, 2, 3)], blocksize=2)
case("SpaceToDepth", [f(1, 2, 4, 6)], blocksize=2)
case("OneHot", [i(1, 2), i(5), f(2)], init=(1,), axis=0)
case("Trilu", [f(3, 4)])
case("CumSum", [f(3, 4), np.array(1, "int64")])
case("ReverseSequence", [f(4, 3), i(1, 2, 3)])
case("EyeLike", [f(3, 4)])
case("ConstantOfShape", [i(2, 3)], init=(0,))
case("Range", [np.array(1, "int64"), np.array(10, "int64"), np.array(3, "int64")], init=(0, 1, 2))
case("Range", [np.array(10, "int64"), np.array(1, "int64"), np.array(-4, "int64")], init=(0, 1, 2))
case("Range", [np.array(0, "float32"), np.array(1, "float32"), np.array(0.3, "float32")], init=(0, 1, 2))
case("Compress", [f(3, 4), np.ones(4, "bool")], axis=1)
case("NonZero", [np.ones((3, 4), "float32")])
case("Where", [np.ones((3, 1), "bool"), f(1, 4), f(2, 1, 1)])
case("Shape", [f(2, 3, 4)], opset=15, start=1, end=-1)
case("Size", [f(2, 3)])
# reductions
for op in ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"]:
    if op == "ReduceSum":
        case(op, [f(2, 3, 4), i(1, -1)], init=(1,), keepdims=0)
        case(op, [f(2, 3, 4), i(0)], init=(1,))
        case(op, [f(2, 3, 4)], noop_with_empty_axes=1)
    else:
        case(op, [f(2, 3, 4)], axes=[1, -1], keepdims=0)
        case(op, [f(2, 3, 4)], axes=[0])
        case(op, [f(2, 3, 4)])
case("ReduceMean", [f(2, 3, 4), i(1)], init=(1,), opset=18)
case("ArgMax", [f(2, 3, 4)], axis=1, keepdims=0)
case("TopK", [f(3, 7), i(3)], outs=2, init=(1,), axis=1)
case("TopK", [f(3, 7)], outs=2, opset=9, k=2, axis=0)
for op in [
    "Softmax",
    "LogSoftmax",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Erf",
    "Exp",
    "Elu",
    "Selu",
    "HardSigmoid",
    "HardSwish",
    "Softplus",
    "Mish",
    "LeakyRelu",
    "Celu",
    "Hardmax",
]:
    case(op, [f(3, 4)], opset=18)
case("Gelu", [f(3, 4)], opset=20)
case("LayerNormalization", [f(2, 3, 4), f(4), f(4)], outs=3)
case("LayerNormalization", [f(2, 3, 4), f(3, 4)], axis=1)
case("InstanceNormalization", [f(2, 3, 4, 5), f(3), f(3)])
case("GroupNormalization", [f(2, 6, 4), f(6), f(6)], num_groups=3, opset=21)
case("BatchNormalization", [f(2, 3, 4, 5), f(3), f(3), f(3), abs(f(3))])
case("LRN", [f(2, 3, 4, 5)], size=3)
case("LpNormalization", [f(2, 3)])
case("MeanVarianceNormalization", [f(2, 3, 4, 5)])
case("SoftmaxCrossEntropyLoss", [f(3, 5), i(1, 2, 3)], outs=2)
case("SoftmaxCrossEntropyLoss", [f(3, 5, 2), np.zeros((3, 2), "int64")], reduction="none")
case("NegativeLogLikelihoodLoss", [f(3, 5), i(1, 2, 3)])
case("Resize", [f(1, 2, 4, 5), None, np.array([1, 1, 2, 1.5], "float32")], init=(2,))
case("Resize", [f(1, 2, 4, 5), None, None, i(1, 2, 7, 9)], init=(3,), mode="linear")
case("Resize", [f(1, 2, 4, 5), None, np.array([1.7, 2.5], "float32")], init=(2,), axes=[2, 3], opset=18)
case(
    "Resize",
    [f(1, 2, 4, 5), None, None, i(7, 9)],
    init=(3,),
    axes=[2, 3],
    opset=18,
    keep_aspect_ratio_policy="not_larger",
)
case("Resize", [f(1, 2, 4, 5), np.array([1, 1, 2, 2], "float32")], init=(1,), opset=10)
case("Upsample", [f(1, 2, 4, 5), np.array([1, 1, 2, 2.5], "float32")], init=(1,), opset=9)
case("GridSample", [f(1, 2, 4, 5), f(1, 6, 7, 2)], opset=16)
case("AffineGrid", [f(1, 2, 3), i(1, 2, 6, 7)], init=(1,), opset=20)
case("RoiAlign", [f(1, 2, 8, 8), f(3, 4), i(0, 0, 0)], output_height=2, output_width=3)
case("MaxRoiPool", [f(1, 2, 8, 8), abs(f(3, 5)) * 0], pooled_shape=[2, 3])
case("Col2Im", [f(1, 12, 4), i(4, 4), i(2, 2)], init=(1, 2), opset=18, strides=[2, 2])
case("DFT", [f(1, 10, 1), np.array(10)], init=(1,), axis=1, opset=17)
case("DFT", [f(2, 10, 1)], axis=1, onesided=1)
case("STFT", [f(1, 128, 1), np.array(8, "int64"), f(16)], init=(1,))
case("HannWindow", [np.array(10, "int64")], init=(0,))
case(
    "MelWeightMatrix",
    [
        np.array(8, "int64"),
        np.array(16, "int64"),
        np.array(8192, "int64"),
        np.array(0, "float32"),
        np.array(4000, "float32"),
    ],
    init=(0, 1, 2, 3, 4),
)
case("Det", [f(2, 3, 3)])
case("Multinomial", [f(2, 5)], sample_size=4)
case("NonMaxSuppression", [abs(f(1, 6, 4)), abs(f(1, 2, 6)), i(3)], init=(2,))
case("Unique", [i(1, 1, 2, 3)], outs=4)
case("CenterCropPad", [f(4, 5), i(6, 3)], init=(1,), opset=18)
case("Attention", [f(2, 4, 5, 8), f(2, 2, 7, 8), f(2, 2, 7, 6)], opset=23)
case("Attention", [f(2, 5, 32), f(2, 7, 16), f(2, 7, 16)], opset=23, q_num_heads=4, kv_num_heads=2)
case("RMSNormalization", [f(2, 3, 4), f(4)], opset=23)
# contrib
M = "com.microsoft"
case("FusedMatMul", [f(2, 4, 3), f(2, 5, 4)], domain=M, transA=1, transB=1, alpha=0.5)
case("Attention", [f(2, 5, 8), f(8, 24), f(24)], outs=2, domain=M, num_heads=2)
case("MultiHeadAttention", [f(2, 5, 8), f(2, 7, 8), f(2, 7, 8)], domain=M, num_heads=2)
case("SkipLayerNormalization", [f(2, 3, 8), f(2, 3, 8), f(8), f(8)], domain=M)
case("BiasGelu", [f(2, 8), f(8)], domain=M)
case("FastGelu", [f(2, 8)], domain=M)
case("QuickGelu", [f(2, 8)], domain=M)
case(
    "MatMulNBits",
    [f(2, 3, 32), np.zeros((16, 1, 16), "uint8"), f(16)],
    domain=M,
    init=(1, 2),
    K=32,
    N=16,
    bits=4,
    block_size=32,
)
case(
    "GroupQueryAttention",
    [f(2, 5, 16), f(2, 5, 8), f(2, 5, 8), None, None, np.full((2,), 4, "int32"), np.array(5, "int32")],
    outs=3,
    init=(5, 6),
    domain=M,
    num_heads=4,
    kv_num_heads=2,
)
case("SimplifiedLayerNormalization", [f(2, 8), f(8)], axis=-1)
case("FusedConv", [f(1, 3, 8, 8), f(4, 3, 3, 3)], domain=M, activation="Relu")
case("DynamicQuantizeMatMul", [f(3, 4), np.ones((4, 5), "uint8"), f(1)], domain=M)
case(
    "QLinearAdd",
    [
        np.ones((3, 4), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((4,), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
        np.ones((), "float32"),
        np.zeros((), "uint8"),
    ],
    domain=M,
)
case(
    "EmbedLayerNormalization",
    [np.zeros((2, 5), "int32"), np.zeros((2, 5), "int32"), f(10, 8), f(6, 8), f(2, 8), f(8), f(8)],
    outs=2,
    domain=M,
)
case("RotaryEmbedding", [f(2, 3, 16), np.zeros((2, 3), "int64"), f(4, 4), f(4, 4)], domain=M, num_heads=2)
