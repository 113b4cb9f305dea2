"""Paleo's layers, steps and scaling are reproduced; its inputs fail in one clear line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import TensortideError
from tensortide.timing import Device, device, paleo
from tensortide.timing.paleo.presets import find_device
from tests.timing import paleo_tables as tables

IDEAL = paleo.PLATFORMS["ideal"]
Describe = dict[str, dict[str, Any]]


def conv(parent: str, filter_: list[int], stride: int = 1, padding: str = "SAME") -> dict[str, Any]:
    strides = [1, stride, stride, 1]
    return {"type": "Convolution", "parents": [parent], "filter": filter_, "strides": strides, "padding": padding}


def pool(parent: str) -> dict[str, Any]:
    window = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
    return {"type": "Pooling", "parents": [parent], **window}


ALEXNET: Describe = {
    "data": {"type": "Input", "tensor": [128, 224, 224, 3]},
    "conv1": conv("data", [11, 11, 3, 64], 4, "VALID"),
    "pool1": pool("conv1"),
    "conv2": conv("pool1", [5, 5, 64, 192]),
    "pool2": pool("conv2"),
    "conv3": conv("pool2", [3, 3, 192, 384]),
    "conv4": conv("conv3", [3, 3, 384, 384]),
    "conv5": conv("conv4", [3, 3, 384, 256]),
    "pool5": pool("conv5"),
    "fc6": conv("pool5", [5, 5, 256, 4096], 1, "VALID"),
    "drop6": {"type": "Dropout", "parents": ["fc6"]},
    "fc7": conv("drop6", [1, 1, -1, 4096]),
    "drop7": {"type": "Dropout", "parents": ["fc7"]},
    "fc8": conv("drop7", [1, 1, 4096, 1000]),
    "softmax": {"type": "Softmax", "parents": ["fc8"], "num_classes": 1000},
}


def write(folder: Path, layers: Describe, name: str = "net") -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"name": name, "layers": layers}), "utf-8")
    return path


@pytest.fixture(scope="module")
def alexnet(tmp_path_factory: pytest.TempPathFactory) -> paleo.Net:
    return paleo.read(write(tmp_path_factory.mktemp("nets"), ALEXNET))


@pytest.fixture(scope="module")
def published(reference: Path) -> Path:
    folder = reference / "placement"
    if not (folder / "paleo_layers_totals.json.gz").is_file():
        pytest.skip("the results of the original Paleo are not committed")
    return folder


# -- published figures ------------------------------------------------------------------------------


def test_alexnet_takes_the_published_times(alexnet: paleo.Net) -> None:
    assert alexnet.params() == 50_303_912
    found = paleo.step(alexnet, "TITAN_X", platform="ideal")
    assert (found.forward, found.backward, found.update) == pytest.approx((33.162, 89.084, 1.687), abs=5e-4)
    shared = paleo.step(alexnet, "TITAN_X", platform=paleo.PaleoPlatform("tf", 0.62, 1.0))
    assert (shared.forward, shared.backward, shared.update) == pytest.approx((53.487, 143.684, 1.687), abs=5e-4)
    other = paleo.step(alexnet, "K20X", platform="ideal")
    assert (other.forward, other.backward, other.update) == pytest.approx((51.252, 138.171, 2.274), abs=5e-4)


def test_alexnet_scales_as_published(alexnet: paleo.Net) -> None:
    mxnet = paleo.scaling(alexnet, batch=512, platform="mxnet")
    assert mxnet.rows[-1].compute == pytest.approx(1067.1, abs=0.05)
    assert mxnet.speedups("TreeAllReduce")[-1] == pytest.approx(51.89, abs=0.005)
    strong = paleo.scaling(alexnet, batch=2048, mode="strong", platform=paleo.PaleoPlatform("own", 0.62, 1.0))
    assert [strong.rows[0].compute, strong.rows[-1].compute] == pytest.approx([3365.3, 29.3], abs=0.05)
    assert max(strong.speedups("TreeAllReduce")) == pytest.approx(3.93, abs=0.005)


def hybrid_alexnet(workers: int) -> Describe:
    """AlexNet of "one weird trick": the dense layers but the last split over ``workers``."""
    held: Describe = {
        "fc6": {**ALEXNET["fc6"], "parents": []},
        "drop6": {"type": "Dropout", "parents": ["fc6@self"]},
        "all6": {"type": "Concatenate", "parents": ["drop6@all"], "dim": 3},
        "fc7": conv("all6@self", [1, 1, -1, 4096]),
        "drop7": {"type": "Dropout", "parents": ["fc7@self"]},
    }
    layers = {name: layer for name, layer in ALEXNET.items() if name not in held}
    layers |= {"conv4": conv("conv3", [3, 3, 384, 256]), "conv5": conv("conv4", [3, 3, 256, 256])}
    tail = {name: layers.pop(name) for name in ("fc8", "softmax")}
    layers["dense"] = {"type": "ModelParallel", "splits": workers, "parents": ["pool5"], "layers": held}
    layers["all7"] = {"type": "Concatenate", "parents": ["dense/drop7@all"], "dim": 3}
    return {**layers, "fc8": {**tail["fc8"], "parents": ["all7"]}, "softmax": tail["softmax"]}


PCIE = {"device": "K20", "network": "pcie2", "platform": paleo.PaleoPlatform("fitted", 0.46, 0.75)}


@pytest.mark.parametrize(("workers", "ms", "speedup"), [(2, 425.6, 1.94), (4, 436.5, 3.79), (8, 493.3, 6.71)])
def test_hybrid_training_takes_the_published_times(tmp_path: Path, workers: int, ms: float, speedup: float) -> None:
    alone = {**ALEXNET, "conv4": conv("conv3", [3, 3, 384, 256]), "conv5": conv("conv4", [3, 3, 256, 256])}
    one = paleo.read(write(tmp_path, alone, "one"))
    net = paleo.read(write(tmp_path, hybrid_alexnet(workers), "hybrid"))
    assert net.params() == one.params()
    found, base = paleo.hybrid(net, **PCIE), paleo.hybrid(one, **PCIE)  # type: ignore[arg-type]
    assert (found.workers, found.batch) == (workers, 128 * workers)
    assert found.total == pytest.approx(ms, abs=0.05)
    assert base.total == pytest.approx(413.6, abs=0.05)
    assert workers * base.total / found.total == pytest.approx(speedup, abs=0.005)


def test_without_split_layers_hybrid_is_the_single_device(alexnet: paleo.Net) -> None:
    assert paleo.hybrid(alexnet, "K80").total == pytest.approx(paleo.step(alexnet, "K80").total, rel=1e-12)


def test_a_split_net_is_no_single_device(tmp_path: Path) -> None:
    net = paleo.read(write(tmp_path, hybrid_alexnet(2)))
    with pytest.raises(TensortideError, match=r"paleo\.hybrid predicts that"):
        paleo.step(net)


def test_the_given_hybrid_nets_take_the_published_times(published: Path) -> None:
    for workers, ms in ((1, 413.6), (2, 425.6), (4, 436.5), (8, 493.3)):
        net = tables.net(published, f"alex_v2_{workers}gpu")
        assert paleo.hybrid(net, **PCIE).total == pytest.approx(ms, abs=0.05)  # type: ignore[arg-type]


def test_layers_equal_the_originals(published: Path) -> None:
    pairs = list(tables.layer_pairs(published))
    assert len(pairs) > 1000
    assert max(abs(ours - theirs) for theirs, ours in pairs) < 1e-6


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_totals_equal_the_originals(published: Path, every: int) -> None:
    pairs = list(tables.total_pairs(published, every))
    assert len(pairs) == 480 // every * 5
    assert max(abs(ours / theirs - 1) for theirs, ours in pairs) < 1e-9


def test_parameters_equal_the_originals(published: Path) -> None:
    for name, row in tables.table(published, "paleo_layers_totals")["summary"].items():
        net = tables.net(published, name)
        assert (len(net.entries), net.params()) == (row["n_layers"], row["params"])


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_scaling_equals_the_originals(published: Path, every: int) -> None:
    pairs = list(tables.scaling_pairs(published, every))
    assert len(pairs) == 432 // every * 8 * 11
    assert max(tables.off(*pair) for pair in pairs) < 1e-6


def test_case_studies_equal_the_originals(published: Path) -> None:
    assert max(tables.off(*pair) for pair in tables.case_pairs(published)) < 1e-9


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.slow)])
def test_the_table_of_2016_is_met(published: Path, every: int) -> None:
    pairs = list(tables.demo_pairs(published, every=every))
    assert len(pairs) == 432 // every * 3 * 8
    assert max(abs(ours / theirs - 1) for theirs, ours in pairs) < 7e-3


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow)])
def test_what_the_table_of_2016_exchanges_is_met_where_cudnn_chose_the_algorithms_too(
    published: Path, every: int
) -> None:
    pairs = list(tables.exchange_pairs(published, every))
    if every == 1:
        assert len(pairs) == 432 * 2 * 8 + 216 * 3 * 8
    assert len(pairs) > 432 // every * 2 * 8  # settings of weak scaling are among them
    assert max(tables.off(*pair) for pair in pairs) < 2e-4


def test_blocks_and_other_nets_equal_a_simulator_of_the_same_model(published: Path) -> None:
    share = paleo.PaleoPlatform("share", 0.9, 1.0)
    tables_of_ops = tables.table(published, "op_times")["ops"]
    assert len(tables_of_ops) == 20
    for key, ops in tables_of_ops.items():
        name, device = key.split("|")
        net = paleo.read(published / "inputs" / "exprimo" / "nets" / f"{name}.json")
        times = paleo.step(net, tables.OTHER_DEVICES[device], batch=128, platform=share)
        assert_rows(times, [(op[0], *op[-2:]) for op in ops])
    blocks = published / "inputs" / "examples"
    expected = json.loads((blocks / "blocks_expected.json").read_text("utf-8"))["ops"]
    titan = paleo.step(paleo.read(blocks / "blocks.json"), "TITAN_X", batch=128, platform=share)
    assert_rows(titan, [(op[0], *op[-2:]) for op in expected])


def assert_rows(step: paleo.StepTime, rows: list[tuple[str, float, float]]) -> None:
    times = {layer.name: layer for layer in step.layers}
    assert set(times) == {name for name, *_ in rows}
    for name, forward, data in rows:
        ours = times[name].forward.together(), times[name].data.together()
        assert ours == pytest.approx((forward, data), rel=1e-9)


# -- properties -------------------------------------------------------------------------------------


@given(st.sampled_from(sorted(paleo.DEVICES)), st.sampled_from(sorted(paleo.PLATFORMS)), st.integers(1, 300))
def test_one_worker_is_the_single_device(alexnet: paleo.Net, device: str, platform: str, batch: int) -> None:
    alone = paleo.step(alexnet, device, batch=batch, platform=platform)
    for mode in ("weak", "strong"):
        found = paleo.scaling(alexnet, device, workers=[1], batch=batch, mode=mode, platform=platform)
        (row,) = found.rows
        assert row.total("TreeAllReduce") == row.total("OneToAll") == alone.total
        assert found.speedups("ButterflyAllReduce") == (1.0,)


@given(st.floats(0.05, 1.0), st.floats(1.0, 8.0), st.integers(1, 200), st.integers(1, 100))
def test_more_work_or_slower_hardware_never_takes_less(
    alexnet: paleo.Net, share: float, faster: float, batch: int, more: int
) -> None:
    slow = Device(name="slow", fp32_tflops=1, memory_gbytes_per_s=100, boost_mhz=1000)
    fast = msgspec.structs.replace(slow, fp32_tflops=faster, memory_gbytes_per_s=100 * faster)
    platform = paleo.PaleoPlatform("share", share, share)
    base = paleo.step(alexnet, slow, batch=batch, platform=platform)
    assert paleo.step(alexnet, fast, batch=batch, platform=platform).total <= base.total * (1 + 1e-12)
    assert paleo.step(alexnet, slow, batch=batch + more, platform=platform).total > base.total
    assert paleo.step(alexnet, slow, batch=batch, platform="ideal").total <= base.total * (1 + 1e-12)
    assert paleo.step(alexnet, slow, batch=batch, platform=platform, overlap=True).total <= base.total


@given(st.integers(1, 500), st.integers(0, 500))
def test_more_workers_never_exchange_in_less_time(workers: int, more: int) -> None:
    for sends in paleo.EXCHANGES.values():
        assert sends(workers) <= sends(workers + more)
    tree, butterfly, to_all = (paleo.EXCHANGES[name] for name in ("TreeAllReduce", "ButterflyAllReduce", "OneToAll"))
    assert butterfly(workers) <= tree(workers) <= to_all(workers)


def test_gradients_of_the_data_stop_at_the_input(alexnet: paleo.Net) -> None:
    layers = {layer.name: layer for layer in paleo.step(alexnet).layers}
    assert layers["conv1"].data == (0.0, 0.0)
    assert layers["conv1"].weights.compute > 0
    assert layers["softmax"].forward == (0.0, 0.0)


def test_every_preset_names_its_source() -> None:
    sources = (
        {name: (row.name, row.compute_source) for name, row in paleo.DEVICES.items()},
        {name: (row.name, row.about) for name, row in paleo.NETWORKS.items()},
        {name: (row.name, row.source) for name, row in paleo.PLATFORMS.items()},
    )
    for table in sources:
        for name, (own, source) in table.items():
            assert own == name
            assert source not in ("", "your own")


def test_a_device_of_the_catalogue_is_one_of_paleo(alexnet: paleo.Net) -> None:
    row = device("V100-SXM-16GB")
    found = find_device(row)
    assert (found.peak_gflops, found.mem_bandwidth, found.clock_mhz) == (15_700, 900, 1530)
    assert paleo.step(alexnet, row) == paleo.step(alexnet, "V100")


# -- bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"device": "TITANX2"}, "Paleo has no device called 'TITANX2'.\nNear names: TITAN_X"),
        ({"device": "titan"}, "Near names: TITAN_X."),
        ({"network": "infinband"}, "Near names: infiniband."),
        ({"platform": "tensorflo"}, "Near names: tensorflow."),
        ({"device": Device(name="mine", memory_gbytes_per_s=1)}, "mine has no fp32_tflops, which layers are timed by"),
        ({"device": Device(name="mine", fp32_tflops=1, memory_gbytes_per_s=1)}, "mine has no boost_mhz"),
        ({"platform": paleo.PaleoPlatform("mine", 0, 1)}, "every share of a platform must be above zero"),
        ({"workers": [0]}, "a step of 0 workers: it needs a whole number, at least 1"),
        ({"workers": [1.5]}, "a step of 1.5 workers: it needs a whole number, at least 1"),
        ({"batch": 0}, "a batch of 0 has no rows"),
        ({"mode": "both"}, "no scaling is called 'both': 'weak' or 'strong'."),
    ],
)
def test_unknown_names_and_empty_settings_are_one_error(alexnet: paleo.Net, call: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError) as error:
        paleo.scaling(alexnet, **call)
    assert message in str(error.value)


def test_names_may_be_written_as_people_do(alexnet: paleo.Net) -> None:
    assert paleo.step(alexnet, "titan x") == paleo.step(alexnet, "TITAN_X")


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        (
            "conv9",
            {"type": "Convolutional", "parents": ["data"]},
            "no layer of type 'Convolutional'.\nNear names: Conv",
        ),
        ("conv9", {"type": "Deconvolution", "parents": ["data"]}, "Deconvolution is not predicted"),
        ("conv9", {"type": "ModelParallel", "layers": {}, "splits": 0}, "'conv9': 0 splits: 1 or more."),
        ("conv9", conv("data", [3, 3, 5, 8]), "'conv9': filter takes 5 channels, the input [128, 224, 224, 3] has 3"),
        ("conv9", conv("data", [3, 3]), "filter is [3, 3]"),
        ("conv9", conv("dta", [3, 3, 3, 8]), "there is no parent 'dta'. Near names: data."),
        ("conv9", conv("conv9", [3, 3, 3, 8]), "layers form a cycle: conv9 -> conv9"),
        ("conv9", conv("fc8", [3, 3, 1000, 8], 1, "VALID"), "has no output"),
        ("conv9", conv("data", [3, 3, 3, 8], 0), "strides of 4 positive numbers"),
        ("conv9", conv("data", [3, 3, 3, 8], 1, "FULL"), "padding is 'FULL'"),
        ("conv9", {"type": "Convolution", "parents": ["data"]}, "Convolution needs 'filter'"),
        ("conv9", {"type": "Pooling", "parents": [], "ksize": [1, 2, 2, 1]}, "Pooling needs a parent"),
        ("conv9", {"type": "Softmax", "parents": "data"}, "'conv9': Expected `array`, got `str` - at `$.parents`"),
        ("sum", {"type": "Elementwise", "parents": ["conv1", "conv2"]}, "needs inputs of equal shape"),
        ("block", {"type": "Block", "layers": {}, "endpoint": "end"}, "endpoint 'end' is none of its layers"),
    ],
)
def test_a_wrong_layer_is_named(tmp_path: Path, name: str, layer: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError) as error:
        paleo.read(write(tmp_path, {**ALEXNET, name: layer}))
    assert message in str(error.value)


@pytest.mark.parametrize("text", ["", "[]", '{"name": "x"}', '{"layers": {}}', "\xff"])
def test_a_file_without_layers_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TensortideError, match=r"net\.json"):
        paleo.read(path)
    with pytest.raises(TensortideError, match="cannot be read"):
        paleo.read(tmp_path / "missing.json")
