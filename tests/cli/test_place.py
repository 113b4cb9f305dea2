"""``tensortide place`` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.errors import OutputError
from tensortide.placements.search import ALGORITHMS
from tensortide.studies.placement.comparison import PlaceCompareRequest
from tensortide.studies.placement.request import ClusterRequest
from tests.cli.command import called
from tests.placements.cases import EXPRIMO

NET = str(EXPRIMO / "nets" / "mnist.json")
ALEX = str(EXPRIMO / "nets" / "alex_v2.json")
SERVER = ("--machine", str(EXPRIMO / "device_graphs" / "malvik-4gpu-reduced-alexnet.json"))
ROOMY = ("--machine", str(EXPRIMO / "device_graphs" / "malvik.json"))
SMALL = ("--budget", "300", "--threads", "1", "--option", "planned=100")


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    done = called(folder, "place", *arguments)
    assert done.returncode == code, done.stderr
    return done.stderr if code == 2 else done.stdout


def facts(folder: Path, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(folder, *arguments, "--json", code=code))["sections"]["placement"]


def test_a_search_says_time_bound_memory_and_transfers_and_its_placement_scores_the_same(tmp_path: Path) -> None:
    found = facts(tmp_path, ALEX, *SERVER, *SMALL, "--batch", "128", "--out", "p.json")
    assert found["facts"]["makespan_ns"] >= found["facts"]["bound_ns"] > 0
    assert found["facts"]["fits"] is True
    assert found["facts"]["proposals"] <= 300
    devices = found["tables"]["devices"]
    assert sum(devices["units"]) == 15
    assert all(peak <= most for peak, most in zip(devices["peak_bytes"], devices["capacity_bytes"], strict=True))
    assert all(size > 0 for size in found["tables"]["links"]["size_bytes"])
    scores = json.loads(run(tmp_path, "score", ALEX, "p.json", *SERVER, "--batch", "128", "--json"))
    assert scores["sections"]["scores"]["tables"]["scores"]["makespan_ns"] == [found["facts"]["makespan_ns"]]


def test_text_shows_devices_and_lanes_and_files_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = ("--html", "p.html", "--trace", "t.json", "--csv", "p.csv", "--figure", "p.png", "--markdown", "p.md")
    text = run(tmp_path, ALEX, *SERVER, *SMALL, *files)
    for part in ("times as fast as one device", "Transfers between devices", "Layers in order", "2: NVIDIA Tesla V100"):
        assert part in text
    for name in files[1::2]:
        assert (tmp_path / name).stat().st_size
    trace = json.loads((tmp_path / "t.json").read_text())
    assert {event["ph"] for event in trace["traceEvents"]} >= {"X", "C"}


def test_a_search_resumes_and_the_same_seed_finds_the_same(tmp_path: Path) -> None:
    one = facts(tmp_path, ALEX, *SERVER, *SMALL, "--resume", "s.state")
    two = facts(tmp_path, ALEX, *SERVER, *SMALL[:2], *SMALL[4:], "--threads", "2", "--resume", "s.state")
    assert two["facts"].pop("resumed") == one["facts"]["evaluations"]
    assert one == two


def test_the_best_placement_is_shown_and_written_where_the_file_to_resume_from_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OutputError("cannot write s.state: the disk is full.")

    monkeypatch.setattr("tensortide.placements.search.checkpoint.write_file", full)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["place", ALEX, *SERVER, *SMALL, "--resume", "s.state", "--out", "p.json"])
    shown = capsys.readouterr()
    assert ended.value.code == 2
    assert shown.err.splitlines()[-2:] == [
        "error: cannot write s.state: the disk is full.",
        "The search ended as shown; it resumes from what was written before.",
    ]
    assert "times as fast as one device" in shown.out
    assert "s.state" not in shown.out
    assert json.loads((tmp_path / "p.json").read_text())
    assert not (tmp_path / "s.state").exists()


def test_the_optimizer_has_state_and_time_once_a_step(tmp_path: Path) -> None:
    alone = (ALEX, *ROOMY, *SMALL, "--batch", "128", "--devices", "1")
    found = {name: facts(tmp_path, *alone, "--optimizer", name) for name in ("sgd", "momentum", "adam")}
    ns = [each["facts"]["makespan_ns"] for each in found.values()]
    peak = [each["tables"]["devices"]["peak_bytes"][1] for each in found.values()]
    weights = 4 * 50_303_912
    assert [more - peak[0] for more in peak] == [0, weights, 2 * weights]
    each_ns = 2 * weights / 900  # a V100 moves 900 bytes a nanosecond; a state is read and written
    assert [more - ns[0] for more in ns] == pytest.approx([0, each_ns, 2 * each_ns], rel=1e-4)
    assert facts(tmp_path, *alone)["facts"]["makespan_ns"] == ns[0]
    pipelined = facts(tmp_path, *alone, "--batches", "4", "--in-flight", "2", "--optimizer", "adam")
    apart = facts(tmp_path, *alone, "--batches", "4", "--optimizer", "adam")
    update_ns = apart["facts"]["makespan_ns"] - pipelined["facts"]["makespan_ns"]
    assert update_ns == pytest.approx(3 * (7 * weights / 900 + 8 * 5000), rel=1e-4)


NAMED: dict[str, Any] = {
    "devices": [
        {"name": "host", "memory_bytes": 64e9, "device": {"name": "24 cores", "kind": "cpu", "fp32_tflops": 1.5,
                                                      "memory_gbytes_per_s": 90}},
        {"name": "left", "memory_bytes": 1e9, "device": "A100-SXM-80GB"},
        {"name": "right", "memory_bytes": 1e9, "device": "A100-SXM-80GB"},
    ],
    "links": [{"between": ["*"], "link": "pcie4"}],
}  # fmt: skip


def test_devices_of_a_cluster_file_have_its_names_in_the_answer_the_map_and_the_picture(tmp_path: Path) -> None:
    (tmp_path / "named.json").write_text(json.dumps(NAMED))
    request = (ALEX, "--machine", "named.json", "--batch", "512")
    found = facts(tmp_path, *request, *SMALL, "--out", "p.json", "--draw", "p.svg")
    tables, names = found["tables"], {"host", "left", "right"}
    assert tables["devices"]["device"] == ["host", "left", "right"]
    placement = json.loads((tmp_path / "p.json").read_text())
    assert set(placement.values()) == set(tables["runs"]["device"]) > {"left"}
    assert {*tables["links"]["source"], *tables["links"]["target"]} <= names
    assert tables["links"]["source"]
    counts = [[*placement.values()].count(name) for name in tables["devices"]["device"]]
    assert counts == tables["devices"]["units"]
    assert ">left<" in (tmp_path / "p.svg").read_text()
    scores = json.loads(run(tmp_path, "score", *request[:1], "p.json", *request[1:], "--out", "maps", "--json"))
    assert scores["sections"]["scores"]["tables"]["scores"]["makespan_ns"] == [found["facts"]["makespan_ns"]]
    assert json.loads((tmp_path / "maps" / "p.json").read_text()) == placement


def test_messages_name_the_devices_of_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "named.json").write_text(json.dumps(NAMED))
    request = (ALEX, "--machine", "named.json", *SMALL)
    alone = run(tmp_path, *request, "--batch", "8", "--devices", "right")
    assert "on device right alone" in alone
    assert re.search("Best single device .* device right", alone)
    full = " ".join(run(tmp_path, *request, "--batch", "8192", "--devices", "left, 2", code=4).split())
    assert re.search(r"over memory on device left by [\d,]+ bytes, device right by", full)
    assert "No placement takes less" not in full  # a bound on scores, which have the penalty of over-use
    assert "there is no device 'middle'; its devices are host, left, right" in run(
        tmp_path, *request, "--devices", "middle", code=2
    )
    assert "device left is named twice" in run(tmp_path, *request, "--devices", "left,1", code=2)


def test_no_placement_that_fits_ends_with_1_where_all_were_tried_and_else_with_4(tmp_path: Path) -> None:
    memory = ("--batch", "40960", "--devices", "1,2")
    text = run(tmp_path, NET, *SERVER, *SMALL, *memory, code=4)
    assert "No placement was found that fits" in text
    assert "gap" not in text
    assert "proved optimal" not in text
    found = facts(tmp_path, NET, *SERVER, "--budget", "1000", "--threads", "1", *memory, code=1)["facts"]
    assert ("gap" in found, found["proved"], found["fits"]) == (False, True, False)


def test_a_net_that_takes_no_time_is_placed(tmp_path: Path) -> None:
    layers = {f"data{i}": {"type": "Input", "parents": [], "tensor": [8, 32, 32, 3]} for i in range(2)}
    (tmp_path / "n.json").write_text(json.dumps({"name": "n", "layers": layers}))
    assert "alone: no other placement found is faster" in run(tmp_path, "n.json", *SERVER, "--budget", "50")


def test_more_batches_than_can_be_simulated_are_refused(tmp_path: Path) -> None:
    text = run(tmp_path, ALEX, *SERVER, "--batches", "1000000000", code=2)
    assert "1,000,000,000 batches of 15 layers are too many to simulate: 6,666,666 batches at most" in text


def test_figures_that_no_time_can_be_made_of_are_refused(tmp_path: Path) -> None:
    cluster = json.loads(Path(SERVER[1]).read_text("utf-8"))
    text = run(tmp_path, ALEX, *SERVER, "--batch", "128", "--utilization", "1e-308", code=2)
    assert "--utilization takes a finite number from 1e-09 up to 1, not 1e-308" in text
    cluster["devices"][1]["peak_gflops"] = 1e-308
    (tmp_path / "slow.json").write_text(json.dumps(cluster))
    text = run(tmp_path, ALEX, "--machine", "slow.json", code=2)
    assert "slow.json: NVIDIA Tesla V100: fp32_tflops is 1e-311; figures of devices are above 1e-30" in text


def test_a_device_of_the_net_that_the_cluster_lacks_is_an_error(tmp_path: Path) -> None:
    net = json.loads(Path(NET).read_text("utf-8"))
    first = next(iter(net["layers"]))
    net["layers"][first]["device"] = 7
    (tmp_path / "net.json").write_text(json.dumps(net))
    assert f"layer '{first}' has the device 7: devices are 0 to 2" in run(tmp_path, "net.json", *ROOMY, code=2)


def test_a_partial_placement_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "part.json").write_text(json.dumps({"conv1": 1, "conv9": 1}))
    text = " ".join(run(tmp_path, "score", ALEX, "part.json", *ROOMY, "--batch", "8").split())
    assert "keep the device of the net, or else 0: part.json lacks 14 of 15" in text
    assert "no layer of the net are ignored: part.json has 1" in text


def test_algorithms_are_listed_and_their_options_taken(tmp_path: Path) -> None:
    assert "map-elites" in run(tmp_path, "algorithms")
    found = facts(tmp_path, NET, *SERVER, *SMALL[:4], "--algorithm", "genetic", "--option", "population=10")
    assert found["facts"]["evaluations"] > 10


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((ALEX,), "a network is placed on a cluster: give its devices and links with --machine"),
        (
            (ALEX, *ROOMY, "--compat", "--optimizer", "adam"),
            "--optimizer and --compat exclude each other: the published",
        ),
        (
            (ALEX, *ROOMY, "--inference", "--optimizer", "sgd"),
            "--optimizer and --inference exclude each other: a forward",
        ),
        ((ALEX, *ROOMY, "--optimizer", "lion"), "--optimizer takes sgd, momentum or adam, not lion"),
        ((ALEX, *SERVER, "--algorithm", "genetik"), "did you mean genetic?"),
        ((ALEX, *SERVER, "--algorithm", "genetic", "--option", "popultion=3"), "it has: population"),
        ((ALEX, *SERVER, "--devices", "7"), "there is no device '7'; its devices are 0, 1, 2"),
        ((ALEX, *SERVER, "--devices", "1,gpu"), "there is no device 'gpu'; its devices are 0, 1, 2"),
        ((ALEX, *SERVER, "--devices", "1,1"), "device 1 is named twice"),
        ((ALEX, *SERVER, "--threads", "0"), "--threads takes a whole number from 1, not 0"),
        ((ALEX, *SERVER, "--time-limit", "-1"), "--time-limit takes a finite number above 0, not -1"),
        ((ALEX, *SERVER, "--utilization", "1.5"), "--utilization takes a finite number from 1e-09 up to 1, not 1.5"),
        ((ALEX, *SERVER, "--batch", "0"), "--batch takes a whole number from 1, not 0"),
        (("compare", ALEX, *SERVER, "--threads", "0"), "--threads takes a whole number from 1"),
        ((ALEX, *SERVER, "--groups", "blocks"), "is no way to group layers"),
        ((ALEX, *SERVER, "--groups", "prefix:0"), "'prefix:0' is no way to group layers"),
        ((ALEX, *SERVER, "--groups", "prefix:-1"), "'prefix:-1' is no way to group layers"),
        (("none.json", *SERVER), "none.json"),
        (("run", NET), "unknown key"),
        (("validate", ALEX, "x.json", *SERVER), "either --times or --by"),
    ],
)
def test_what_cannot_be_is_one_message(tmp_path: Path, arguments: tuple[str, ...], text: str) -> None:
    said = run(tmp_path, *arguments, code=2)
    assert text in said
    assert "Traceback" not in said


def test_a_layer_that_no_device_has_the_memory_for_is_one_message_and_status_1(tmp_path: Path) -> None:
    done = called(tmp_path, "place", ALEX, *SERVER, "--devices", "1,2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: layer 'fc6' of AlexNet V2" in done.stderr


def test_a_configuration_runs_and_writes_its_folder(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    config = str(EXPRIMO / "configs" / "sa-malvik-alexnet.json")
    assert "wrote out/manifest.json" in run(tmp_path, "run", config, "--budget", "60", "--out", "out")
    assert (tmp_path / "out" / "sa_solution.json").exists()


def test_predictions_are_compared_with_a_function_and_solutions_are_converted(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("def ms(order):\n    return 10.0 + 3 * len(set(order.values())) + order['conv1']\n")
    for number in range(4):
        order = {name: min(number, 1 + place % 2) for place, name in enumerate(["data", "conv1", "conv2"])}
        (tmp_path / f"p{number}.json").write_text(json.dumps(order))
    files = [f"p{number}.json" for number in range(4)]
    text = run(tmp_path, "validate", ALEX, *files, *SERVER, "--by", "m.py:ms")
    assert "Rank correlation" in text
    (tmp_path / "times.json").write_text(json.dumps({name: 10 + n for n, name in enumerate(files[:3])}))
    assert "has no time of p3.json" in run(tmp_path, "validate", ALEX, *files, *SERVER, "--times", "times.json", code=2)
    run(tmp_path, "score", ALEX, *files, *ROOMY, "--out", "maps")
    assert len(json.loads((tmp_path / "maps" / "p2.json").read_text())) == 15


def test_help_names_the_pages_that_have_the_form_of_each_cluster_file(tmp_path: Path) -> None:
    text = re.sub(r"[│\s]+", "", run(tmp_path, "--help"))
    for page, key in (("machines", "comm_channels"), ("machines", "between")):
        assert f"docs/{page}.md" in text
        assert key in (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text("utf-8")


def test_a_comparison_without_names_has_every_algorithm_but_those_for_small_nets() -> None:
    asked = PlaceCompareRequest(problems=(NET,), cluster=ClusterRequest(machine=Path(SERVER[1])), budget=10, seeds=1)
    assert {task.contender.label for task in asked.tasks()} == set(ALGORITHMS) - {"cp", "exhaustive"}


@pytest.mark.slow
def test_algorithms_are_compared_and_the_comparison_resumes(tmp_path: Path) -> None:
    arguments = (
        "compare",
        NET,
        *SERVER,
        "--algorithms",
        "best,random",
        "--seeds",
        "2",
        "--budget",
        "50",
        "--save",
        "r",
    )
    first = run(tmp_path, *arguments)
    assert "Over the best" in first
    assert run(tmp_path, *arguments) == first
