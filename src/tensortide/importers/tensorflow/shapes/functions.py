"""Shapes of ops of TensorFlow 2 alone: random numbers from keys, transforms, quantization, searches."""

from __future__ import annotations

from tensortide.expr import constant
from tensortide.importers.shapes import replaced
from tensortide.importers.tensorflow.shapes.op import Op, Result, Tensor, shape_of

__all__: list[str] = []


@shape_of("RFFT RFFT2D RFFT3D IRFFT IRFFT2D IRFFT3D")
def real_transform(op: Op) -> Result:
    """Between real numbers and the half of the spectrum that is stored; an input has the lengths."""
    *dims, _ = op.shape(0)
    lengths = op.values(1)
    last = lengths[-1] if op.type.startswith("I") else lengths[-1] // 2 + 1
    return (*dims[: len(dims) + 1 - len(lengths)], *lengths[:-1], last)


@shape_of("TensorListGather")
def gathered(op: Op) -> Result:
    return (*op.shape(1), *op.element())


@shape_of("Bincount DenseBincount")
def binned(op: Op) -> Result:
    size = op.values(1)[0]
    return (*op.shape(0)[:-1], size) if op.type == "DenseBincount" else (size,)


@shape_of("SparseSegmentSum SparseSegmentMean SparseSegmentSqrtN")
def segments(op: Op) -> Result:
    return replaced(op.shape(0), 0, op.unknown(0, 0))


shape_of("StatelessRandomGetKeyCounter")(lambda op: [Tensor((constant(1),)), Tensor((constant(2),))])
shape_of("StatelessRandomGetAlg")(lambda op: ())
shape_of("StatelessRandomUniformIntV2 StatelessRandomUniformFullIntV2 StatelessTruncatedNormalV2")(
    lambda op: op.values(0)
)
shape_of("ResizeBilinearGrad")(lambda op: op.shape(1))
shape_of("ResizeNearestNeighborGrad")(lambda op: (op.shape(0)[0], *op.values(1), op.shape(0)[-1]))
shape_of("QuantizeV2")(lambda op: [Tensor(op.shape(0)), Tensor(()), Tensor(())])
shape_of("FakeQuantWithMinMaxVarsGradient")(lambda op: [Tensor(op.shape(0)), Tensor(()), Tensor(())])
shape_of("SearchSorted LowerBound UpperBound MatrixTriangularSolve")(lambda op: op.shape(1))
shape_of("SparseTensorDenseMatMul")(lambda op: (op.values(2)[0], op.shape(3)[-1]))
shape_of("DisableCopyOnRead")(lambda op: [])
