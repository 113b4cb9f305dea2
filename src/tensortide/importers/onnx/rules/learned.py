"""Cost rules of the ops of ``ai.onnx.ml`` (classical models) and of the preview domains: optimizers, attention."""

from __future__ import annotations

from tensortide.cost.access import Bytes, size
from tensortide.cost.families import fill, gather, move
from tensortide.cost.families.products import product
from tensortide.cost.kinds import Weights, rows_work
from tensortide.cost.opcall import OpCall
from tensortide.cost.record import Cost
from tensortide.cost.registry import Vocabulary
from tensortide.importers.onnx.rules.products import attended

ml = Vocabulary("ai::onnx.ml")
preview = Vocabulary("ai::onnx.preview")
training = Vocabulary("ai::onnx.preview.training")

ml.rows({
    "Binarizer Imputer": "comparison",
    "Scaler": Weights(2),
    "FeatureVectorizer": move("Features of several inputs, one after the other."),
    "CategoryMapper LabelEncoder": move("Other values for those of the input, by a table."),
    "OneHotEncoder": fill("Zeros with a one for every category."),
    "ArrayFeatureExtractor": gather("Y", "Features by their places."),
})  # fmt: skip


@ml("Normalizer", "per row of n: MAX and L1 3n - 1, L2 3n", family="normalization")
def normalized(op: OpCall) -> Cost:
    """Rows divided by their norm."""
    x = op.inputs[0]
    n = x.shape[-1] if x.shape else 1
    rows = x.numel // max(1, n)
    euclidean = op.arg("norm", "MAX") == "L2"
    op.let(R=rows, n=n)
    compared = x.numel + (x.numel - rows if op.arg("norm", "MAX") == "MAX" else 0)
    return Cost(
        elementwise_flops=3 * x.numel - (0 if euclidean else rows), transcendentals=x.numel + rows * euclidean,
        comparisons=0 if euclidean else compared,
    )  # fmt: skip


_LINKS = {"LOGISTIC": 4, "PROBIT": 1}
"""Work of a transformation of a score; of a softmax 5 per score, of which each row lacks 2."""


def _linked(op: OpCall, scores: int, rows: int) -> Cost:
    """The transformation of scores at the end."""
    kind = str(op.arg("post_transform", "NONE"))
    if kind.startswith("SOFTMAX"):
        return rows_work(op, 5 * scores - 2 * rows, 2 * scores, scores - rows)
    return rows_work(op, _LINKS.get(kind, 0) * scores)


@ml(
    "LinearClassifier",
    "R C k MACs + R C of the intercepts, R (k - 1) comparisons of the label, the transformation",
    family="contraction",
)
@ml(
    "LinearRegressor",
    "R T k MACs + R T of the intercepts, the transformation",
    "Rows times a matrix of features.",
    family="contraction",
)
def linear(op: OpCall) -> Cost:
    """Scores of classes, and the class of the largest."""
    x, scores = op.inputs[0], op.outputs[-1]
    rows, k = scores.shape[0], x.shape[-1]
    op.let(R=rows, C=scores.shape[1], k=k)
    labelled = rows * (scores.shape[1] - 1) if len(op.outputs) > 1 else 0
    cost = product(op, scores.numel * k, scores.numel) + _linked(op, scores.numel, rows)
    return cost + Cost(elementwise_flops=labelled, comparisons=labelled)


_KERNELS = {"LINEAR": (0, 0), "POLY": (3, 1), "SIGMOID": (3, 1), "RBF": (0, 1)}
"""Work per pair of a sample and a support vector beside the product of features, and special functions."""


@ml(
    "SVMRegressor SVMClassifier",
    "R S k MACs of features, S support vectors (RBF: 3 R S k + 2 R S), R S T of weights",
    family="contraction",
)
def support(op: OpCall) -> Cost:
    """A kernel of every sample with every support vector, weighted and summed. Without vectors it is linear."""
    x, scores = op.inputs[0], op.outputs[-1]
    rows, k = scores.shape[0], x.shape[-1]
    vectors = int(op.arg("elements", 0)) // max(1, k)
    kind, targets = str(op.arg("kernel_type", "LINEAR")), max(1, scores.shape[1] - (len(op.outputs) > 1))
    op.let(R=rows, S=vectors, k=k, T=targets)
    if not vectors:
        return product(op, scores.numel * k, scores.numel)
    pairs = rows * vectors
    of_features, of_weights = pairs * k, pairs * targets
    extra, special = _KERNELS.get(kind, (0, 0))
    if kind == "RBF":  # a difference, a square and a sum per feature, a scaling and an exponential
        cost = product(op, of_weights, of_features * 3 + pairs * 2 - pairs)
    else:
        cost = product(op, of_features + of_weights, pairs * extra)
    cost += Cost(transcendentals=pairs * special, elementwise_flops=rows * targets)
    return cost + Cost(exact=False, reason="convention: dense kernels; probabilities not counted")


@ml(
    "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    "R D comparisons, D the deepest paths; R (trees) adds",
    family="selection",
)
def trees(op: OpCall) -> Cost | None:
    """A path from root to leaf in every tree, and the sum of the leaves."""
    if not op.has("trees"):
        return None
    rows = op.out.shape[0]
    deepest, count = int(op.arg("deepest")), int(op.arg("trees"))
    op.let(R=rows, D=deepest, trees=count)
    cost = Cost(elementwise_flops=rows * (deepest + count), comparisons=rows * deepest)
    cost += _linked(op, op.outputs[-1].numel, rows)
    return cost + Cost(exact=False, reason="bound: the deepest path of every tree")


@preview("FlexAttention", "B Hq Sq Sk (Dk + Dv) MACs; softmax and scale 6 Sk - 2 per row", family="attention")
def attention(op: OpCall) -> Cost:
    """Attention of heads. What a graph does to scores is not in the count."""
    (batch, heads, queries, inner), keys, width = op.inputs[0].shape, op.inputs[1].shape[2], op.inputs[2].shape[3]
    cost = attended(op, batch * heads, queries, keys, inner, width)
    changed = any(op.has(name) for name in ("score_mod", "prob_mod"))
    return cost + Cost(exact=not changed, reason="without the graphs that change scores" if changed else "")


STEPS = {
    "Adagrad": (7, 2, 2, "sum of squares 2, root and eps 2, update 3"),
    "Adam": (13, 2, 3, "first moment 3, second moment 4, denominator 3, update 3"),
    "Momentum": (5, 0, 2, "decay and scaled gradient 3, update 2"),
}
"""Per element: FLOPs, special functions; how many of the lists are written; what they do."""


def _stepped(op: OpCall) -> Bytes:
    """All lists are read, parameters and state written."""
    return Bytes(size(op.inputs), size(op.outputs))


def step(op: OpCall) -> Cost:
    """One step per element of the parameters."""
    name = op.name.rpartition("::")[2]
    flops, special, lists, _ = STEPS[name]
    count = sum(tensor.numel for tensor in op.outputs[: len(op.outputs) // lists])
    flops += 2 * bool(op.arg("norm_coefficient", 0.0)) + bool(op.arg("norm_coefficient_post", 0.0))
    flops += 2 * (op.arg("mode", "standard") == "nesterov")
    op.let(elements=count, per_element=flops)
    return Cost(elementwise_flops=flops * count, transcendentals=special * count)


for _name, (_flops, _, _, _text) in STEPS.items():
    _formula = f"{_flops} per element, + 2 of a norm" + " (+ 2 Nesterov)" * (_name == "Momentum")
    training(_name, _formula, f"One step: {_text}.", bytes=_stepped, family="optimizer")(step)
