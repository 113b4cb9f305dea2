"""``tensortide time`` of measured and recorded times, the file that has them, and what cannot be, as a user runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tensortide.graph import load
from tensortide.timing import load_durations
from tests.cli.timed import SIZES, called, folder_of_a_small_step, process, refused, run, written


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_a_small_step(tmp_path_factory)


def test_a_step_is_measured_shown_and_stored(folder: Path) -> None:
    text = process(
        folder, "time", "mlp", *SIZES, "--measure", "--clock=thread", "--steps=2", "-o", "step.durations.json"
    )
    for part in ("Ordinary step", "Between ops, backward", "Off by", "By phase", "By op", "By module", "1 thread"):
        assert part in text
    assert "wrote step.durations.json" in text
    durations = load_durations(folder / "step.durations.json", load(folder / "small.tide"))
    assert durations.measurement is not None
    assert (durations.kind, durations.measurement.clock) == ("measured", "thread")
    assert durations.measurement.step is not None


def test_json_explains_the_whole_step(folder: Path) -> None:
    shown: Any = json.loads(run(folder, "time", "mlp", *SIZES, "--measure", "--steps=1", "--threads=1", "--json"))
    assert shown["format"] == "tensortide.document"
    facts, tables = shown["sections"]["time"]["facts"], shown["sections"]["time"]["tables"]
    between = sum(ns for key, ns in facts.items() if key.startswith("overhead_"))
    assert facts["explained_ns"] == facts["op_sum_ns"] + between
    assert sum(tables["ops"]["time_ns"]) == sum(tables["phases"]["time_ns"]) == facts["op_sum_ns"]
    assert sum(tables["shapes"]["calls"]) == sum(tables["phases"]["ops"])
    assert facts["machine_threads"] == 1


def test_the_file_beside_a_graph_is_found_by_verbs_that_need_times(folder: Path, tmp_path: Path) -> None:
    graph = tmp_path / "x.tide"
    graph.write_bytes((folder / "small.tide").read_bytes())
    simulate = ("remat", "simulate", "x.tide", "--budget", "100%", "--json")
    assert "A100" in durations_of(run(tmp_path, *simulate))
    run(tmp_path, "time", "x.tide", "--isolated", "-o", "x.durations.json", "--quiet")
    assert "in isolation" in durations_of(run(tmp_path, *simulate))
    assert "T4" in durations_of(run(tmp_path, *simulate, "--machine", "T4"))  # what is asked for counts
    run(tmp_path, "time", "x.tide", "--from", written(tmp_path), "-o", "other.json", "--quiet")
    assert "times.csv" in durations_of(run(tmp_path, *simulate, "--durations", "other.json"))
    assert "exclude each other" in refused(tmp_path, *simulate, "--machine", "T4", "--durations", "other.json")
    run(tmp_path, "capture", "mlp", "--set=batch=3", "-o", "x.tide")
    message = refused(tmp_path, *simulate)
    assert "x.durations.json: " in message
    assert "It lies beside x.tide and is taken for its durations" in message


def durations_of(simulation: str) -> str:
    """The source of the durations that a simulation states."""
    return str(json.loads(simulation)["sections"]["simulation"]["facts"]["durations"])


def test_a_list_is_known_by_its_content(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "times").write_text('{"op": "aten.addmm", "ns": 900}\n{"op": 0, "ns": 40}\n')
    run(tmp_path, "time", str(folder / "small.tide"), "--from", "times", "-o", "d.json", "--quiet")
    run(tmp_path, "time", str(folder / "small.tide"), "--from", written(tmp_path), "-o", "e.json", "--quiet")
    assert load_durations(tmp_path / "d.json").ns == load_durations(tmp_path / "e.json").ns


def test_what_is_not_measured_is_named_and_under_strict_an_error(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("aten.addmm,900\n")
    arguments = ("time", str(folder / "small.tide"), "--from", "times.csv", "-o", "d.json")
    text = run(tmp_path, *arguments)
    assert "Not measured: " in text
    assert "Sum of op times  ~" in text
    assert "aten.mm: not in the list" in text
    (tmp_path / "d.json").unlink()
    assert "ops have no known time" in refused(tmp_path, *arguments, "--strict", status=3)
    assert not (tmp_path / "d.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small.tide", "--measure"), "small.tide is a saved graph (.tide), which has no step to run"),
        (("mlp", "--measure", "--clock=thread", "--threads=2"), "does not see the work of 2"),
        (("small.tide", "--from", "none.json"), "cannot read none.json"),
        (("small.tide", "--from", "t.json", "--isolated"), "--isolated and --from exclude each other"),
        (("small.tide", "--from", "t.json", "--steps=3"), "--steps goes with --measure or --isolated"),
        (("small.tide", "--clock=thread"), "--clock goes with --measure or --isolated"),
        (("mlp", "--measure", "--threads=0"), "--threads takes a whole number from 1, not 0"),
        (("mlp", "--isolated", "--machine=t4"), "--machine and --isolated exclude each other"),
        (
            ("mlp", *SIZES, "--from", "small.tide"),
            "small.tide is a saved graph (.tide): --from takes a profiler's trace",
        ),
        (("mlp", "--machine=H100-SXM-80GB", "--measure"), "exclude each other"),
        (("mlp", "--measure", "--first-step"), "--measure and --first-step exclude each other"),
        (("mlp", *SIZES, "--against=t4"), "--against goes with --measure, --isolated or --from"),
        (("mlp", *SIZES, "--machine=8xt4", "--machine=a100-pcie-40gb", "-o", "x.json"), "a single --machine"),
        (("mlp", *SIZES, "--machine=0xt4"), "at least one device"),
        (("mlp", *SIZES, "--machine", "-3xt4"), "-3xt4: the number of devices is a positive whole number"),
        (("mlp", *SIZES, "--machine=3.5xt4"), "3.5xt4: the number of devices is a positive whole number"),
        (("mlp", *SIZES, "--machine=t4", "--machine=Tesla T4"), "--machine T4 is given twice"),
        (("mlp", *SIZES, "--machine=8xt4", "--machine=1x8xt4"), "--machine 8 x T4 is given twice"),
        (("mlp", *SIZES, "--machine=zx81"), "tensortide time --list shows all"),
        (("mlp", *SIZES, "--machine=h1000"), "tensortide time --list shows all"),
        (("zx81", "--list"), "no device is called 'zx81'"),
        ((), "a target is missing"),
        (("mlp", *SIZES, "--ranks=4", "--machine=8xt4"), "8 x T4 has 8"),
        (
            ("mlp", *SIZES, "--machine=h100", "--strict"),
            "'h100' is ambiguous: it may be H100-SXM-80GB or H100-PCIe-80GB",
        ),
        (("mlp", *SIZES, "--machine=v100"), "'v100' is ambiguous: it may be V100-SXM-32GB"),
        (("no_such_model",), "no example"),
        (("mlp", "-o", "none/x.json"), "none does not exist"),
    ],
)
def test_what_cannot_be_is_one_clear_error(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused(folder, "time", *arguments)


def test_measured_times_that_are_remembered_are_taken_for_the_same_calls(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTIDE_MEASURED", str(tmp_path / "store"))
    target = str(folder / "small.tide")
    calls = [{"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "ts": 1, "dur": 9, "pid": 1, "tid": 1}]
    calls.append({"ph": "X", "cat": "cuda_runtime", "name": "launch", "ts": 2, "dur": 1, "pid": 1, "tid": 1})
    calls[-1]["args"] = {"correlation": 1}
    calls.append({"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 777, "pid": 0, "tid": 7})
    calls[-1]["args"] = {"correlation": 1}
    trace = {"deviceProperties": [{"name": "Tesla T4"}], "traceEvents": calls}
    (tmp_path / "t.json").write_text(json.dumps(trace))
    assert "wrote" in run(tmp_path, "time", target, "--from", "t.json", "--remember")
    shown: Any = json.loads(run(tmp_path, "time", target, "--machine=T4", "--json"))
    ops = shown["sections"]["time"]["tables"]["ops"]
    assert ops["time_ns"][ops["name"].index("aten.addmm")] > 777_000
    (file,) = (tmp_path / "store").iterdir()
    file.write_bytes(b"junk")
    code, _, said = called(tmp_path, "time", target, "--machine=T4")
    assert code == 0
    assert said.count("is no store of measured times") == 1
    assert "It is not used" in said
    file.unlink()
    assert "--remember goes with" in refused(tmp_path, "time", target, "--machine=T4", "--remember")


def test_a_measured_step_is_a_trace_of_its_ops(folder: Path, tmp_path: Path) -> None:
    written(tmp_path)
    run(tmp_path, "time", str(folder / "small.tide"), "--from", "times.csv", "--trace", "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["dur"] == 0.9 for e in events) >= 1


def test_a_prediction_stands_against_what_was_measured(folder: Path, tmp_path: Path) -> None:
    graph = load(folder / "small.tide")
    (tmp_path / "times.csv").write_text("".join(f"{i},{1000 * (i + 1)}\n" for i in range(len(graph))))
    arguments = ("time", str(folder / "small.tide"), "--from", "times.csv", "--against", "t4")
    shown: Any = json.loads(run(tmp_path, *arguments, "--json"))
    found = shown["sections"]["against"]
    kinds = found["tables"]["kinds"]
    measured = sum(1000 * (i + 1) for i in range(len(graph)))
    assert sum(kinds["measured_ns"]) == measured
    pairs = list(zip(kinds["predicted_ns"], kinds["measured_ns"], strict=True))
    assert [a - b for a, b in pairs] == kinds["difference_ns"]
    whole = found["tables"]["whole"]
    assert (whole["figure"], whole["predicted_ns"]) == (["Sum of op times"], [sum(a for a, _ in pairs)])
    assert whole["error_change"] == [pytest.approx(whole["predicted_ns"][0] / measured - 1)]
    text = run(tmp_path, *arguments)
    error = f"{100 * whole['error_change'][0]:+.1f} %"  # one sign, in the sentence and in the tables
    assert "predicted for T4" in text
    assert text.count(error) >= 2
    assert "Evictions" not in text


def test_nothing_is_written_where_an_option_does_not_apply_or_times_are_unknown(folder: Path, tmp_path: Path) -> None:
    target = str(folder / "small.tide")
    refused(tmp_path, "time", target, "--machine=t4", "--against=t4", "-o", "d.json", "--html", "d.html")
    refused(tmp_path, "time", target, "--machine=tpu v4", "--strict", "-o", "d.json", "--html", "d.html", status=3)
    assert not list(tmp_path.iterdir())


def test_durations_that_were_predicted_and_saved_are_shown_as_those_of_their_machine(
    folder: Path, tmp_path: Path
) -> None:
    target = shutil.copy(folder / "small.tide", tmp_path / "x.tide")
    first = run(tmp_path, "time", str(target), "--machine=T4", "-o", "x.durations.json", "--json")
    again = run(tmp_path, "time", str(target), "--json")
    tables: Any = [json.loads(shown)["sections"]["machines"]["tables"]["machines"] for shown in (first, again)]
    assert tables[0] == tables[1]
