"""The file of a cluster, and the errors of one that cannot be."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.placements.graphs import load_cluster
from tests.placements.graphs.steps import line

GPUS: dict[str, Any] = {"name": "gpu", "count": 3, "device": "A100-SXM-80GB"}
HOST: dict[str, Any] = {"name": "cpu", "device": "Intel i7-5930K (6c)", "memory": "64GB"}
OWN: dict[str, Any] = {"name": "mine", "fp32_tflops": 1.5, "memory_gbytes": 2.0, "memory_gbytes_per_s": 30.0}


def written(tmp_path: Path, **content: Any) -> Path:
    path = tmp_path / "box.json"
    path.write_text(json.dumps(content))
    return path


def test_devices_come_from_the_catalogue_and_pairs_from_patterns(tmp_path: Path) -> None:
    links = [{"between": ["gpu*"], "link": "300GB/s,2us"}, {"between": ["cpu", "gpu*"], "link": "pcie4"}]
    found = load_cluster(written(tmp_path, devices=[HOST, GPUS], links=links))
    assert found.name == "box"
    assert [device.name for device in found.devices] == ["cpu", "gpu0", "gpu1", "gpu2"]
    assert found.devices[0].capacity_bytes == 64 * 10**9
    assert found.devices[1].capacity_bytes == found.devices[1].row.usable_bytes
    assert len(found.connections) == 6
    lanes = {lane.name: lane for lane in found.lanes}
    assert lanes["gpu0 > gpu2"].transfer_ns(300_000) == 3_000
    assert lanes["gpu1 > cpu"].link.name == "pcie4"
    assert found.first_of("cpu") == 0


def test_devices_of_ones_own_and_shared_links(tmp_path: Path) -> None:
    links = [{"between": ["a", "b"], "link": "1GB/s,0us", "duplex": False}]
    devices = [{"name": "a", "device": OWN}, {"name": "b", "device": OWN}]
    found = load_cluster(written(tmp_path, name="two", devices=devices, links=links))
    assert found.name == "two"
    assert found.queues == (0, 0)
    assert found.devices[0].row.fp32_tflops == 1.5


def test_devices_that_are_not_joined_directly_are_reached_over_others() -> None:
    found = line(4)
    names = [[found.lanes[lane].name for lane in way] for way in (found.routes[0][3], found.routes[2][1])]
    assert names == [["gpu0 > gpu1", "gpu1 > gpu2", "gpu2 > gpu3"], ["gpu2 > gpu1"]]
    assert found.routes[1][1] == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"devices": []}, "has no devices"),
        ({"devices": [GPUS]}, "no links lead from 'gpu0' to 'gpu1' and back"),
        ({"devices": [HOST, HOST]}, "has two devices 'cpu'"),
        ({"devices": [HOST], "links": [{"between": ["tpu*"], "link": "pcie4"}]}, r"links\[0\]: between names 'tpu\*'"),
        ({"devices": [{**GPUS, "count": 0}]}, r"devices\[0\]: the count 0"),
        ({"devices": [{**GPUS, "device": "A1000"}]}, "no device is called 'A1000'"),
        ({"devices": [{**GPUS, "device": {"name": "mine"}}]}, r"`memory_gbytes_per_s` - at `\$.devices\[0\].device`"),
        (
            {"devices": [{**GPUS, "device": {**OWN, "fp32_tflps": 1}}]},
            r"devices\[0\].device: unknown key 'fp32_tflps'; near",
        ),
        ({"devices": [{**GPUS, "device": {**OWN, "fp32_tflops": -1}}]}, "mine: fp32_tflops is -1.0"),
        ({"devices": [{**GPUS, "memory": "much"}]}, r"devices\[0\]: not a number of bytes: 'much'. Write it"),
        ({"devices": [{**GPUS, "count": 10**9}]}, r"devices\[0\]: the count 1000000000: .* 4096 at most"),
        ({"devices": [GPUS], "links": [{"between": ["gpu*"], "link": "fast"}]}, "no link is called 'fast'"),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "link": f"{'9' * 5000}GB/s"}]},
            r"links\[0\]: no link is call",
        ),
        (
            {"devices": [{**GPUS, "memory": "1e308GB"}]},
            r"devices\[0\]: the memory 1e308GB: a device has less than 2\*\*63",
        ),
        ({"devices": [{**GPUS, "memory": "9" * 5000}]}, r"devices\[0\]: not a number of bytes"),
        ({"devices": [{"name": "x"}]}, "missing required field `device`"),
        ({"devices": [HOST], "channels": []}, "unknown key 'channels'; known: devices, links, name"),
    ],
)
def test_files_that_are_wrong_say_what_and_where(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    path = written(tmp_path, **content)
    with pytest.raises(TensortideError, match=message) as error:
        load_cluster(path)
    assert str(error.value).startswith(str(path))


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "box.json"
    path.write_text('{"devices": [{"name": "a", "device": "T4", "name": "b"}]}')
    with pytest.raises(TensortideError, match=r"box.json: 'name' stands twice in one object"):
        load_cluster(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TensortideError, match=r"none.json: cannot be read as a cluster .*: No such file"):
        load_cluster(tmp_path / "none.json")


def work_of(path: Path) -> int:
    """The bytecode instructions that reading the cluster at ``path`` takes."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        load_cluster(path)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("explicit", [False, True], ids=["a pattern", "an entry for each pair"])
def test_reading_takes_work_in_proportion_to_the_links(tmp_path: Path, explicit: bool) -> None:
    def per_link(count: int) -> float:
        pairs = itertools.combinations([f"gpu{i}" for i in range(count)], 2)
        between = [list(pair) for pair in pairs] if explicit else [["gpu*"]]
        links = [{"between": each, "link": "300GB/s"} for each in between]
        return work_of(written(tmp_path, devices=[{**GPUS, "count": count}], links=links)) / (count * (count - 1) / 2)

    assert per_link(40) < 1.2 * per_link(20)


def test_routes_take_the_fastest_way_whichever_is_direct(tmp_path: Path) -> None:
    slow = [{"between": ["gpu0", "gpu2"], "link": "1GB/s"}, {"between": ["gpu*"], "link": "300GB/s,2us"}]
    found = load_cluster(written(tmp_path, devices=[GPUS], links=slow))
    names = [[found.lanes[lane].name for lane in way] for way in (found.routes[0][2], found.routes[0][1])]
    assert names == [["gpu0 > gpu1", "gpu1 > gpu2"], ["gpu0 > gpu1"]]


def test_the_number_of_devices_is_checked_before_their_links_are_made(tmp_path: Path) -> None:
    class TooMany(Exception):
        pass

    def check(count: int) -> None:
        raise TooMany(count)

    path = written(tmp_path, devices=[HOST, {**GPUS, "count": 10**9}], links=[{"between": ["*"], "link": "nvlink"}])
    with pytest.raises(TooMany, match=str(10**9 + 1)):
        load_cluster(path, check)
