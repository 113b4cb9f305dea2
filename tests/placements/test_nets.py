"""Net specs and assignment maps: blocks, orders, shards; what is wrong is one error that names file and layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.placements import Net, named_placement, read_assignment, read_net, simulate, write_assignment
from tensortide.placements.nets.sharding import expand
from tensortide.timing.clusters.device_graphs import DeviceGraph, GraphDevice, as_cluster
from tensortide.timing.paleo.layers import Entry
from tests.placements.cases import EXPRIMO, PUBLISHED, cluster, net

Layers = dict[str, dict[str, Any]]
INPUT = {"type": "Input", "tensor": [4, 8, 8, 6]}


def conv(parents: list[str], channels: int = 6, **more: Any) -> dict[str, Any]:
    return {"type": "Convolution", "parents": parents, "filter": [3, 3, -1, channels], **more}


def write(folder: Path, layers: Layers, name: str = "net.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"name": "drawn", "layers": layers}), "utf-8")
    return path


def test_blocks_are_name_spaces_and_stand_for_their_endpoint(tmp_path: Path) -> None:
    inner = {"a/x": conv([], device=2), "b": conv(["a/x"]), "c": {"type": "Concatenate", "parents": ["a/x", "b"]}}
    block = {"type": "Block", "parents": ["data"], "endpoint": "c", "layers": inner, "device": 1}
    found = read_net(write(tmp_path, {"data": INPUT, "mix": block, "end": conv(["mix"])}))
    assert found.order == ("data", "mix/a/x", "mix/b", "mix/c", "end")
    assert found.defaults == ((0,), (2,), (1,), (1,), (0,))
    assert found.entries["end"].parents == ("mix/c",)
    assert found.layers(2)[3].output == (2, 8, 8, 12)


def test_a_key_that_is_misspelt_is_refused_and_those_of_published_files_are_not(tmp_path: Path) -> None:
    wrong: Layers = {
        "tensro": {"tensro": [4, 8, 8, 6], **INPUT},
        "endpont": {"type": "Block", "endpont": "x", "layers": {}},
    }
    path = tmp_path / "net.json"
    for key, layer in wrong.items():
        write(tmp_path, {"data": INPUT, "one": layer})
        with pytest.raises(TensortideError, match=f"'one': unknown key '{key}'; near names: (tensor|endpoint)"):
            read_net(path)
    inner = {"type": "Block", "endpoint": "c", "layers": {"c": conv([], stride=2)}, "parents": ["data"]}
    with pytest.raises(TensortideError, match="layer 'b/c': unknown key 'stride'; near names: strides"):
        read_net(write(tmp_path, {"data": INPUT, "b": inner}))
    path.write_text(json.dumps({"nmae": "n", "layers": {"data": INPUT}}), "utf-8")
    with pytest.raises(TensortideError, match="unknown key 'nmae'; near names: name"):
        read_net(path)
    drawn = {"data": INPUT, "a": conv(["data"], bias=False), "x": {"type": "New", "parents": ["a"], "any": 1}}
    assert read_net(write(tmp_path, drawn), unknown=True).unknown == ("x",)


def test_the_order_takes_the_last_of_a_stack(tmp_path: Path) -> None:
    layers = {"one": INPUT, "two": INPUT, "a": conv(["two"]), "b": conv(["one"]), "c": conv(["one"])}
    assert read_net(write(tmp_path, layers)).order == ("two", "a", "one", "c", "b")


def test_the_batch_replaces_the_first_dimension_of_every_tensor(tmp_path: Path) -> None:
    layers = {"data": INPUT, "flat": {"type": "Reshape", "parents": ["data"], "output_shape": [-1, 48]}}
    found = read_net(write(tmp_path, layers))
    assert [layer.output for layer in found.layers()] == [(4, 8, 8, 6), (32, 48)]
    assert [layer.output for layer in found.layers(2)] == [(2, 8, 8, 6), (2, 48)]


def test_shards_share_output_channels_and_each_reader_joins_them(tmp_path: Path) -> None:
    layers = {"data": INPUT, "x": conv(["data"], 8), "y": conv(["x"]), "z": conv(["x"], 5)}
    found = read_net(write(tmp_path, layers))
    made = expand(found, [(0,), (2, 0, 1), (1,), (0, 1)])
    shapes = {layer.name: layer.output[-1] for layer in made.net.layers()}
    shards = {"x_shard0": 3, "x_shard1": 3, "x_shard2": 2}
    joined = {"y_conc_x": 8, "z_conc_x": 8}
    assert found.order == ("data", "x", "z", "y")
    assert shapes == {"data": 6, **shards, **joined, "y_shard0": 3, "y_shard1": 3, "z": 5}
    place = dict(zip(made.net.order, made.placement, strict=True))
    assert [place[name] for name in shards] == [2, 0, 1]
    assert (place["y_conc_x"], place["z_conc_x"]) == (0, 1)
    assert made.net.entries["y_shard1"].parents == ("y_conc_x",)


def test_assignment_maps_of_several_nets_say_what_they_leave(tmp_path: Path) -> None:
    folder = EXPRIMO / "nets" / "device_assignments"
    found = read_assignment(folder / "resnet50_sharded.json", net("resnet50"))
    assert len(found.devices) == 74
    assert any(len(devices) > 1 for devices in found.devices)
    union = read_assignment(folder / "mnist.json", net("resnet50"))
    assert (len(union.extra), len(union.missing)) == counts(folder / "mnist.json", net("resnet50").order)
    write_assignment(tmp_path / "map.json", net("resnet50"), found)
    assert read_assignment(tmp_path / "map.json", net("resnet50")).devices == found.devices
    run = simulate(net("resnet50"), cluster("malvik"), found, PUBLISHED)
    assert run.ops == 2 * len(run.net.order) > 2 * 74


def test_assignment_maps_have_the_names_of_devices_that_have_some(tmp_path: Path) -> None:
    alex, path = net("alex_v2"), tmp_path / "map.json"
    parts = tuple(GraphDevice(model="K80", id=name, clock=1, peak_gflops=1) for name in ("left", "right"))
    two = as_cluster(DeviceGraph((), parts), "two")
    devices = [(number % 2,) if number else (0, 1) for number in range(15)]
    write_assignment(path, alex, devices, two)
    written = json.loads(path.read_text())
    assert [*written.values()] == [["left", "right"], *(("left", "right")[number % 2] for number in range(1, 15))]
    assert read_assignment(path, alex, two).devices == tuple(devices)
    with pytest.raises(TensortideError, match=r"map\.json: 'data' is on 'left': read it with the cluster that has"):
        read_assignment(path, alex)
    path.write_text(json.dumps({**written, "conv1": "middle"}))
    with pytest.raises(
        TensortideError, match=r"map\.json: two: there is no device 'middle'; its devices are left, right"
    ):
        read_assignment(path, alex, two)
    with pytest.raises(TensortideError, match="placed on device 2: devices are 0 to 1"):
        write_assignment(path, alex, [2] * 15, two)


def counts(path: Path, order: tuple[str, ...]) -> tuple[int, int]:
    names = set(json.loads(path.read_text("utf-8")))
    return len(names - set(order)), len(set(order) - names)


def test_unknown_types_are_free_where_they_are_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, {"data": INPUT, "act": {"type": "Swish", "parents": ["data"]}})
    with pytest.raises(TensortideError, match=r"layer 'act'.*'Swish'"):
        read_net(path)
    found = read_net(path, unknown=True)
    assert found.unknown == ("act",)
    assert simulate(found, cluster("malvik"), [1, 1], PUBLISHED).makespan == 0


WRONG: dict[str, tuple[Layers, str]] = {
    "cycle": ({"a": conv(["b"]), "b": conv(["a"])}, r"layers form a cycle: \w -> \w"),
    "itself": ({"data": INPUT, "a": conv(["a"])}, "layers form a cycle: a -> a"),
    "dangling": ({"data": INPUT, "a": conv(["dat"])}, r"layer 'a': there is no parent 'dat'. Near names: data"),
    "type": ({"data": INPUT, "a": conv(["data"], type="Convolutoin")}, r"'Convolutoin'(.|\n)*Near names: Convolution"),
    "no type": ({"data": {"tensor": [1]}}, "missing required field `type`"),
    "shape": (
        {"data": INPUT, "a": {"type": "Convolution", "parents": ["data"], "filter": [3, 3]}},
        "layer 'a': filter",
    ),
    "channels": ({"data": INPUT, "a": conv(["data"], filter=[3, 3, 4, 6])}, r"takes 4 channels, the input"),
    "orphan": ({"a": conv([])}, "layer 'a': Convolution needs a parent"),
    "tensor": ({"data": {"type": "Input", "tensor": [0, 2]}}, "has no output"),
    "device": ({"data": {**INPUT, "device": -1}}, "layer 'data': 'device' is -1: 0 or more"),
    "no device": ({"data": {**INPUT, "device": []}}, r"layer 'data': 'device' is \(\)"),
    "word": ({"data": {**INPUT, "device": "gpu"}}, r"layer 'data': Expected `int \| array \| null`"),
    "endpoint": ({"data": INPUT, "m": {"type": "Block", "parents": ["data"], "endpoint": "z", "layers": {}}}, "'z'"),
    "parallel": ({"m": {"type": "ModelParallel", "splits": 2, "layers": {}}}, r"tensortide place paleo predicts"),
    "empty": ({}, "the network has no layer"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_net_is_one_error(tmp_path: Path, case: str) -> None:
    layers, message = WRONG[case]
    path = write(tmp_path, layers)
    with pytest.raises(TensortideError, match=message) as caught:
        read_net(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no network of layers in JSON"),
        ("[]", "no network of layers in JSON"),
        ('{"layers": 3}', "no network of layers in JSON"),
        (
            '{"layers": {"a": {"type": "Input", "tensor": [1]}, "a": {"type": "Input", "tensor": [2]}}}',
            "'a' stands twice",
        ),
        ("[" * 200_000, "no network of layers in JSON"),
        ('{"layers": {"a": \xff}}', "no network of layers in JSON"),
    ],
    ids=["empty", "list", "number", "twice", "deep", "bytes"],
)
def test_a_file_that_is_no_net_is_one_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "net.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(TensortideError, match=message):
        read_net(path)
    with pytest.raises(TensortideError, match="cannot be read"):
        read_net(tmp_path)


def test_a_net_made_by_hand_is_checked_too() -> None:
    with pytest.raises(TensortideError, match="there is no parent 'b'"):
        simulate(Net("hand", {"a": Entry(type="Softmax", parents=("b",))}), cluster("malvik"), [0])
    with pytest.raises(TensortideError, match="layers form a cycle: a -> a"):
        simulate(Net("hand", {"a": Entry(type="Softmax", parents=("a",))}), cluster("malvik"), [0])


def test_a_placement_of_another_net_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match=r"of another net: it has 15 entries, and .* has 9 layers"):
        simulate(net("mnist"), cluster("malvik"), [0] * 15, PUBLISHED)
    with pytest.raises(TensortideError, match="layer 'data' is placed on device 3: devices are 0 to 2"):
        simulate(net("mnist"), cluster("malvik"), [3] * 9, PUBLISHED)
    with pytest.raises(TensortideError, match=r"layer 'data' is placed on device -1"):
        simulate(net("mnist"), cluster("malvik"), [[]] * 9, PUBLISHED)
    path = tmp_path / "map.json"
    path.write_text('{"conv9": 1}')
    with pytest.raises(TensortideError, match=r"map\.json: the map is of another net.*Near names: conv"):
        read_assignment(path, net("alex_v2"))
    path.write_text('{"conv1": 1.5}')
    with pytest.raises(TensortideError, match=r"map\.json: not a map of layers to devices"):
        read_assignment(path, net("alex_v2"))
    path.write_text('{"conv1": []}')
    with pytest.raises(TensortideError, match="'conv1' is on"):
        read_assignment(path, net("alex_v2"))
    with pytest.raises(TensortideError, match="layer 'conv1' has 64 output channels: too few for 65 devices"):
        expand(net("alex_v2"), [tuple(range(65))] * 15)


@pytest.mark.parametrize(
    ("name", "message"), [("all3", "devices are 0 to 2"), ("zigzag", "it is all0, all1, ..., alt, contig, contig_gpu")]
)
def test_names_of_placements_are_known(name: str, message: str) -> None:
    with pytest.raises(TensortideError, match=message):
        named_placement(name, 9, 3)
