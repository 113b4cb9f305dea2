"""Measured figures in the file of a cluster: read back, they are those of the links that were meant, and no others."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tensortide.errors import PlacementError
from tensortide.placements.graphs import load_cluster
from tensortide.placements.graphs.measured_links import links_meant, new_cluster
from tensortide.timing import device
from tensortide.timing.catalogue import Device
from tensortide.timing.links import Link

MEASURED = Link("host", Fraction(12 * 10**9), 7_500, "measured", Fraction(20 * 10**9))
"""12 GB/s out of the device to the host, 20 GB/s into it."""
OWN = {"name": "mine", "kind": "cpu", "fp32_tflops": 1.5, "memory_gbytes_per_s": 90, "memory_gbytes": 64}
DEVICES = [{"name": "cpu", "device": OWN}, {"name": "gpu", "count": 2, "device": "A100-SXM-80GB"}]
PEERS = {"between": ["gpu*"], "link": "300GB/s,2us"}


def speeds(path: Path) -> dict[tuple[str, str], tuple[float, int]]:
    """GB/s and latency in ns by source and target of each direction of the direct links in a file."""
    cluster = load_cluster(path)
    names = [one.name for one in cluster.devices]
    return {
        (names[lane.source], names[lane.target]): (float(lane.bytes_per_s) / 1e9, lane.link.latency_ns)
        for lane in cluster.wires
    }


def replaced(folder: Path, links: list[dict[str, Any]], *between: str) -> dict[tuple[str, str], tuple[float, int]]:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"name": "mine", "devices": DEVICES, "links": links}))
    path.write_text(links_meant(path, between, kind="gpu").text(MEASURED))
    assert json.loads(path.read_text())["devices"] == DEVICES
    return speeds(path)


@pytest.mark.parametrize(
    "links",
    [
        [PEERS, {"between": ["cpu", "gpu*"], "link": "pcie4"}],
        [PEERS, {"between": ["gpu*", "cpu"], "link": {"bytes_per_s": 30e9, "latency_ns": 0, "back_bytes_per_s": 3e9}}],
        [PEERS, {"between": ["*"], "link": "pcie4"}],
        [
            {"between": ["gpu*"], "link": "300GB/s,2us"},
            {"between": ["cpu", "gpu0"], "link": "1GB/s"},
            {"between": ["cpu", "gpu*"], "link": "pcie4"},
        ],
    ],
)
def test_links_of_host_and_gpus_are_replaced_however_they_are_written(
    tmp_path: Path, links: list[dict[str, Any]]
) -> None:
    found = replaced(tmp_path, links)
    for gpu in ("gpu0", "gpu1"):
        assert found["cpu", gpu] == (20, 7_500)
        assert found[gpu, "cpu"] == (12, 7_500)
    assert found["gpu0", "gpu1"] == (300, 2_000)


def test_named_links_alone_are_replaced(tmp_path: Path) -> None:
    found = replaced(
        tmp_path, [PEERS, {"between": ["cpu", "gpu*"], "link": "9GB/s,1us", "duplex": False}], "cpu", "gpu1"
    )
    assert {found["cpu", "gpu0"], found["gpu0", "cpu"]} == {(9, 1_000)}
    assert (found["cpu", "gpu1"], found["gpu1", "cpu"]) == ((20, 7_500), (12, 7_500))
    cluster = load_cluster(tmp_path / "cluster.json")
    duplex = {(each.source, each.target): cluster.channels[each.channel].duplex for each in cluster.links}
    assert (duplex[0, 2], duplex[1, 2], duplex[0, 1]) == (False, True, False)


def test_an_entry_of_which_measured_links_leave_nothing_is_left_out(tmp_path: Path) -> None:
    found = replaced(tmp_path, [PEERS, {"between": ["*"], "link": "9GB/s,1us"}])
    assert (found["cpu", "gpu1"], found["gpu0", "gpu1"]) == ((20, 7_500), (300, 2_000))
    assert len(json.loads((tmp_path / "cluster.json").read_text())["links"]) == 3


def test_what_names_no_link_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"devices": DEVICES[1:], "links": [PEERS]}))
    with pytest.raises(PlacementError, match="no link between a cpu and a gpu"):
        links_meant(path, (), kind="gpu")
    with pytest.raises(PlacementError, match="give the host and the device"):
        links_meant(path, ("gpu0",), kind="gpu")


def test_a_new_file_has_both_devices(tmp_path: Path) -> None:
    path, host = tmp_path / "new.json", Device(name="mine", kind="cpu", fp32_tflops=1.5, memory_gbytes_per_s=90)
    path.write_text(new_cluster("here", host, device("A100-SXM-80GB"), MEASURED))
    assert speeds(path) == {("cpu", "gpu"): (20, 7_500), ("gpu", "cpu"): (12, 7_500)}
    cluster = load_cluster(path)
    assert cluster.devices[1].capacity_bytes == device("A100-SXM-80GB").usable_bytes
    path.write_text(new_cluster("here", host, host, MEASURED))
    assert {*speeds(path)} == {("cpu0", "cpu1"), ("cpu1", "cpu0")}
