"""Ops that graphs of TensorFlow 2 have beside those of TensorFlow 1: fused products, quantization, linear algebra,
transforms, resampling, sorting. The same counts as for the ops of other vocabularies: docs/cost.md."""

from __future__ import annotations

import math

from tensortide.cost.access import reads
from tensortide.cost.forms import simple
from tensortide.cost.kinds import Weights, elements
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.rules.pointwise import ARITHMETIC, COMPARISON, SPECIAL, describe
from tensortide.cost.rules.products import product
from tensortide.importers.tensorflow.rules import products
from tensortide.importers.tensorflow.rules.elements import TABLE
from tensortide.importers.tensorflow.rules.moves import tf

_MORE: dict[str, Weights] = {
    "MulNoNan": Weights(2, 0, 1),
    "Xlog1py": Weights(3, 1, 1),
    "ComplexAbs": Weights(4, 1),
    "Conj": Weights(1, 0, 0, 1),
    "Angle NextAfter Zeta Polygamma Igamma Igammac": SPECIAL,
    "SoftsignGrad": Weights(4, 1, 1),
    "ApproximateEqual": Weights(3, 0, 2),
    "LeftShift RightShift": ARITHMETIC,
    "Dequantize": Weights(2),
    "QuantizeV2": Weights(4, 1, 3),
    "FakeQuantWithMinMaxVars FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVarsPerChannel QuantizeAndDequantizeV2 "
    "QuantizeAndDequantizeV3 QuantizeAndDequantizeV4": Weights(6, 1, 3),
    "FakeQuantWithMinMaxVarsGradient FakeQuantWithMinMaxArgsGradient": Weights(2, 0, 2),
}
for _names, _weights in _MORE.items():
    tf(_names, describe(_weights), "Element by element, operands broadcast.")(simple(_weights))

_PER_ELEMENT = {name: weights for names, weights in TABLE.items() for name in names.split()}


def _epilogue(op: OpCall) -> Cost | None:
    """Cost of what a fused op does after its product; None where it does something that has no rule."""
    total, steps = Cost(), op.arg("fused_ops", ())
    for name in (steps,) if isinstance(steps, str) else steps:
        if name == "FusedBatchNorm":
            channels = op.out.shape[-1]
            total += Cost(elementwise_flops=2 * op.out.numel + 5 * channels, transcendentals=channels)
        elif name not in _PER_ELEMENT:
            return None
        else:
            total += elements(op, op.out.numel, _PER_ELEMENT[name])
    return total


@tf("_FusedMatMul", "m n k MACs + what is fused")
@tf("_FusedConv2D _FusedDepthwiseConv2dNative", "as the convolution + what is fused")
def fused(op: OpCall) -> Cost | None:
    """A product with its bias and activation as one op."""
    after = _epilogue(op)
    if after is None:
        return None
    return (products.matmul(op) if op.base == "_FusedMatMul" else products.convolution(op)) + after


