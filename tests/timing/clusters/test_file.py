"""The file of a cluster, and the errors of one that cannot be."""

from __future__ import annotations

import codecs
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import TensortideError
from tensortide.timing import device
from tensortide.timing.clusters import file, load_cluster
from tensortide.timing.clusters.conversion import _joints, nodes_to_cluster
from tensortide.timing.collectives import nodes_of
from tensortide.timing.own import own_device
from tests.placements.graphs.steps import line

GPUS: dict[str, Any] = {"name": "gpu", "count": 3, "device": "A100-SXM-80GB"}
HOST: dict[str, Any] = {"name": "cpu", "device": "Intel i7-5930K (6c)", "memory_bytes": 64e9}
BUS: dict[str, Any] = {"name": "bus", "link": "pcie4"}
RATES: dict[str, Any] = {"bytes_per_s": 20e9, "latency_ns": 0}
TIER: dict[str, Any] = {"name": "host", "link": "pcie4"}
BACK: dict[str, Any] = {"bytes_per_s": 2e9, "latency_ns": 0, "back_bytes_per_s": 1e9}
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
    assert (len(found.links), len(found.channels)) == (12, 6)
    wires = {wire.name: wire for wire in found.wires}
    assert wires["gpu0 > gpu2"].transfer_ns(300_000) == 3_000
    assert wires["gpu1 > cpu"].link.name == "pcie4"
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
    names = [[found.wires[wire].name for wire in way] for way in (found.routes[0][3], found.routes[2][1])]
    assert names == [["gpu0 > gpu1", "gpu1 > gpu2", "gpu2 > gpu3"], ["gpu2 > gpu1"]]
    assert found.routes[1][1] == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"devices": []}, "devices: the cluster 'box' has no devices"),
        ({"devices": [HOST, GPUS, HOST]}, r"devices\[2\]: devices\[0\] has the name 'cpu', too"),
        ({"devices": [{**GPUS, "tiers": [{"name": "", "link": "pcie4"}]}]}, r"tiers\[0\]: a tier needs a name"),
        (
            {"devices": [GPUS], "channels": [BUS, BUS]},
            r"channels\[1\]: the name is 'bus': give each channel one of its",
        ),
        ({"devices": [GPUS], "channels": [{**BUS, "name": ""}]}, r"channels\[0\]: the name is ''"),
        (
            {"devices": [GPUS], "channels": [BUS], "links": [{"between": ["*"], "channel": "bus", "duplex": False}]},
            r"links\[0\]: duplex goes with 'link'; that of 'bus' stands in 'channels'",
        ),
        ({"devices": [GPUS], "links": [{"between": [], "link": "pcie4"}]}, r"links\[0\]: between nothing lie no two"),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu0", "gpu0"], "link": "pcie4"}]},
            r"links\[0\]: between gpu0, gpu0 lie no two devices",
        ),
        (
            {"devices": [GPUS], "links": [{"between": ["*"], "link": "1GB/s"}, {"between": ["gpu*"], "link": "pcie4"}]},
            r"links\[1\]: entries before it join all its pairs: move it up, or make it 'beside'",
        ),
        ({"devices": [HOST], "links": [{"between": ["tpu*"], "link": "pcie4"}]}, r"links\[0\]: between names 'tpu\*'"),
        ({"devices": [{**GPUS, "count": 0}]}, r"devices\[0\]: the count 0"),
        ({"devices": [{**GPUS, "device": "A1000"}]}, "no device is called 'A1000'"),
        ({"devices": [{**GPUS, "device": {"name": "mine"}}]}, r"devices\[0\]: .*field `memory_gbytes_per_s`"),
        (
            {"devices": [{**GPUS, "device": {**OWN, "fp32_tflps": 1}}]},
            r"devices\[0\]: a device has no 'fp32_tflps'; it may be fp32_tflops",
        ),
        ({"devices": [{**GPUS, "device": {**OWN, "fp32_tflops": -1}}]}, "mine: fp32_tflops is -1.0"),
        (
            {"devices": [{**GPUS, "memory_bytes": "64GB"}]},
            r"Expected `float \| null`, got `str` - at",
        ),
        ({"devices": [{**GPUS, "memory": 64e9}]}, r"devices\[0\]: unknown key 'memory'; near names: memory_bytes"),
        ({"devices": [{**GPUS, "count": 10**9}]}, r"devices\[0\]: the count 1000000000: .* 4096 at most"),
        ({"devices": [GPUS], "links": [{"between": ["gpu*"], "link": "fast"}]}, "no link is called 'fast'"),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "link": f"{'9' * 5000}GB/s"}]},
            r"links\[0\]: no link is call",
        ),
        (
            {"devices": [{**GPUS, "memory_bytes": 1e308}]},
            r"devices\[0\]: memory_bytes is 1e\+308: it is 1 or more, and less than 2\*\*63",
        ),
        ({"devices": [GPUS], "links": [{"between": ["gpu*"]}]}, r"links\[0\]: it takes either 'link', .* or 'channel'"),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "channel": "bus"}]},
            r"links\[0\]: channel is 'bus'; the channels are none: list it in 'channels'",
        ),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "link": {"bytes_per_s": 0, "latency_ns": 0}}]},
            r"links\[0\]: bytes_per_s is 0: it is 1000 to 1e\+18",
        ),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "link": {"bytes_per_s": 1e9, "latency_ns": 9e18}}]},
            r"links\[0\]: latency_ns is 9e\+18: it is 0 to 1e\+12",
        ),
        ({"devices": [GPUS], "links": [{"between": ["gpu0"], "link": "pcie4"}]}, "between gpu0 lie no two devices"),
        ({"devices": [{"device": {**OWN, "yields": True}}]}, r"devices\[0\]: leave out yields: only"),
        (OWN, "has the figures of one device: name it as 'device' in a cluster file"),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu*"], "link": {"gbytes_per_s": 1, "latency_ns": 0}}]},
            r"links\[0\].link: unknown key 'gbytes_per_s'; near names: bytes_per_s",
        ),
        (
            {"devices": [{**GPUS, "tiers": [{"name": "ssd", "link": "nvme", "over": "host"}]}]},
            r"devices\[0\]: tiers\[0\]: over names 'host'; the tiers before it are none",
        ),
        (
            {"devices": [{**GPUS, "tiers": [{"name": "host", "channel": "bus"}]}]},
            r"devices\[0\]: tiers\[0\]: channel is 'bus'; the channels are none: list it in 'channels'",
        ),
        *(
            ({"devices": [{**GPUS, "tiers": tiers}], "channels": [BUS]}, r"devices\[0\]: tiers\[1\]: " + message)
            for tiers, message in (
                ([TIER, {"name": "ssd", "channel": "bus", "over": "host"}], "it takes either .* and then no 'over'"),
                ([TIER, {"name": "ssd", "channel": "bus", "link": "nvme"}], "it takes either 'link', or 'channel'"),
                ([TIER, TIER], "two tiers have the name 'host': give each its own"),
            )
        ),
        (
            {"devices": [{**GPUS, "count": 4000}, {**HOST, "count": 97}]},
            r"devices\[1\]: the count 97: .* 4096 at most",
        ),
        (
            {"devices": [GPUS], "channels": [{**BUS, "link": {**RATES, "back_bytes_per_s": 1}}]},
            r"channels\[0\]: back_bytes_per_s is 1: it is 1000 to 1e\+18",
        ),
        ({"name": "mine"}, "missing required field `devices`"),
        (
            {"devices": [{**GPUS, "tiers": [{"name": "host"}]}]},
            r"devices\[0\]: tiers\[0\]: it takes either 'link', or 'channel', which it shares with links",
        ),
        ({"devices": [{**GPUS, "device": "switch"}]}, "has no devices but switches"),
        ({"devices": [{**GPUS, "memory_bytes": 0}]}, r"devices\[0\]: memory_bytes is 0: it is 1 or more"),
        (
            {"devices": [HOST, {"device": "switch", "memory_bytes": 5e9}]},
            r"devices\[1\]: a switch keeps nothing: leave out memory_bytes and tiers",
        ),
        (
            {"devices": [HOST, {"device": "switch", "tiers": [{"name": "host", "link": "pcie4"}]}]},
            r"devices\[1\]: a switch keeps nothing",
        ),
        (
            {
                "devices": [GPUS],
                "channels": [BUS, {**BUS, "name": "b"}],
                "links": [{"between": ["*"], "channel": "bus"}],
            },
            r"channels\[1\]: no link or tier takes 'b': leave it out",
        ),
        (
            {"devices": [GPUS], "links": [{"between": ["gpu0", "gpu1"], "link": BACK, "one_way": True}]},
            r"links\[0\]: no bytes go back over a link that is one_way: leave out back_bytes_per_s",
        ),
        (
            {
                "devices": [GPUS],
                "links": [{"between": ["gpu0", "gpu1"], "link": "pcie4", "one_way": True, "duplex": False}],
            },
            r"links\[0\]: a link that is one_way has one direction: leave out duplex",
        ),
        ({"devices": [{"name": "x"}]}, "missing required field `device`"),
        ({"devices": [HOST], "lanes": []}, "unknown key 'lanes'; near names: channels, links"),
    ],
)
def test_files_that_are_wrong_say_what_and_where(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    path = written(tmp_path, **content)
    with pytest.raises(TensortideError, match=message) as error:
        load_cluster(path)
    assert str(error.value).startswith(str(path))


def test_a_file_in_utf_16_is_said_to_be_and_one_in_utf_8_may_have_a_mark(tmp_path: Path) -> None:
    path, text = tmp_path / "box.json", json.dumps({"devices": [GPUS]})
    path.write_text(text, "utf-8-sig")
    assert len(load_cluster(path)) == 3
    path.write_text(text, "utf-16")
    with pytest.raises(TensortideError, match=r"box.json: it is in UTF-16: save it in UTF-8"):
        load_cluster(path)


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
    names = [[found.wires[wire].name for wire in way] for way in (found.routes[0][2], found.routes[0][1])]
    assert names == [["gpu0 > gpu1", "gpu1 > gpu2"], ["gpu0 > gpu1"]]


def test_the_number_of_devices_is_checked_before_their_links_are_made(tmp_path: Path) -> None:
    class TooMany(Exception):
        pass

    def check(count: int) -> None:
        raise TooMany(count)

    path = written(tmp_path, devices=[HOST, {**GPUS, "count": 10**9}], links=[{"between": ["*"], "link": "nvlink"}])
    with pytest.raises(TooMany, match=str(10**9 + 1)):
        load_cluster(path, check)


def test_a_device_is_named_as_for_machine(tmp_path: Path) -> None:
    found = load_cluster(written(tmp_path, devices=[{"name": "gpu", "device": "h100"}]))
    assert found.devices[0].row == device("H100-SXM-80GB")
    other = load_cluster(tmp_path / "box.json", row_of=lambda name: device({"h100": "A100-SXM-80GB"}[name]))
    assert other.devices[0].row == device("A100-SXM-80GB")


def test_devices_of_several_kinds_have_tiers_behind_them(tmp_path: Path) -> None:
    tiers = [
        {"name": "host", "link": "pcie5", "capacity_bytes": 512e9},
        {"name": "ssd", "link": {"bytes_per_s": 3.2e9, "latency_ns": 65_000}, "over": "host"},
    ]
    gpu, old = {"name": "new", "device": "h100", "tiers": tiers}, {"name": "old", "device": "t4"}
    found = load_cluster(written(tmp_path, devices=[gpu, old], links=[{"between": ["*"], "link": "pcie3"}]))
    host, drive = found.devices[0].tiers
    assert (host.link.name, host.link.capacity_bytes, host.link.latency_ns, host.over) == (
        "host",
        512 * 10**9,
        45_000,
        "",
    )
    assert (drive.link.name, drive.link.transfer_ns(32 * 10**8), drive.over) == ("ssd", 1_000_065_000, "host")
    assert found.devices[1].tiers == ()
    assert not found.alike(0, 1)


def test_a_tier_shares_a_channel_with_links(tmp_path: Path) -> None:
    gpus = {"name": "gpu", "count": 2, "device": "t4", "tiers": [{"name": "host", "channel": "root"}]}
    links, channels = [{"between": ["gpu*"], "channel": "root"}], [{"name": "root", "link": "pcie3"}]
    found = load_cluster(written(tmp_path, devices=[gpus], links=links, channels=channels))
    (tier,) = found.devices[1].tiers
    assert (tier.link.name, tier.channel) == ("host", found.links[0].channel)
    assert tier.link.transfer_ns(1 << 20) == found.wires[0].transfer_ns(1 << 20)


def test_steps_need_routes_there_and_back_and_no_switch(tmp_path: Path) -> None:
    devices: list[dict[str, Any]] = [{"name": "a", "device": "t4"}, {"name": "b", "device": "t4"}]
    link: dict[str, Any] = {"between": ["a", "b"], "link": "pcie3"}
    load_cluster(written(tmp_path, devices=devices, links=[link])).check_for_steps()
    for links in ([], [{**link, "one_way": True}]):
        with pytest.raises(
            TensortideError, match="no links lead from 'a' to 'b' and back: add those that do to 'links'"
        ):
            load_cluster(written(tmp_path, devices=devices, links=links)).check_for_steps()
    switched = [*devices, {"device": "switch"}]
    with pytest.raises(TensortideError, match="'switch0' is a switch, which steps do not have"):
        load_cluster(written(tmp_path, devices=switched, links=[{**link, "between": ["*"]}])).check_for_steps()


def test_the_examples_of_the_page_are_read(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "machines.md").read_text("utf-8")
    texts = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    found = []
    for text in texts:
        (tmp_path / "cluster.json").write_text(text)
        found.append(load_cluster(tmp_path / "cluster.json"))
        found[-1].check_for_steps()
    workstation, nodes, switched, graph = found
    meant = nodes_of("h100-sxm", devices_per_node=4)
    assert _joints(switched) == _joints(nodes_to_cluster(meant))
    assert [(each.row, each.capacity_bytes) for each in switched.devices] == [
        (each.row, each.capacity_bytes) for each in nodes_to_cluster(meant).devices
    ]
    assert [device.name for device in workstation.devices] == ["cpu", "gpu0", "gpu1", "gpu2", "gpu3", "old"]
    assert workstation.wires[0].transfer_ns(1_000_000) == 4_223
    assert {wire.link.name for wire in workstation.wires if wire.name == "gpu0 > gpu1"} == {"nvlink", "pcie5"}
    queues: dict[int, set[str]] = {}
    for wire, queue in zip(nodes.wires, nodes.queues, strict=True):
        queues.setdefault(queue, set()).add(wire.name)
    assert {"a0 > b0", "a0 > b1", "a1 > b0", "a1 > b1"} in queues.values()
    assert {"b0 > a0", "b0 > a1", "b1 > a0", "b1 > a1"} in queues.values()
    assert [device.name for device in graph.devices] == ["cpu0", "gpu1"]


def test_the_page_has_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "machines.md").read_text("utf-8")
    table = page.partition("| key | of |")[2].partition("\n\n")[0]
    records = (value for name, value in vars(file).items() if name.startswith(("_File", "_Figures")))
    for key in {key for record in records for key in record.__struct_fields__} - {"devices", "links"}:
        assert f"`{key}`" in table


def test_a_device_of_a_file_is_beside_the_cluster_and_is_as_its_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"like": "T4", "name": "mine", "memory_gbytes": 32}
    (tmp_path / "cards").mkdir()
    (tmp_path / "cards" / "mine.json").write_bytes(codecs.BOM_UTF8 + json.dumps(figures).encode())
    path = written(tmp_path, devices=[{"device": "cards/mine.json"}, {"device": figures}])
    monkeypatch.chdir(tmp_path / "cards")
    one, other = load_cluster(path, row_of=lambda name: own_device(Path(name))).devices
    assert one.row == other.row
    assert (one.row.name, one.row.memory_gbytes, one.row.fp16_tflops) == ("mine", 32, device("T4").fp16_tflops)
