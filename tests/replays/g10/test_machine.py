"""G10's machine is that of a device with its tiers, as the file of a cluster has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from tensortide.replays.g10 import G10Machine
from tensortide.replays.g10.machine import AUTHORS, GIB, machine_of
from tensortide.timing.clusters import load_cluster

HOST: dict[str, Any] = {
    "name": "host",
    "link": {"bytes_per_s": 15.754e9, "latency_ns": 45e3},
    "capacity_bytes": 128e9,
}
DRIVE: dict[str, Any] = {"name": "ssd", "link": {"bytes_per_s": 3.2e9, "latency_ns": 65e3}, "over": "host"}


def read(folder: Path, *tiers: dict[str, Any]) -> G10Machine:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"devices": [{"device": "A100-SXM-40GB", "memory_bytes": 40 * GIB, "tiers": tiers}]}))
    return machine_of(load_cluster(path).devices[0])


def test_the_machine_of_the_authors_is_one_of_a_cluster_file(tmp_path: Path) -> None:
    assert read(tmp_path, HOST, DRIVE) == machine_of(AUTHORS) == G10Machine()


def test_a_drive_with_a_link_of_its_own_adds_its_rate_to_the_wire(tmp_path: Path) -> None:
    apart = read(tmp_path, HOST, {**DRIVE, "over": ""})
    assert apart == msgspec.structs.replace(G10Machine(), wire=15_754_000_000 + 3_200_000_000)
    alone = read(tmp_path, {**DRIVE, "over": ""})
    assert (alone.wire, alone.drive, alone.host_bytes) == (3_200_000_000, 3_200_000_000, 128 * 10**9)


def test_what_is_not_given_is_as_the_authors_have_it(tmp_path: Path) -> None:
    fast = {"name": "host", "link": {"bytes_per_s": 32e9, "latency_ns": 10e3}}
    expected = msgspec.structs.replace(G10Machine(), wire=32 * 10**9, host_latency_ns=10_000)
    assert read(tmp_path, fast) == expected
    assert machine_of(msgspec.structs.replace(AUTHORS, capacity_bytes=None)) == G10Machine()


def test_a_drive_on_the_wire_is_no_faster_than_the_wire(tmp_path: Path) -> None:
    slow, fast = {**HOST, "link": {"bytes_per_s": 1e9, "latency_ns": 45e3}}, {"bytes_per_s": 25e9, "latency_ns": 65e3}
    found = read(tmp_path, slow, {**DRIVE, "link": fast})
    assert (found.wire, found.drive) == (10**9, 10**9)
    assert {name: [link.name for link in links] for name, links in found.links().items()} == {
        "host": ["host"],
        "drive": ["ssd"],
    }


def test_nothing_of_ours_moves_to_a_host_without_room() -> None:
    assert [link.name for links in G10Machine(host_bytes=0).links().values() for link in links] == ["ssd"]