@tf("Cholesky MatrixInverse MatrixTriangularSolve", "leading term, rounded down: n^3/6; n^3; n^2 r/2 MACs")
def factorization(op: OpCall) -> Cost:
    """Linear algebra said as products: docs/cost.md, products."""
    *batch, n, _ = op.inputs[0].shape
    one = {"Cholesky": n**3 // 6, "MatrixInverse": n**3}.get(op.base, n * n * int(op.out.shape[-1]) // 2)
    return product(op, math.prod(batch) * one) + Cost(exact=False, reason="leading term of the algorithm")


@tf("FFT FFT2D FFT3D IFFT IFFT2D IFFT3D", "ceil(5 n log2 n) per transform")
@tf("RFFT RFFT2D RFFT3D IRFFT IRFFT2D IRFFT3D", "ceil(2.5 n log2 n) per transform")
def fourier(op: OpCall) -> Cost:
    """Fourier transform over the last one to three axes."""
    axes = int(op.base[-2]) if op.base.endswith("D") else 1
    full = op.out if op.base.startswith("I") else op.inputs[0]
    n = math.prod(full.shape[-axes:])
    each = math.ceil((2.5 if "RFFT" in op.base else 5) * n * math.log2(n)) if n > 1 else 0
    flops = full.numel // max(n, 1) * each
    return Cost(elementwise_flops=flops, exact=False, reason="FFT by convention: 5 n log2 n")


@tf("ResizeBilinear", "7 per output: 4 multiplies, 3 adds")
@tf("ResizeBicubic", "31 per output: 16 multiplies, 15 adds")
@tf("ResizeBilinearGrad", "8 per element of the gradient")
def resized(op: OpCall) -> Cost:
    """Images of another size, each element a weighted sum of its neighbours."""
    taps = {"ResizeBilinear": 7, "ResizeBicubic": 31, "ResizeBilinearGrad": 8}[op.base]
    return Cost(elementwise_flops=taps * (op.inputs[0] if op.base.endswith("Grad") else op.out).numel)


@tf("ResizeNearestNeighborGrad", "gradient elements - image elements")
def resized_gradient(op: OpCall) -> Cost:
    """Sum of the gradients of the copies of each element."""
    return Cost(elementwise_flops=max(0, op.inputs[0].numel - op.out.numel))


@tf("TopKV2 TopK", "n ceil(log2(k + 1)) comparisons per row")
def top(op: OpCall) -> Cost:
    """Largest elements of each row."""
    k = int(op.outputs[0].shape[-1])
    op.let(E=op.inputs[0].numel, k=k)
    return elements(op, op.inputs[0].numel * k.bit_length(), COMPARISON)


@tf("SearchSorted LowerBound UpperBound Bucketize", "ceil(log2(n + 1)) comparisons per query")
def searched(op: OpCall) -> Cost:
    """Places in a sorted sequence."""
    n = len(op.arg("boundaries", ())) if op.base == "Bucketize" else int(op.inputs[0].shape[-1])
    return elements(op, op.outputs[0].numel * n.bit_length(), COMPARISON)


@tf("Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 SetDiff1D", "1 integer op per element")
def distinct(op: OpCall) -> Cost:
    """Distinct elements; as if all were."""
    return Cost(int_ops=op.inputs[0].numel, exact=False, reason="bound: as if every element were distinct")


@tf("Bincount DenseBincount", "1 integer op per element")
def binned(op: OpCall) -> Cost:
    """Count of each number."""
    return Cost(int_ops=op.inputs[0].numel)


@tf(
    "TensorScatterAdd TensorScatterSub TensorScatterMax TensorScatterMin", "1 per element of the updates",
    bytes=reads("indices", "updates"),
)  # fmt: skip
def scattered(op: OpCall) -> Cost:
    """A copy of a tensor with updates added at indices."""
    weights = COMPARISON if "ScatterM" in op.base else ARITHMETIC
    return elements(op, op.tensor("updates").numel, weights)


@tf(
    "SegmentMean SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN", "1 per element, + 1 per output of a mean",
    bytes=reads("x0", "data", "input_0"),
)  # fmt: skip
def segments(op: OpCall) -> Cost:
    """Sum or mean of the rows of equal segment."""
    mean = 0 if op.base.endswith("Sum") else op.out.numel
    return elements(op, op.inputs[0].numel + mean, ARITHMETIC) + Cost(
        exact=False, reason="bound: segments are not seen"
    )


@tf("SparseTensorDenseMatMul", "nnz n MACs")
def sparse_dense(op: OpCall) -> Cost:
    """Product of a matrix of stored elements and a dense one."""
    return product(op, op.tensor("a_values").numel * int(op.out.shape[-1]))


@tf("LRN", "per element 2 d + 4: squares of the window summed, scaled, raised, divided")
def local_response(op: OpCall) -> Cost:
    """Normalization over a window of channels; d is its length."""
    window = 2 * int(op.arg("depth_radius", 5)) + 1
    return Cost(elementwise_flops=(window + 4) * op.out.numel, transcendentals=2 * op.out.numel)
