"""``tensortide time`` of machines: predicted steps and their intervals, side by side, of a catalogue or one's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tensortide.profile.host import chosen_threads
from tensortide.targets import machines as cpu
from tensortide.targets.machines import full_name
from tensortide.timing import Device
from tensortide.timing.catalogue import catalogue
from tests.cli.timed import SIZES, called, folder_of_a_small_step, refused, run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_a_small_step(tmp_path_factory)


def test_machines_stand_side_by_side_with_intervals_and_what_they_rest_on(folder: Path) -> None:
    machines = ("--machine", "8xa100-sxm4-80gb", "--machine", "4xh100", "--machine", "t4")
    full_name.cache_clear()
    code, printed, said = called(folder, "time", "mlp", *SIZES, *machines, "--json")
    assert code == 0
    assert "note: h100 is taken for H100-SXM-80GB; write H100-PCIe-80GB or H100-96GB if you mean that" in said
    tables: Any = json.loads(printed)["sections"]["machines"]["tables"]
    found = tables["machines"]
    assert found["machine"] == ["8 x A100-SXM-80GB", "4 x H100-SXM-80GB", "T4"]
    ends = zip(found["step_low_ns"], found["step_ns"], found["step_high_ns"], strict=True)
    assert all(low < ns < high for low, ns, high in ends)
    assert set(found["provenance"]) <= {"interpolated", "extrapolated", "physics only"}
    assert tables["data_parallel"]["devices"] == [8, 4, 1]
    assert set(tables) >= {"bounds", "machine_phases", "machine_modules", "machine_ops"}


ATTENTION = """
import torch

def attention(batch=2, seq=64):
    layer = torch.nn.Linear(64, 192, dtype=torch.float16)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(batch, seq, 64, dtype=torch.float16)
    def step():
        q, k, v = (part.view(batch, seq, 1, 64).transpose(1, 2) for part in layer(x).chunk(3, -1))
        torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).float().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


def test_each_machine_has_its_own_kernels_whatever_the_order(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTENTION)
    machines = ("H100-SXM-80GB", "T4", "local")
    shown: list[dict[tuple[str, str], Any]] = []
    for order in (machines, machines[::-1]):
        options = [f"--machine={name}" for name in order]
        tables: Any = json.loads(run(tmp_path, "time", "train.py:attention", *options, "--json"))["sections"][
            "machines"
        ]
        found: dict[tuple[str, str], Any] = {}
        for i, name in enumerate(order):
            found |= {(name, key): column[i] for key, column in tables["tables"]["machines"].items()}
            by_op = tables["tables"]["machine_ops"]
            times = zip(by_op["name"], by_op[f"time_{i}_ns"], strict=True)
            found |= {(name, op): ns for op, ns in times if ns is not None}
        shown.append(found)
    assert shown[0] == shown[1]
    attention = {name: {op for where, op in shown[0] if where == name and "attention" in op} for name in machines}
    assert all(len(ops) == 2 for ops in attention.values())  # forward and backward
    assert len(set.union(*attention.values())) == 6


def test_another_kernel_of_attention_is_asked_for_by_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTENTION)
    asked = ("time", "train.py:attention", "--set=seq=8192", "--set=batch=64", "--machine=H100-SXM-80GB")
    tables = [json.loads(run(tmp_path, *asked, *kernel, "--json")) for kernel in ((), ("--attention=flash2",))]
    cudnn, flash = (found["sections"]["machines"]["tables"]["machines"]["step_ns"][0] for found in tables)
    assert flash > 1.5 * cudnn
    assert "attention by flash2, at 21%" in json.dumps(tables[1])
    assert "flex, whose speed on H100-SXM-80GB is not known" in refused(tmp_path, *asked, "--attention=flex")
    assert "--attention goes with --machine" in refused(tmp_path, *asked[:2], "--attention=flash2")


def test_a_saved_step_that_was_captured_for_another_machine_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(ATTENTION)
    run(tmp_path, "capture", "train.py:attention", "--machine=H100-SXM-80GB", "-o", "x.tide", "--quiet")
    said = "of ops captured for H100-SXM-80GB"
    assert said in " ".join(run(tmp_path, "time", "x.tide", "--machine=T4").split())
    assert said not in " ".join(run(tmp_path, "time", "x.tide", "--machine=H100-SXM-80GB").split())
    both = " ".join(run(tmp_path, "time", "x.tide", "--machine=T4", "--machine=H100-SXM-80GB").split())
    assert both.count(f"T4: the step consists {said}") == both.count(said) == 1


