"""Keras files, read without Keras: products and parameters are those derived by hand."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.cost import count
from tensortide.cost.evaluate import rule_for
from tensortide.errors import TensortideError, WorkloadError
from tensortide.expr import expr_of, symbol
from tensortide.graph import Role
from tensortide.importers.keras.archive import KerasFileError
from tensortide.importers.keras.layers import LAYERS
from tests.importers import truths


def opened(name: str, **sizes: int) -> Any:
    return tensortide.open(truths.folder() / f"{name}.keras", hyperparameters=sizes)


def written(path: Path, config: object, metadata: object = None) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", json.dumps(metadata or {"keras_version": "3.15.1"}))
        archive.writestr("config.json", config if isinstance(config, str) else json.dumps(config))
    return path


def layer(kind: str, name: str, shape: list[int | None] | None = None, **config: object) -> dict[str, Any]:
    built = {"build_config": {"input_shape": shape}} if shape else {}
    return {
        "module": "keras.layers",
        "class_name": kind,
        "registered_name": None,
        "config": {"name": name, **config},
    } | built


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    first = layer("InputLayer", "x", batch_shape=[None, 4], dtype="float32")
    return {"module": "keras", "class_name": "Sequential", "config": {"name": "net", "layers": [first, *layers]}}


@pytest.mark.parametrize("name", truths.named("keras"))
def test_products_and_parameters_are_those_derived_by_hand(name: str) -> None:
    record = truths.truth()[name]
    graph = opened(name, batch=truths.batch(name)).graph
    assert count(graph, strict=True).total.macs == record["macs"]
    assert truths.learned(graph) == record["parameters"]["trainable"]
    every = {named.tensor for named in graph.named if named.role in (Role.PARAMETER, Role.BUFFER)}
    assert sum(graph.tensors[index].numel for index in every) == record["parameters"]["all"]


def test_the_batch_is_a_symbol() -> None:
    step = opened("keras/mlp", batch=7)
    assert count(step.graph).total.macs == 7 * 11392
    assert dict(step.symbols) == {"batch": 7}
    assert any("batch is open" in note for note in opened("keras/mlp").graph.meta.assumptions)
    with pytest.raises(WorkloadError, match="has no symbol 'bach'"):
        opened("keras/mlp", bach=2)


@pytest.mark.parametrize("name", ["keras/gpt2_2l", "keras/resnet18_w8"])
def test_sums_of_residual_blocks_keep_the_batch_of_one(name: str) -> None:
    graph = opened(name).graph
    macs = expr_of(count(graph).total.macs)
    assert macs == symbol("batch") * count(opened(name, batch=7).graph).total.macs / 7


def test_attention_under_a_causal_mask_has_its_active_part() -> None:
    record = truths.truth()["keras/gpt2_2l"]
    assert count(opened("keras/gpt2_2l", batch=2).graph).total.cost.active_macs == record["active_macs"]


def test_modules_are_the_layers() -> None:
    graph = opened("keras/gpt2_2l").graph
    kinds = {module.path: module.type for module in graph.modules}
    assert kinds["multi_head_attention"] == "MultiHeadAttention"
    assert {named.name for named in graph.named} >= {"dense_7.kernel", "multi_head_attention.query.kernel"}


def test_code_in_a_layer_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = truths.folder() / "bad" / "keras_lambda.keras"
    monkeypatch.chdir(tmp_path)
    counted = count(tensortide.open(bad).graph)
    assert [group.name for group in counted.coverage.missing] == ["keras.Lambda"]
    assert not list(tmp_path.iterdir())


def test_a_class_of_the_users_is_unknown_by_name(tmp_path: Path) -> None:
    own = layer("Dense", "mine", [None, 4], units=3) | {"module": "os", "registered_name": "project>Dense"}
    imposter = layer("Dense", "other", [None, 4], units=3) | {"registered_name": "project>Dense"}
    config = sequential(own, imposter, layer("Dense", "last", [None, 4], units=2))
    counted = count(tensortide.open(written(tmp_path / "x", config)).graph)
    assert [(group.name, group.count) for group in counted.coverage.missing] == [("keras.custom_project_Dense", 2)]
    assert counted.total.macs == 4 * 2
    assert (counted.sizes.unknown_layers, counted.sizes.sign) == (2, ">= "), "their weights are in no count"
    known = count(tensortide.open(written(tmp_path / "y", sequential(layer("Dense", "one", [None, 4], units=3)))).graph)
    assert (known.sizes.unknown_layers, known.sizes.sign) == (0, "")


def test_a_layer_that_is_called_twice_has_its_weights_once(tmp_path: Path) -> None:
    def tensor(name: str, node: int = 0) -> dict[str, Any]:
        config = {"shape": [None, 4], "dtype": "float32", "keras_history": [name, node, 0]}
        return {"class_name": "__keras_tensor__", "config": config}

    shared = layer("Dense", "shared", units=4)
    shared["inbound_nodes"] = [{"args": [tensor("x")], "kwargs": {}}, {"args": [tensor("shared")], "kwargs": {}}]
    start = layer("InputLayer", "x", batch_shape=[None, 4])
    inner = {
        "name": "net",
        "layers": [start, shared],
        "input_layers": [["x", 0, 0]],
        "output_layers": [["shared", 1, 0]],
    }
    graph = tensortide.open(
        written(tmp_path / "x", {"module": "keras", "class_name": "Functional", "config": inner})
    ).graph
    assert count(graph).total.macs == 2 * 16
    assert truths.learned(graph) == 4 * 4 + 4


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ([], "describes no model"),
        ({"class_name": "Mine", "config": {}}, "code of a class of its own"),
        (sequential(layer("Dense", "d", units=-3)), r"layer 'd' \(Dense\): its units is -3"),
        (sequential(layer("Dense", "d", units="many")), "its units is 'many'"),
        (sequential(layer("Conv2D", "c", filters=2, kernel_size=3)), "layer 'c'"),
        (sequential(layer("Reshape", "r", target_shape="x")), "its target_shape"),
        ("[" * 100_000, "nested too deeply"),
        ("{", "cannot be read"),
    ],
)
def test_a_description_that_contradicts_itself_is_one_error(tmp_path: Path, config: object, said: str) -> None:
    with pytest.raises(KerasFileError, match=said) as caught:
        tensortide.open(written(tmp_path / "x", config))
    assert "\n" not in str(caught.value)


def test_layers_that_take_each_others_results_are_one_error(tmp_path: Path) -> None:
    def tensor(name: str) -> dict[str, Any]:
        config = {"shape": [None, 4], "dtype": "float32", "keras_history": [name, 0, 0]}
        return {"class_name": "__keras_tensor__", "config": config}

    layers = [
        layer("Dense", a, units=4) | {"inbound_nodes": [{"args": [tensor(b)], "kwargs": {}}]} for a, b in ("ab", "ba")
    ]
    inner = {"name": "net", "layers": layers, "input_layers": [], "output_layers": [["a", 0, 0]]}
    with pytest.raises(KerasFileError, match="take each other's results"):
        tensortide.open(written(tmp_path / "x", {"module": "keras", "class_name": "Functional", "config": inner}))


@pytest.mark.parametrize("history", [["x", 0, 2**70], ["x", 0], 7])
def test_results_that_no_layer_has_are_one_error(tmp_path: Path, history: object) -> None:
    config = {"shape": [None, 4], "dtype": "float32", "keras_history": history}
    node = {"args": [{"class_name": "__keras_tensor__", "config": config}], "kwargs": {}}
    layers = [layer("InputLayer", "x", batch_shape=[None, 4]), layer("Dense", "d", units=4) | {"inbound_nodes": [node]}]
    inner = {"name": "net", "layers": layers, "input_layers": [["x", 0, 0]], "output_layers": [["d", 0, 0]]}
    with pytest.raises(KerasFileError, match="not described as Keras does"):
        tensortide.open(written(tmp_path / "x", {"module": "keras", "class_name": "Functional", "config": inner}))


def test_models_in_models_have_an_end(tmp_path: Path) -> None:
    config = sequential(layer("Dense", "d", units=4))
    for _ in range(40):
        config = sequential(config)
    with pytest.raises(KerasFileError, match="nested over"):
        tensortide.open(written(tmp_path / "x", config))


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", " " * (65 << 20))
    with pytest.raises(KerasFileError, match="unpacks to over"):
        tensortide.open(tmp_path / "x")


def test_sizes_beyond_all_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match="more memory than any machine has"):
        tensortide.open(written(tmp_path / "x", sequential(layer("Dense", "d", units=2**60))))


SILENT = """
Dropout SpatialDropout1D SpatialDropout2D SpatialDropout3D GaussianDropout GaussianNoise AlphaDropout Identity
ActivityRegularization Masking RandomFlip RandomRotation RandomZoom RandomTranslation RandomContrast RandomBrightness
RandomHeight RandomWidth RandomColorDegeneration RandomColorJitter RandomElasticTransform RandomErasing
RandomGaussianBlur RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization RandomSaturation
RandomSharpness RandomShear RandAugment AugMix CutMix MixUp
"""
"""Layers that do nothing in inference."""

PARTS = """
Activation ReLU LeakyReLU ELU Softmax PReLU SeparableConv1D SeparableConv2D RNN Bidirectional TimeDistributed
MultiHeadAttention GroupQueryAttention GroupedQueryAttention Normalization ReversibleEmbedding SpectralNormalization
ConvLSTM1D ConvLSTM2D ConvLSTM3D
"""
"""Layers that are made of ops of other names."""


def test_every_layer_has_a_rule() -> None:
    assert [
        kind for kind in LAYERS if kind not in f"{SILENT} {PARTS}".split() and rule_for(f"keras::{kind}") is None
    ] == []


@pytest.mark.parametrize("kind", ["Ordered", None, ["Sequential"]])
def test_layers_in_the_order_of_a_class_that_is_not_known_are_no_model(kind: object, tmp_path: Path) -> None:
    dense = {"class_name": "Dense", "module": "keras.layers", "config": {"name": "fc", "units": 3}}
    config = {"class_name": kind, "config": {"layers": [dense], "build_input_shape": [None, 4]}}
    with pytest.raises(KerasFileError, match="open it live"):
        tensortide.open(written(tmp_path / "x.keras", config))
    graph = tensortide.open(written(tmp_path / "y.keras", {**config, "class_name": "Sequential"})).graph
    assert count(graph).total.macs == 12
