"""Ops of classical models and of the preview domains: shapes are those of onnx's reference runs, costs are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tensortide
from tensortide.cost import Cost, count
from tensortide.importers.onnx.learned import learned
from tensortide.importers.onnx.read import Node

ML, PREVIEW, TRAINING = "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"
RNG = np.random.default_rng(0)
KINDS = {"float32": 1, "int64": 7}
TREES: dict[str, Any] = {  # one tree of depth 2, one of depth 1
    "nodes_treeids": [0, 0, 0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 3, 4, 0, 1, 2],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_featureids": [0, 0, 1, 0, 0, 2, 0, 0],
    "nodes_values": [0.5, 0.0, 0.1, 0.0, 0.0, 0.2, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 3, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [0] * 8,
}
JOINED: dict[str, Any] = {  # the same trees, in one list of nodes
    "tree_roots": [0, 2],
    "nodes_modes": numpy_helper.from_array(np.zeros(3, "uint8")),
    "nodes_featureids": [0, 1, 2],
    "nodes_splits": numpy_helper.from_array(np.array([0.5, 0.1, 0.2], "float32")),
    "nodes_truenodeids": [0, 1, 3],
    "nodes_trueleafs": [1, 1, 1],
    "nodes_falsenodeids": [1, 2, 4],
    "nodes_falseleafs": [0, 1, 1],
    "leaf_targetids": [0] * 5,
    "leaf_weights": numpy_helper.from_array(np.ones(5, "float32")),
    "n_targets": 1,
}
WEIGHTS = dict(zip(("treeids", "nodeids", "ids"), ([0, 0, 0, 1, 1], [1, 3, 4, 1, 2], [0, 1, 2, 0, 1]), strict=True))


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def model(kind: str, inputs: list[Any], outputs: int, domain: str = ML, version: int = 1, **attributes: Any) -> Any:
    names = [f"i{place}" for place in range(len(inputs))]
    node = helper.make_node(kind, names, [f"o{i}" for i in range(outputs)], domain=domain, name="n", **attributes)
    ports = [helper.make_tensor_value_info(n, KINDS[x.dtype.name], x.shape) for n, x in zip(names, inputs, strict=True)]
    ends = [helper.make_empty_tensor_value_info(name) for name in node.output]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(domain, version)]
    return helper.make_model(helper.make_graph([node], "g", ports, ends), opset_imports=opsets, ir_version=10)


def cost_of(made: Any) -> Cost:
    return count(tensortide.open(made).graph, strict=True).total.cost


def classifier(prefix: str) -> dict[str, Any]:
    given = {f"{prefix}_{name}": values for name, values in WEIGHTS.items()}
    return {**TREES, **given, f"{prefix}_weights": [0.1, 0.2, 0.3, 0.4, 0.5]}


TABLE: list[tuple[Any, ...]] = [
    ("Binarizer", [f(3, 4)], 1, {"threshold": 0.2}),
    ("Imputer", [f(3, 4)], 1, {"imputed_value_floats": [1.0], "replaced_value_float": 0.0}),
    ("Scaler", [f(3, 4)], 1, {"scale": [2.0], "offset": [1.0]}),
    ("Normalizer", [f(3, 4)], 1, {"norm": "L2"}),
    ("LabelEncoder", [np.array([1, 2, 1])], 1, {"keys_int64s": [1, 2], "values_floats": [0.5, 0.7], "version": 2}),
    ("ArrayFeatureExtractor", [f(3, 4), np.array([0, 2])], 1, {}),
    ("ArrayFeatureExtractor", [f(4), np.array([0, 2, 1])], 1, {}),
    ("FeatureVectorizer", [f(3, 4), f(3, 2)], 1, {"inputdimensions": [4, 2]}),
    ("OneHotEncoder", [np.array([1, 2, 1])], 1, {"cats_int64s": [1, 2, 5]}),
    ("LinearRegressor", [f(5, 4)], 1, {"coefficients": [0.1] * 8, "intercepts": [0.0, 1.0], "targets": 2}),
    ("LinearClassifier", [f(5, 4)], 2,
     {"coefficients": [0.1] * 12, "intercepts": [0.0] * 3, "classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX"}),
    ("SVMRegressor", [f(5, 4)], 1,
     {"coefficients": [0.5] * 3, "support_vectors": [0.1] * 12, "n_supports": 3, "rho": [0.1], "kernel_type": "RBF",
      "kernel_params": [0.1, 0.0, 3.0]}),
    ("TreeEnsembleRegressor", [f(6, 3)], 1, {**classifier("target"), "n_targets": 3, "version": 3}),
    ("TreeEnsembleClassifier", [f(6, 3)], 2, {**classifier("class"), "classlabels_int64s": [0, 1, 2], "version": 3}),
    ("TreeEnsemble", [f(6, 3)], 1, {**JOINED, "version": 5}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "outputs", "attributes"), TABLE)
def test_results_have_the_shapes_of_a_run(kind: str, inputs: list[Any], outputs: int, attributes: Any) -> None:
    made = model(kind, inputs, outputs, **attributes)
    feeds = {f"i{place}": x for place, x in enumerate(inputs)}
    results: Any = ReferenceEvaluator(made).run(None, feeds)
    expected = [(x.shape, x.dtype.name) for x in results]
    graph = tensortide.open(made).graph
    tensors = [graph.tensors[i] for i in graph.ops[-1].outputs]
    assert [(tuple(map(int, t.shape)), t.dtype) for t in tensors] == expected
    assert cost_of(made).bytes > 0


def attributes_of(kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row[3] for row in TABLE if row[0] == kind)
    return found


def test_products_and_transformations_of_a_linear_model() -> None:
    cost = cost_of(model("LinearClassifier", [f(5, 4)], 2, **attributes_of("LinearClassifier")))
    assert cost.macs == 5 * 3 * 4
    assert cost.elementwise_flops == 5 * 3 + (5 * 5 * 3 - 2 * 5) + 5 * 2  # intercepts, softmax, the largest


def test_a_kernel_meets_every_support_vector() -> None:
    cost = cost_of(model("SVMRegressor", [f(5, 4)], 1, **attributes_of("SVMRegressor")))
    assert cost.macs == 5 * 3  # weights of 3 vectors
    assert cost.elementwise_flops == 5 * 3 * (3 * 4 - 1 + 2) + 5


@pytest.mark.parametrize("kind", ["TreeEnsembleRegressor", "TreeEnsembleClassifier", "TreeEnsemble"])
def test_a_sample_takes_the_deepest_path_of_each_tree(kind: str) -> None:
    ((inputs, outputs, attributes),) = [row[1:] for row in TABLE if row[0] == kind]
    cost = cost_of(model(kind, inputs, outputs, **attributes))
    assert (cost.comparisons, cost.elementwise_flops, cost.exact) == (6 * 3, 6 * 3 + 6 * 2, False)


def node_of(attributes: dict[str, Any]) -> Node:
    return Node(type="TreeEnsembleRegressor", domain=ML, name="n", inputs=(), outputs=(), attributes=attributes)


def test_trees_whose_nodes_lead_in_circles_end() -> None:
    circle = {**TREES, "nodes_truenodeids": [1, 0, 0, 0, 0, 1, 0, 0]}
    assert learned(node_of(circle))["deepest"] <= len(TREES["nodes_modes"])
    assert learned(node_of({"nodes_treeids": [1]})) == {}


def test_attention_whose_scores_a_graph_changes() -> None:
    cost = cost_of(model("FlexAttention", [f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 6)], 1, PREVIEW))
    assert (cost.macs, cost.exact) == (2 * 3 * 5 * 7 * (4 + 6), True)
    port = helper.make_tensor_value_info("s", 1, [2, 3, 5, 7])
    change = helper.make_graph([helper.make_node("Tanh", ["s"], ["t"])], "capped", [port], [port])
    inputs = [f(2, 3, 5, 4), f(2, 3, 7, 4), f(2, 3, 7, 6)]
    assert "graphs that change scores" in cost_of(model("FlexAttention", inputs, 1, PREVIEW, score_mod=change)).reason


@pytest.mark.parametrize(("kind", "groups", "each"), [("Adagrad", 3, 7), ("Momentum", 3, 5), ("Adam", 4, 13)])
def test_a_step_of_an_optimizer_counts_every_parameter(kind: str, groups: int, each: int) -> None:
    lists = [x for _ in range(groups) for x in (f(3, 4), f(5))]
    attributes: dict[str, Any] = {"mode": "standard", "beta": 0.9, "alpha": 0.9} if kind == "Momentum" else {}
    made = model(kind, [f(), np.array(1), *lists], 2 * (groups - 1), TRAINING, norm_coefficient=0.0, **attributes)
    graph = tensortide.open(made).graph
    assert [graph.tensors[i].shape for i in graph.ops[-1].outputs] == [(3, 4), (5,)] * (groups - 1)
    assert cost_of(made).elementwise_flops == each * (12 + 5)