def test_several_machines_have_a_main_table_and_a_wrong_name_leaves_nothing_written(
    folder: Path, tmp_path: Path
) -> None:
    machines = ("time", "mlp", *SIZES, "--machine", "A100-SXM-80GB", "--machine", "H100-SXM-80GB")
    run(folder, *machines, "--csv", str(tmp_path / "c.csv"))
    rows = (tmp_path / "c.csv").read_text().splitlines()
    assert rows[0].startswith("machine,")
    assert [row.partition(",")[0] for row in rows[1:]] == ["A100-SXM-80GB", "H100-SXM-80GB"]
    written = [f"--html={tmp_path / 't.html'}", f"--csv={tmp_path / 'own.csv'}", f"--csv=nope={tmp_path / 'no.csv'}"]
    assert "no table is called 'nope'" in refused(folder, *machines, *written)
    assert [path.name for path in tmp_path.iterdir()] == ["c.csv"]


def test_one_machine_shows_its_step_and_every_op_with_an_interval(folder: Path) -> None:
    eager, graph = (
        json.loads(run(folder, "time", "mlp", *SIZES, "--machine=H100-SXM-80GB", f"--launch={launch}", "--json"))
        for launch in ("eager", "graph")
    )
    steps = [shown["sections"]["machines"]["tables"]["machines"]["step_ns"][0] for shown in (eager, graph)]
    assert steps[1] < steps[0] / 2  # a tiny step waits for its host
    ops: Any = eager["sections"]["time"]["tables"]["ops"]
    known = [i for i, unknown in enumerate(ops["unknown"]) if not unknown]
    assert known
    assert all(ops["low_ns"][i] <= ops["time_ns"][i] <= ops["high_ns"][i] for i in known)
    assert set(ops["provenance"]) <= {"interpolated", "extrapolated", "physics only", "unknown"}


