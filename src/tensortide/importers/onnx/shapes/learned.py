"""Shapes of the ops of ``ai.onnx.ml`` (classical models) and of the preview domains: optimizers, attention."""

from __future__ import annotations

from typing import Any

from tensortide.importers.onnx.learned import DOMAIN
from tensortide.importers.onnx.read import Stored
from tensortide.importers.onnx.shapes.base import Call, count, shape
from tensortide.importers.onnx.value import Spec, Value
from tensortide.importers.shapes import ShapeError

PREVIEW = "ai.onnx.preview"
TRAINING = "ai.onnx.preview.training"
GROUPS = {"Adagrad": 3, "Momentum": 3, "Adam": 4}
"""Lists of tensors that an optimizer takes: parameters, gradients, and one or two of state."""


@shape("CategoryMapper LabelEncoder", DOMAIN)
def mapped(call: Call) -> Spec:
    """Other values for those of the input: of the dtype of the values that it maps to."""
    x = call.x()
    if call.node.type == "CategoryMapper":
        return call.like(dtype="int64" if x.dtype == "string" else "string")
    dtypes = {"values_int64s": "int64", "values_strings": "string", "values_floats": "float32"}
    dtype = next((dtype for name, dtype in dtypes.items() if call.attr(name) is not None), x.dtype)
    held = call.attr("values_tensor")
    return call.like(dtype=held.dtype if isinstance(held, Stored) else dtype)


@shape("ArrayFeatureExtractor", DOMAIN)
def extracted(call: Call) -> Spec:
    """Elements of the last axis, by their places."""
    x = call.ranked(0, 1)
    return call.like((*(x.shape[:-1] or (1,)), count(call.x(1).shape)))


@shape("FeatureVectorizer", DOMAIN)
def joined(call: Call) -> Spec:
    """The features of all inputs, one after the other."""
    inputs = [call.ranked(i, 1, 2) for i in range(len(call.inputs))]
    widths = [value.shape[1] if value.rank == 2 else 1 for value in inputs]
    return Spec((call.ranked(0, 1, 2).shape[0], sum(call.attr("inputdimensions", tuple(widths)))), "float32")


@shape("OneHotEncoder", DOMAIN)
def one_hot(call: Call) -> Spec:
    """A column for each category."""
    categories = call.attr("cats_int64s") or call.attr("cats_strings") or ()
    return Spec((*call.x().shape, len(categories)), "float32")


def _labels(call: Call) -> tuple[Any, ...]:
    for name in ("classlabels_ints", "classlabels_int64s", "classlabels_strings"):
        found = call.attr(name)
        if found:
            return tuple(found)
    return ()


def _rows(call: Call) -> int:
    """Return the number of samples: a vector is one."""
    x = call.ranked(0, 1)
    return x.shape[0] if x.rank > 1 else 1


@shape("LinearClassifier SVMClassifier TreeEnsembleClassifier", DOMAIN)
def classified(call: Call) -> list[Spec]:
    """The label of each sample, and a score for each class."""
    labels = _labels(call)
    if not labels:
        raise ShapeError("it has no labels of classes")
    kind = "string" if isinstance(labels[0], str) else "int64"
    return [Spec((_rows(call),), kind), Spec((_rows(call), len(labels)), "float32")]


@shape("LinearRegressor SVMRegressor TreeEnsembleRegressor TreeEnsemble", DOMAIN)
def regressed(call: Call) -> Spec:
    """Numbers for each sample."""
    targets = call.attr("targets" if call.node.type == "LinearRegressor" else "n_targets", 1)
    return Spec((_rows(call), targets), call.x().dtype if call.node.type == "TreeEnsemble" else "float32")


@shape("ZipMap", DOMAIN)
def named(call: Call) -> Spec:
    """The scores under the names of their classes: the same numbers."""
    x = call.x()
    return Spec(items=(Value(x.shape, x.dtype, handle=x.handle, name=x.name),))


@shape("FlexAttention", PREVIEW)
def attention(call: Call) -> Spec:
    """Attention of heads whose scores a graph changes."""
    q, v = call.ranked(0, 4, 4), call.ranked(2, 4, 4)
    return call.like((*q.shape[:3], v.shape[3]))


@shape(" ".join(GROUPS), TRAINING)
def stepped(call: Call) -> list[Spec]:
    """Parameters and state after a step; inputs are the rate, the count of steps, and lists."""
    given = [call.x(i) for i in range(2, len(call.inputs))]
    each, rest = divmod(len(given), GROUPS[call.node.type])
    if rest:
        raise ShapeError(f"it takes {len(given)} tensors, which is no multiple of {GROUPS[call.node.type]}")
    return [Spec(value.shape, value.dtype) for value in [*given[:each], *given[2 * each :]]]


shape("Binarizer Imputer", DOMAIN)(lambda call: call.like())
shape("Normalizer Scaler", DOMAIN)(lambda call: call.like(dtype="float32"))
