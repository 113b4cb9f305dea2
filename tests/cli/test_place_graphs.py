"""``tensortide place`` of a captured step, as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortide.graph import load
from tensortide.placements.graphs import PlaceOptions, follow, load_cluster, ready
from tensortide.plans import load_plan
from tests.cli.command import called
from tests.graphs import path_of

DATA = {"type": "Input", "tensor": [32, 100]}
NET = {
    "name": "tiny",
    "layers": {
        "data": DATA,
        "fc": {"type": "InnerProduct", "parents": ["data"], "num_outputs": 10},
    },
}

DEVICES = {
    "comm_channels": [],
    "devices": [
        {"model": "one", "clock": 1000, "peak_gflops": 1000, "memory": 8, "mem_bandwidth": 100, "type": "gpu"}
        | {"neighbours": []}
    ],
}


def cluster(count: int, **more: object) -> str:
    devices = [{"name": "gpu", "count": count, "device": "A100-SXM-80GB", **more}]
    return json.dumps({"devices": devices, "links": [{"between": ["gpu*"], "link": "300GB/s,2us"}]})


def mixed(cpu: str | dict[str, object]) -> str:
    """A cluster of one CPU and one GPU."""
    devices = [{"name": "cpu", "device": cpu}, {"name": "gpu", "device": "A100-SXM-80GB"}]
    return json.dumps({"devices": devices, "links": [{"between": ["cpu", "gpu"], "link": "pcie4"}]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("placed")
    (path / "two.json").write_text(cluster(2))
    (path / "four.json").write_text(cluster(4))
    (path / "tight.json").write_text(cluster(2, memory_bytes=17.4e6))
    (path / "small.json").write_text(cluster(2, memory_bytes=17.3e6))
    (path / "tiny.json").write_text(cluster(2, memory_bytes=1e6))
    (path / "mixed.json").write_text(mixed("Intel i9-13900K"))
    own = {"name": "mine", "kind": "cpu", "fp32_tflops": 1.5, "memory_gbytes_per_s": 89.6, "memory_gbytes": 64}
    (path / "rated.json").write_text(mixed(own))
    (path / "net.json").write_text(json.dumps(NET))
    shutil.copy(path_of("gpt2"), path / "gpt2.tide")
    shutil.copy(path_of("mlp_a100"), path / "mlp.tide")
    return path


BRIEFLY = ("--option", "planned=100")


def run(folder: Path, *arguments: str, budget: int = 20, exits: int = 0) -> str:
    search = () if "--algorithm" in arguments else BRIEFLY
    done = called(folder, "place", *arguments, "--budget", str(budget), *search)
    assert done.returncode == exits, done.stderr
    return done.stdout


def refused(folder: Path, *arguments: str) -> str:
    done = called(folder, "place", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def as_json(folder: Path, *arguments: str) -> Any:
    return json.loads(run(folder, *arguments, "--json"))["sections"]["placed_step"]


def test_a_step_on_two_devices_keeps_its_bound_and_is_no_slower_than_on_one(folder: Path) -> None:
    found = as_json(folder, "gpt2.tide", "--machine", "two.json")
    facts, tables = found["facts"], found["tables"]
    assert 0 < facts["bound_ns"] <= facts["step_ns"] <= facts["reference_ns"]
    assert facts["ended"] == "budget"
    assert facts["gap_share"] == pytest.approx(facts["step_ns"] / facts["bound_ns"] - 1)
    assert facts["bound_ns"] == max(facts["critical_path_ns"], facts["work_ns"])
    assert facts["fits"] is facts["reference_fits"] is True
    devices = tables["devices"]
    assert devices["device"] == ["gpu0", "gpu1"]
    assert sum(devices["ops"]) == sum(tables["units"]["ops"]) == facts["ops"]
    assert sum(devices["units"]) == sum(tables["stages"]["units"]) == len(tables["units"]["unit"]) == facts["units"]
    assert sum(devices["busy_ns"]) == sum(tables["units"]["time_ns"]) == sum(tables["stages"]["time_ns"])
    assert [1 - busy / facts["step_ns"] for busy in devices["busy_ns"]] == pytest.approx(devices["idle_share"])
    assert all(0 < peak <= most for peak, most in zip(devices["peak_bytes"], devices["capacity_bytes"], strict=True))
    assert devices["priced_share"] == [1, 1]
    assert sum(tables["links"]["size_bytes"]) == facts["moved_bytes"] > 0


def test_a_workload_is_captured_for_the_devices_of_the_cluster(folder: Path) -> None:
    sizes = ("--set=batch=512", "--set=inputs=64", "--set=hidden=32", "--set=layers=4")
    found = as_json(folder, "mlp", *sizes, "--machine", "four.json", "--units", "5")
    assert found["facts"] == as_json(folder, "mlp.tide", "--machine", "four.json", "--units", "5")["facts"]
    assert found["facts"]["units"] == 5
    assert found["tables"]["devices"]["device"] == ["gpu0", "gpu1", "gpu2", "gpu3"]


def test_micro_batches_repeat_ops_and_pins_are_kept(folder: Path) -> None:
    options = ("--micro-batches", "4", "--schedule", "1f1b", "--pin", "tokens=gpu3")
    found = as_json(folder, "gpt2.tide", "--machine", "four.json", *options)
    once = as_json(folder, "gpt2.tide", "--machine", "four.json")
    assert found["facts"]["micro_batches"] == 4
    assert found["facts"]["ops"] > 2 * once["facts"]["ops"]
    assert found["facts"]["units"] == once["facts"]["units"]
    place = dict(zip(*(found["tables"]["units"][key] for key in ("unit", "device")), strict=True))
    assert place["tokens"] == "gpu3"


def test_modules_in_shards_are_shown_with_their_devices(folder: Path) -> None:
    options = (
        "--shard",
        "blocks.*.up=output:2",
        "--pin",
        "blocks.0.up.shard1=gpu2",
        "--pin",
        "blocks.0.up.shard0=gpu3",
    )
    shards = as_json(folder, "gpt2.tide", "--machine", "four.json", *options)["tables"]["shards"]
    assert shards["module"][0] == "blocks.0.up"
    assert set(shards["along"]) == {"output"}
    assert shards["devices"][0] == "gpu3, gpu2"
    assert "no module of the step is called so" in refused(
        folder, "gpt2.tide", "--machine", "two.json", "--shard", "blocks.9=batch:2"
    )


@pytest.mark.slow
def test_modules_to_divide_are_found_and_all_tries_shown(folder: Path) -> None:
    asked = ("gpt2.tide", "--machine", "two.json", "--shard", "auto")
    sections = json.loads(run(folder, *asked, "--out", "d.json", "--json"))["sections"]
    tried = sections["auto_shards"]["tables"]["tried"]
    assert len(tried["kept"]) >= 8
    assert set(tried["kept"]) <= {True, False}
    assert all(bool(why) == (ns is None) for why, ns in zip(tried["why"], tried["step_ns"], strict=True))
    assert "--plan and --shard auto exclude each other" in refused(folder, *asked, "--plan", "d.json")


def test_groups_of_devices_show_what_they_exchange(folder: Path) -> None:
    shown = as_json(folder, "gpt2.tide", "--machine", "four.json", "--data", "2", "--pin", "blocks.1=gpu1")
    assert shown["tables"]["devices"]["device"] == ["gpu0", "gpu1"]
    exchanges = shown["tables"]["exchanges"]
    assert exchanges["replicas"] == ["gpu2", "gpu3"]
    assert exchanges["sent_bytes"] == exchanges["gradients_bytes"]
    assert all(0 < share < 1 for share in exchanges["share"])
    inside = sum(shown["tables"]["links"]["size_bytes"])
    assert shown["facts"]["moved_bytes"] == 2 * inside + 2 * sum(exchanges["sent_bytes"])
    text = run(folder, "mlp.tide", "--machine", "two.json", "--data", "2")
    assert "per step on 2 devices, one in each group: groups have no other device" in " ".join(text.split())
    for data, words in (("3", "4 devices are not 3 equal groups"), ("4", "batch 2 / 4 parts"), ("0", "--data")):
        assert words in refused(folder, "gpt2.tide", "--machine", "four.json", "--data", data)


def test_text_and_files_are_written_and_the_plan_can_be_followed(folder: Path) -> None:
    names = ("--html", "p.html", "--trace", "t.json", "--csv", "units.csv", "--markdown", "p.md")
    text = run(folder, "gpt2.tide", "--machine", "two.json", "--out", "plan.json", *names)
    for part in ("as fast as one device", "gap ", "Transfers between devices", "Stages, units in order"):
        assert part in text
    assert "wrote plan.json" in text
    for name in names[1::2]:
        assert (folder / name).stat().st_size
    prepared = ready(load(folder / "gpt2.tide"), load_cluster(folder / "two.json"), PlaceOptions())
    played = follow(prepared, load_plan(folder / "plan.json"))
    facts = as_json(folder, "gpt2.tide", "--machine", "two.json")["facts"]
    assert played.makespan_ns == facts["step_ns"]
    assert len((folder / "units.csv").read_text().splitlines()) == facts["units"] + 1
    events = json.loads((folder / "t.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} >= {"gpu0", "gpu0 > gpu1"}


def test_memory_decides(folder: Path) -> None:
    """Workspaces of BLAS of 17.04 MB on each device and 0.53 MB of everything else: one device of 17.4 MB is too small,
    two are not."""
    found = as_json(folder, "gpt2.tide", "--machine", "tight.json")
    assert found["facts"]["fits"] is True
    assert found["facts"]["reference_fits"] is False
    assert "no single device has the memory" in found["notes"][0]["text"]
    assert max(found["tables"]["devices"]["peak_bytes"]) <= 17_400_000
    assert found["tables"]["devices"]["libraries_bytes"] == [17_039_360] * 2


def test_what_fits_nowhere_is_shown_with_what_lacks_where_and_exits_with_4_unless_all_were_tried(folder: Path) -> None:
    pins = ("--pin", "(root)=gpu0", "--pin", "blocks=gpu0")
    small = ("gpt2.tide", "--machine", "small.json", *pins)
    text = run(folder, *small, exits=4)
    assert "No placement was found that fits" in text
    assert "is over memory on gpu0 by " in " ".join(text.split())
    assert "No placement was found that fits" in run(folder, *small[:3], "--units", "3", exits=1)


def test_a_unit_that_no_device_has_the_memory_for_is_one_message_and_status_1(folder: Path) -> None:
    done = called(folder, "place", "gpt2.tide", "--machine", "tiny.json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "17,039,360 of them workspaces of libraries, and gpu0 has 1,000,000" in done.stderr


def test_a_device_without_rates_is_named_first_with_what_to_do(folder: Path) -> None:
    """A CPU of which the catalogue knows the bandwidth alone: ops there count by their bytes, which flatters it."""
    pins = ("--pin", "0=cpu")
    said = as_json(folder, "mlp.tide", "--machine", "mixed.json", *pins)["notes"]
    assert " or more per step on " in said[0]["text"]
    assert said[1]["kind"] == "warning"
    assert "as Intel i9-13900K has no rate of float32" in said[1]["text"]
    assert "docs/place_graphs.md" in said[1]["text"]
    rated = as_json(folder, "mlp.tide", "--machine", "rated.json", *pins)["notes"]
    assert " or more per step" not in rated[0]["text"]
    assert not [note for note in rated if note["kind"] == "warning"]


def test_a_cluster_of_one_device_leaves_nothing_to_choose(folder: Path) -> None:
    (folder / "one.json").write_text(json.dumps({"devices": [{"name": "gpu", "device": "A100-SXM-80GB"}]}))
    text = " ".join(run(folder, "mlp.tide", "--machine", "one.json").split())
    assert "per step on gpu alone: the cluster has no other device, so there is nothing to choose." in text
    assert "The placement is proved optimal" in text


def test_the_best_single_device_is_named(folder: Path) -> None:
    assert "gpu0" in next(
        line for line in run(folder, "mlp.tide", "--machine", "two.json").splitlines() if "Best single" in line
    )


def test_every_search_places_a_step_and_a_file_resumes_it(folder: Path) -> None:
    found = as_json(folder, "mlp.tide", "--machine", "two.json", "--algorithm", "genetic", "--option", "population=10")
    assert found["facts"]["bound_ns"] <= found["facts"]["step_ns"] <= found["facts"]["reference_ns"]
    options = ("mlp.tide", "--machine", "two.json", "--resume", "search.state", "--seed", "3")
    first, again = as_json(folder, *options)["facts"], as_json(folder, *options, "--threads", "2")["facts"]
    assert again["resumed"] == first["evaluations"] == again["evaluations"]
    assert again["step_ns"] == first["step_ns"]


def test_starts_share_the_budget_and_the_best_counts(folder: Path) -> None:
    options = ("mlp.tide", "--machine", "two.json")
    found = as_json(folder, *options, "--starts", "2")["facts"]
    done = (
        called(folder, "place", *options, *BRIEFLY, "--budget", "10", "--seed", seed, "--json") for seed in ("0", "1")
    )
    alone = [json.loads(one.stdout)["sections"]["placed_step"]["facts"] for one in done]
    assert found["step_ns"] == min(one["step_ns"] for one in alone)
    assert found["evaluations"] == sum(one["evaluations"] for one in alone)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("gpt2.tide",), "a step is placed on a cluster: give its devices and links with --machine"),
        (
            ("gpt2.tide", "--machine", "4xh100-sxm.json"),
            "h100-sxm.json: cannot be read as a machine: No such file",
        ),
        (
            ("gpt2.tide", "--machine", "net.json"),
            "read as a cluster of devices and links (docs/machines.md): unknown key 'layers'",
        ),
        (("gpt2.tide", "--machine", "two.json", "--compat"), "gpt2.tide is a captured step: --compat goes with a net"),
        (("gpt2.tide", "--machine", "two.json", "--batch", "4"), "--batch goes with a network"),
        (("gpt2.tide", "--machine", "two.json", "--option", "a=1"), "the search best has no option 'a'"),
        (("gpt2.tide", "--machine", "two.json", "--algorithm", "bets"), "there is no search called 'bets'"),
        (
            ("gpt2.tide", "--machine", "two.json", "--cluster", "local"),
            "--cluster goes with --starts: a cluster runs several searches",
        ),
        (
            ("gpt2.tide", "--machine", "two.json", "--starts", "2", "--resume", "s"),
            "--starts and --resume exclude each other: a file",
        ),
        (("gpt2.tide", "--machine", "two.json", "--link-utilization", "0.5"), "--link-utilization goes with a net"),
        (("gpt2.tide", "--machine", "two.json", "--pin", "tokens"), "--pin takes MODULE=DEVICE"),
        (("gpt2.tide", "--machine", "two.json", "--pin", "tokens=gpu7"), "the devices are gpu0, gpu1"),
        (("net.json", "--machine", "two.json", "--micro-batches", "2"), "network of layers: --micro-batches goes with"),
        (("net.json", "--machine", "two.json", "--set", "a=1"), "--set goes with a captured step"),
    ],
)
def test_what_cannot_be_is_one_message(folder: Path, arguments: tuple[str, ...], text: str) -> None:
    said = refused(folder, *arguments)
    assert text in said
    assert said.count("\n") == 1


def test_a_placement_is_drawn_over_what_is_placed(folder: Path) -> None:
    assert "wrote units.svg" in run(folder, "gpt2.tide", "--machine", "two.json", "--draw", "units.svg", budget=10)
    text = (folder / "units.svg").read_text()
    assert "blocks.0.attention" in text
    assert "gpu0" in text
    assert "a picture is a file .svg or .dot" in refused(
        folder, "gpt2.tide", "--machine", "two.json", "--draw", "units.png"
    )
    layers = {f"d{i}": {"type": "Dropout", "parents": [f"d{i - 1}" if i else "data"]} for i in range(150)}
    (folder / "deep.json").write_text(json.dumps({"name": "deep", "layers": {"data": DATA, **layers}}))
    (folder / "devices.json").write_text(json.dumps(DEVICES))
    wide = refused(folder, "deep.json", "--machine", "devices.json", "--draw", "deep.svg")
    assert "at most 150 boxes, and 151 are placed" in wide


def test_a_unit_has_one_pin(folder: Path) -> None:
    pins = ("--pin", "0=gpu0", "--pin", "0=gpu1")
    assert "0 is pinned to gpu0 and to gpu1" in refused(folder, "mlp.tide", "--machine", "two.json", *pins)
    run(folder, "mlp.tide", "--machine", "two.json", "--pin", "0=gpu0", "--pin", "0=gpu0", budget=5)


def test_a_budget_covers_every_device_alone(folder: Path) -> None:
    four = ("mlp.tide", "--machine", "four.json")
    assert "--budget 3 is too small" in refused(folder, *four, "--budget", "3")
    assert "for each of 2 starts, which takes 8" in refused(folder, *four, "--budget", "7", "--starts", "2")
    run(folder, *four, "--starts", "2", budget=8)


def test_searches_are_compared_on_captured_steps(folder: Path) -> None:
    given = ("place", "compare", "mlp.tide", "--machine", "two.json", "--seeds", "1", "--budget", "60")
    names = ("--algorithms", "contiguous,random", "--threads", "1", "--json")
    done = called(folder, *given, *names)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["sections"]["comparison"]["tables"]["runs"]
    assert runs["algorithm"] == ["contiguous", "random"]
    problem = ready(load(folder / "mlp.tide"), load_cluster(folder / "two.json"), PlaceOptions()).problem
    for score, text in zip(runs["score_ms"], runs["devices"], strict=True):
        assert problem.evaluate(np.array([list(map(int, text.split()))]))[0][0] == score
    wrong = called(folder, *given, "--batches", "3")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "mlp.tide is a captured step: --batches goes with a network" in wrong.stderr