def test_a_predicted_step_is_a_trace_of_device_host_and_network(folder: Path, tmp_path: Path) -> None:
    run(tmp_path, "time", "mlp", *SIZES, "--machine=8xt4", "--machine=l4", "--trace", "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(processes.values()) == ["8 x T4", "L4"]
    threads = {(processes[e["pid"]], e["args"]["name"]) for e in events if e["name"] == "thread_name"}
    assert threads >= {("8 x T4", "host"), ("8 x T4", "network"), ("L4", "host")}
    assert ("L4", "network") not in threads
    ops = [e for e in events if e["ph"] == "X" and "args" in e]
    assert all(
        {"provenance", "low_ns", "high_ns", "flops", "accessed_bytes", "module"} <= e["args"].keys() for e in ops
    )
    assert any(e["ph"] == "C" for e in events)


def test_shares_of_a_step_on_a_cpu_are_all_of_it(folder: Path) -> None:
    shown: Any = json.loads(run(folder, "time", "mlp", *SIZES, "--machine=local", "--json"))
    bounds = shown["sections"]["machines"]["tables"]["bounds"]
    assert sum(shares[0] for key, shares in bounds.items() if key not in ("machine", "exposed_share")) == pytest.approx(
        1, abs=0.01
    )


def test_ops_of_unknown_time_are_named_with_the_reason(folder: Path) -> None:
    shown: Any = json.loads(run(folder, "time", str(folder / "small.tide"), "--machine=tpu v4", "--json"))
    refused(folder, "time", str(folder / "small.tide"), "--machine=tpu v4", "--strict", status=3)
    for key in ("phases", "modules", "shapes"):
        table = shown["sections"]["time"]["tables"][key]
        columns = zip(table["low_ns"], table["time_ns"], table["high_ns"], table["unknown"], strict=True)
        assert all(a <= b and (c is None if unknown else b <= c) for a, b, c, unknown in columns)
    for section in ("machines", "time"):
        table = shown["sections"][section]["tables"]["unknown"]
        assert "aten.addmm" in table["name"]
        assert set(table["reason"]) == {"no rate of float32 in the catalogue"}


def test_a_device_of_ones_own_is_a_file_and_said_to_be_one(folder: Path, tmp_path: Path) -> None:
    figures = {"name": "H100 NVL", "like": "H100-PCIe-80GB", "memory_gbytes": 94, "memory_gbytes_per_s": 3938}
    (tmp_path / "nvl.json").write_text(json.dumps(figures))
    graph = str(folder / "small.tide")
    text = run(tmp_path, "time", graph, "--machine=nvl.json")
    assert "predicted for NVIDIA H100 NVL (figures of your own: " in text
    shown: Any = json.loads(run(tmp_path, "time", graph, "--machine=4xnvl.json", "--machine=h100-pcie", "--json"))
    assert shown["sections"]["machines"]["tables"]["machines"]["machine"] == ["4 x H100 NVL", "H100-PCIe-80GB"]
    assert "3938 GB/s" in run(tmp_path, "report", graph, "--machine=nvl.json", "--full")
    (tmp_path / "nvl.json").write_text('{"name": "H100 NVL"}')
    assert "missing required field `memory_gbytes_per_s`" in refused(tmp_path, "time", graph, "--machine=nvl.json")


def test_a_short_name_is_no_machine_under_strict(folder: Path) -> None:
    for verb in ("report", "count"):
        assert "is ambiguous: it may be H100-SXM-80GB" in refused(
            folder, verb, "mlp", *SIZES, "--machine=h100", "--strict"
        )


def test_words_that_one_device_alone_has_are_its_name_under_strict(folder: Path) -> None:
    text = run(folder, "time", str(folder / "small.tide"), "--machine=h100-sxm", "--strict")
    assert "predicted for NVIDIA H100-SXM-80GB" in text


def test_the_devices_of_the_catalogue_are_listed_with_their_names_and_figures(folder: Path) -> None:
    text = run(folder, "time", "--list")
    assert all(device.name in text for device in catalogue())
    assert "NVIDIA H100 80GB HBM3" in text
    assert re.search(r"Name .* fp32 .* fp16 .* bf16", text)
    assert re.search(r"^T4 .* 65.1 ", text, re.MULTILINE)
    shown: Any = json.loads(run(folder, "time", "--list", "--json"))
    table = shown["sections"]["devices"]["tables"]["devices"]
    for i, device in enumerate(catalogue()):
        assert {field: table[field][i] for field in table if field != "aliases"} == {
            field: getattr(device, field) for field in table if field != "aliases"
        }
    assert len(table) == len(Device.__struct_fields__)
    words: Any = json.loads(run(folder, "time", "AMD cdna3", "--list", "--json"))
    assert words["sections"]["devices"]["tables"]["devices"]["name"] == ["MI325X", "MI300X"]


def test_what_was_measured_on_one_thread_stands_against_one_thread(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTIDE_MEASURED", str(tmp_path))
    arguments = ("--isolated", "--clock=thread", "--against=local")
    with chosen_threads(2):
        code, printed, said = called(folder, "time", str(folder / "small.tide"), *arguments)
    assert code == 0, said
    assert "assumed for 1 thread," in said
    assert "predicted for" in printed


def test_every_verb_has_one_step_and_one_op_sum_with_their_intervals(folder: Path) -> None:
    asked = ("small.tide", "--machine=T4")

    def facts(*verb: str, section: str) -> Any:
        return json.loads(run(folder, *verb, *asked, "--json"))["sections"][section]

    time = facts("time", section="machines")["tables"]["machines"]
    op_sum = facts("time", section="time")["facts"]["op_sum_ns"]
    report = facts("report", section="cost")["facts"]
    assert (report["step_ns"], report["op_sum_ns"]) == (time["step_ns"][0], op_sum)
    assert report["step_ns"] > report["op_sum_ns"]  # small ops wait for their host
    idle = facts("memory", "--idle", section="idle")["facts"]
    assert idle["op_sum_ns"] == op_sum
    assert "step_ns" not in idle
    text = run(folder, "report", *asked, "--full")
    assert re.search(r"Step .* 80 % interval .*; extrapolated; with host time", text)
    assert re.search(r"Sum of op times .* 80 % interval .*; extrapolated", text)
    assert "sum of op times" in run(folder, "remat", "simulate", *asked, "--budget=100%")


@pytest.mark.parametrize(
    "verb",
    [
        ("time",),
        pytest.param(("report",), marks=pytest.mark.slow),
        pytest.param(("memory", "--idle"), marks=pytest.mark.slow),
        ("remat", "simulate", "--budget=100%"),
    ],
)
def test_every_verb_says_what_is_assumed_of_a_cpu_that_is_not_calibrated(
    verb: tuple[str, ...], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTIDE_MEASURED", str(tmp_path))
    cpu._here.cache_clear()
    code, printed, said = called(folder, *verb, "mlp", *SIZES, "--machine=local", "--json")
    assert code == 0
    assert said.count("tensortide time calibrate") == 1
    assert re.search(r"\(assumed for \d+ threads?: fp32 .* GB/s; run tensortide time calibrate", printed)
    if verb == ("time",):
        table: Any = json.loads(printed)["sections"]["machines"]["tables"]["machines"]
        assert table["step_low_ns"][0] * 1.99 < table["step_ns"][0] < table["step_high_ns"][0] / 1.99


@pytest.fixture(autouse=True)
def _machine_at_hand() -> Iterator[None]:
    """What is known of the machine at hand in one test is none of the next."""
    yield
    cpu._here.cache_clear()
