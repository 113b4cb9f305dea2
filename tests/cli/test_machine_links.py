"""Rates between devices that the catalogue lacks: one message, and the option that it names, for every verb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tensortide.studies.fit.trial import gathering_ns
from tensortide.timing import device
from tensortide.timing.collectives.nodes import LinkRates
from tests.cli.command import called, tensortide
from tests.graphs import path_of, stored
from tests.marks import some_slow

NICS = "error: the rate of the NICs of V100-PCIe-32GB is unknown: give it with --nic, as in --nic 50GB/s\n"
LINK = (
    "error: the rate of the link between devices of mine is unknown: give it with --device-link, as in "
    "--device-link 50GB/s\n"
)
MINE = {"name": "mine", "kind": "gpu", "fp32_tflops": 20, "memory_gbytes": 80, "memory_gbytes_per_s": 1000}
VERBS = {"time": (), "scale": (), "place": ("--budget", "20", "--threads", "1")}
STEP = str(path_of("mlp"))


@pytest.mark.parametrize("verb", some_slow(VERBS, ["place"]))
def test_a_missing_rate_is_asked_for_by_its_option_which_gives_it(verb: str, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(MINE))
    for machine, message, given in (
        ("2x1xv100-pcie", NICS, ("--nic", "100Gbit/s")),
        ("2xmine.json", LINK, ("--device-link", "pcie4")),
    ):
        asked = (verb, STEP, "--machine", machine, *VERBS[verb])
        done = tensortide(tmp_path, *asked)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", message)
        done = called(tmp_path, *asked, *given)
        assert done.returncode == 0, done.stderr


def test_one_device_of_a_cluster_is_no_machine_to_place_on_and_the_file_is_named(tmp_path: Path) -> None:
    box = {"name": "box", "devices": [{"name": "gpu", "count": 2, "device": "rtx3090"}]}
    (tmp_path / "box.json").write_text(json.dumps(box | {"links": [{"between": ["gpu*"], "link": "pcie4"}]}))
    done = called(tmp_path, "place", STEP, "--machine", "box.json:gpu0")
    said = "box.json:gpu0 is one device; a step is placed on all of a file: write --machine box.json"
    assert (done.returncode, done.stderr) == (2, f"error: {said}\n")


def test_a_node_that_no_wiring_joins_is_asked_for_too(tmp_path: Path) -> None:
    asked = ("time", STEP, "--machine", "8xgh200")
    done = called(tmp_path, *asked)
    assert done.returncode == 2
    assert (
        "among 8 GH200-96GB of a node, which is known to join 4, is unknown: give it with --device-link" in done.stderr
    )
    assert "or ask for nodes of 4" in done.stderr
    assert called(tmp_path, *asked, "--device-link", "450GB/s").returncode == 0
    assert called(tmp_path, "time", STEP, "--machine", "2x4xgh200").returncode == 0


def test_how_devices_are_wired_is_said_where_no_switch_joins_them(tmp_path: Path) -> None:
    said = {name: called(tmp_path, "time", STEP, "--machine", name) for name in ("4xrtx3090", "8xh100-sxm", "2xmi210")}
    assert {done.returncode for done in said.values()} == {0}
    assert "2 joined by a bridge, others by PCIe" in said["4xrtx3090"].stderr
    assert "no peer access" in said["4xrtx3090"].stderr
    assert said["8xh100-sxm"].stderr == ""
    assert "wiring unknown" in said["2xmi210"].stderr


def test_scale_leaves_out_what_needs_a_nic_that_nobody_knows(tmp_path: Path) -> None:
    done = called(tmp_path, "scale", STEP, "--machine", "2xv100-pcie", "--json")
    assert done.returncode == 0, done.stderr
    assert "scaling to several nodes is left out: the rate of the NICs of V100-PCIe-32GB is unknown" in done.stderr
    assert "--nic 50GB/s" in done.stderr
    assert called(tmp_path, "scale", STEP, "--machine", "4xgh200").returncode == 0


def test_fit_asks_about_one_device(tmp_path: Path) -> None:
    done = called(tmp_path, "fit", STEP, "--machine", "4xgh200")
    assert (done.returncode, done.stderr) == (
        2,
        "error: 4xgh200: this asks about one device: write --machine gh200. time, scale and place take several\n",
    )


def test_gathering_takes_the_rate_that_is_given() -> None:
    graph, row = stored("mlp"), device("H100-SXM-80GB")
    slow, fast = (gathering_ns(graph, row, 8, LinkRates(device_link=rate)) for rate in (10e9, 450e9))
    assert slow > fast == gathering_ns(graph, row, 8, LinkRates())
    assert gathering_ns(graph, device("GH200-96GB"), 8, LinkRates()) > 0  # two nodes of four


@pytest.mark.slow
def test_fit_says_which_rate_an_action_lacks(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(MINE))
    asked = ("fit", "mlp", "--set", "batch=8", "--machine", "mine.json", "--memory", "20MiB", "--threads", "1")
    without = called(tmp_path, *asked)
    assert without.returncode == 1, without.stderr
    assert "the rate of the link between devices of mine is unknown: give it with --device-link" in " ".join(
        without.stdout.split()
    )
    given = called(tmp_path, *asked, "--device-link", "pcie4")
    assert "is unknown: give it" not in " ".join(given.stdout.split())


def test_place_takes_devices_of_the_catalogue(tmp_path: Path) -> None:
    done = tensortide(tmp_path, "place", STEP, "--machine", "2xh100", "--budget", "20", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert "h100 is taken for H100-SXM-80GB" in done.stderr
    (tmp_path / "pair.json").write_text(json.dumps({"devices": [{"device": "L4"}]}))
    beside = called(tmp_path, "place", STEP, "--machine", "pair.json", "--nic", "50GB/s")
    assert (beside.returncode, beside.stderr) == (
        2,
        "error: --nic goes with devices of the catalogue: pair.json has its links\n",
    )


def test_scale_says_how_the_node_is_wired_that_it_makes(tmp_path: Path) -> None:
    done = called(tmp_path, "scale", STEP, "--machine", "3060", "--devices", "4", "--json")
    assert done.returncode == 0, done.stderr
    assert "1 x 4 RTX 3060" in done.stderr
    assert "PCIe" in done.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("50", "a speed with its unit"),
        ("400Gbit/s,1us", "has a latency, but a rate alone is taken here: 400Gbit/s"),
    ],
)
def test_a_rate_has_its_unit_and_no_latency(text: str, message: str, tmp_path: Path) -> None:
    done = called(tmp_path, "scale", STEP, "--machine", "8xh100-sxm", "--nic", text)
    assert done.returncode == 2
    assert message in done.stderr


TIERED = {"name": "gpu", "count": 2, "device": "h100-sxm", "tiers": [{"name": "host", "link": "25GB/s,10us"}]}
PAIR = {"devices": [TIERED], "links": [{"between": ["*"], "link": "450GB/s,1us"}]}
BOX = {**PAIR, "devices": [TIERED, {"name": "old", "device": "t4"}]}


@pytest.mark.parametrize("verb", [("fit",), ("plan", "--budget", "80%"), ("report",), ("time",), ("scale",)])
def test_one_device_of_a_cluster_file_is_named(verb: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "box.json").write_text(json.dumps(BOX))
    done = called(tmp_path, verb[0], STEP, *verb[1:], "--machine", "box.json")
    assert done.returncode == 2
    assert "box.json:gpu0" in done.stderr or "FILE:gpu0" in done.stderr
    assert called(tmp_path, verb[0], STEP, *verb[1:], "--machine", "box.json:gpu9").returncode == 2


def test_alike_devices_of_a_file_are_those_of_the_catalogue(tmp_path: Path) -> None:
    (tmp_path / "pair.json").write_text(json.dumps(PAIR))
    found = []
    for machine in ("pair.json", "2xh100-sxm"):
        done = called(tmp_path, "time", STEP, "--machine", machine, "--json")
        assert done.returncode == 0, done.stderr
        found.append(done)
    assert "warning: pair.json: its tiers (host) are left out" in found[0].stderr
    assert found[0].stdout.replace(" (pair)", "") == found[1].stdout
    for option in ("--nic", "--device-link"):
        done = called(tmp_path, "time", STEP, "--machine", "pair.json", option, "50GB/s")
        assert done.returncode == 2
        assert "--device-link or --nic goes with devices of the catalogue" in done.stderr
    done = called(tmp_path, "scale", STEP, "--machine", "pair.json", "--devices", "4")
    assert done.returncode == 2
    assert "--devices goes with devices of the catalogue: pair.json has its own" in done.stderr


def test_a_nic_goes_with_several_nodes(tmp_path: Path) -> None:
    for verb, machine in (("time", "4xh100-sxm"), ("place", "4xh100-sxm"), ("scale", "h100-sxm")):
        done = called(tmp_path, verb, STEP, "--machine", machine, "--nic", "50GB/s")
        assert done.returncode == 2
        assert "error: --nic goes with several" in done.stderr


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("bf61", "no dtype is called 'bf61': it is bf16, "),
        ("nvfp4", "no rate of nvfp4 products of H100-SXM-80GB: it may lack units for them. It has those of float64, "),
    ],
)
def test_a_dtype_that_is_none_is_told_from_one_without_a_rate(dtype: str, message: str, tmp_path: Path) -> None:
    model = ("scale", "--model", "layers=2,hidden=64,heads=2,seq=64,vocab=128", "--batch", "8")
    done = called(tmp_path, *model, "--machine", "8xh100-sxm", "--dtype", dtype)
    assert done.returncode == 2
    assert message in done.stderr
    short, long = (
        called(tmp_path, *model, "--machine", "8xh100-sxm", "--dtype", name, "--json")
        for name in ("fp8", "float8_e4m3fn")
    )
    assert short.returncode == 0
    assert short.stdout == long.stdout


@pytest.mark.parametrize("verb", ["time", "place"])
def test_one_device_has_no_links_to_others(verb: str, tmp_path: Path) -> None:
    done = called(tmp_path, verb, STEP, *VERBS[verb], "--machine", "h100-sxm", "--nic", "400Gb/s")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --nic goes with several devices, as --machine 4xh100-sxm: one has no such link\n",
    )
