"""Device graphs: read and checked; whatever is wrong is one error that names the file, the device and the channel."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortide.errors import TensortideError
from tensortide.placements import NetProblem, read_device_graph, simulate
from tensortide.placements.search.groups import Grouped
from tests.placements.cases import EXPRIMO, PUBLISHED, graph_file, net


def device(*links: tuple[int, int], **more: Any) -> dict[str, Any]:
    neighbours = [{"device": j, "comm_channel": c} for j, c in links]
    return {"model": "GPU", "clock": 1000, "peak_gflops": 1000, "memory": 4, "neighbours": neighbours, **more}


def write(folder: Path, devices: list[dict[str, Any]], channels: int = 1, **more: Any) -> Path:
    path = folder / "graph.json"
    listed = [{"type": "pcie3", "bandwidth": 128, **more}] * channels
    path.write_text(json.dumps({"comm_channels": listed, "devices": devices}), "utf-8")
    return path


def is_sound(path: Path) -> bool:
    read_device_graph(path, faulty=True)
    try:
        read_device_graph(path)
    except TensortideError:
        return False
    return True


def test_all_given_graphs_but_one_are_sound() -> None:
    files = sorted((EXPRIMO / "device_graphs").glob("*.json"))
    assert len(files) == 15
    assert [path.stem for path in files if not is_sound(path)] == ["colocrl-2"]


def test_the_faulty_graph_is_reported_and_read_where_faults_are_accepted() -> None:
    message = r"colocrl-2\.json: device 2 lists itself as its neighbour\. Links without one back: 0 to 2"
    with pytest.raises(TensortideError, match=message):
        read_device_graph(graph_file("colocrl-2"))
    faulty = read_device_graph(graph_file("colocrl-2"), faulty=True)
    ways = {(link.source, link.target) for link in faulty.links}
    assert {*itertools.permutations(range(3), 2)} - ways == {(2, 0)}
    assert simulate(net("mnist"), faulty, [1] * 9, PUBLISHED).makespan > 0
    with pytest.raises(TensortideError, match=r"no link leads from device 2 \(NVIDIA K80\) to device 0 \(Intel Xeon"):
        simulate(net("mnist"), faulty, [2] * 5 + [0] * 4, PUBLISHED)
    with pytest.raises(TensortideError, match="no link leads from device 2 to 0"):
        NetProblem(net("mnist"), faulty, PUBLISHED)
    scores, _ = NetProblem(net("mnist"), faulty, PUBLISHED, where=[0, 1]).evaluate(np.ones((1, 9), np.int64))
    assert scores[0] > 0


@pytest.mark.parametrize(
    ("devices", "channel", "message"),
    [
        (
            [device((1, 0), mem_bandwith=900), device((0, 0))],
            {},
            r"devices\[0\]: unknown key 'mem_bandwith'; near names: mem_b",
        ),
        (
            [device((1, 0)), device((0, 0))],
            {"bandwith": 1},
            r"comm_channels\[0\]: unknown key 'bandwith'; near",
        ),
        ([device((1, 0)), device((0, 0), cores=4)], {}, r"devices\[1\]: unknown key 'cores'; known: model, clock"),
    ],
)
def test_a_key_that_is_misspelt_is_refused(
    devices: list[dict[str, Any]], channel: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(TensortideError, match=message) as error:
        read_device_graph(write(tmp_path, devices, **channel))
    assert "graph.json, " in str(error.value)


def test_each_way_of_a_pair_has_its_channel() -> None:
    malvik = read_device_graph(graph_file("malvik"))
    channels = {(link.source, link.target): link.channel for link in malvik.links}
    assert (channels[1, 2], channels[2, 1], channels.get((1, 1))) == (0, 1, None)
    assert malvik.placeable == (0, 1, 2)


WRONG: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "neighbour": ([device((5, 0)), device((0, 0))], {}, r"device 0 lists neighbour 5: devices are 0 to 1"),
    "channel": ([device((1, 7)), device((0, 0))], {}, r"device 0 names channel 7: there are 1 channels, from 0"),
    "itself": ([device((0, 0), (1, 0)), device((0, 0))], {}, "device 0 lists itself"),
    "twice": ([device((1, 0), (1, 0)), device((0, 0))], {}, "device 0 lists neighbour 1 2 times"),
    "alone": ([device((1, 0)), device((0, 0)), device()], {}, "device 2 is connected to no other"),
    "bandwidth": ([device((1, 0)), device((0, 0))], {"bandwidth": 0}, "channel 0: a bandwidth is 8e-06 to"),
    "rate": (
        [device((1, 0), clock=-1), device((0, 0))],
        {},
        "device 0: clock, peak_gflops and",
    ),
    "memory": ([device((1, 0), memory=-4), device((0, 0))], {}, "device 0: memory is -4.0"),
    "endless": ([device((1, 0)), device((0, 0), memory=1e308)], {}, r"device 1: memory is 1e\+308: 0 GB to 1e\+09 GB"),
    "type": ([device((1, 0), type="tpu"), device((0, 0))], {}, "Invalid enum value 'tpu' - at `\\$.devices"),
    "none": ([], {}, "the cluster 'graph' has no devices"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_device_graph_is_one_error(tmp_path: Path, case: str) -> None:
    devices, channel, message = WRONG[case]
    path = write(tmp_path, devices, **channel)
    with pytest.raises(TensortideError, match=message) as caught:
        read_device_graph(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("text", ["", "{", "{}", '{"devices": 1}', "NaN", '{"comm_channels": [], "devices": [null]}'])
def test_a_file_that_is_no_device_graph_is_one_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    with pytest.raises(TensortideError, match=r"graph\.json: not a device graph in JSON"):
        read_device_graph(path)
    with pytest.raises(TensortideError, match="cannot be read"):
        read_device_graph(tmp_path / "none.json")


def test_problems_name_what_cannot_be_used(tmp_path: Path) -> None:
    pair = read_device_graph(write(tmp_path, [device((1, 0)), device((0, 0))]))
    mnist = net("mnist")
    with pytest.raises(TensortideError, match="device 2 cannot be used; those that run layers are 0, 1"):
        NetProblem(mnist, pair, PUBLISHED, where=[0, 2])
    whole = NetProblem(mnist, pair, PUBLISHED)
    with pytest.raises(TensortideError, match="rows of 9 genes"):
        whole.evaluate(np.zeros((1, 2), np.int64))
    with pytest.raises(TensortideError, match="devices are 0 to 1"):
        whole.evaluate(np.full((1, 9), 2))
    groups = Grouped(whole, ["a"] * 4 + ["b"] * 5)
    assert (groups.names, groups.edges.tolist()) == (("a", "b"), [[0, 1]])
    assert groups.evaluate(np.array([[0, 1]])) == whole.evaluate(np.array([0] * 4 + [1] * 5))
