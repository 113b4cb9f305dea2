"""``tensortide memory --idle`` as a user runs it: what it says, what it writes, and how it fails."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tensortide.cli import main
from tensortide.graph import OUTSIDE, Call, Graph, Loop, Op, Phase, Role, Storage, Tensor, load, save
from tensortide.reports.sections import idle
from tensortide.timelines import idleness
from tensortide.timing import Durations, identity, load_durations, save_durations
from tests.cli.command import called, fails
from tests.graphs import path_of


def inside(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What the verb prints, run in this process."""
    capsys.readouterr()
    with contextlib.chdir(folder), contextlib.suppress(SystemExit):
        main(["memory", "--idle", *arguments])
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def error_of(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of a mistake, which must be the only thing that happens."""
    before = sorted(folder.iterdir())
    with contextlib.chdir(folder), pytest.raises(SystemExit) as exited:
        main(["memory", "--idle", *arguments])
    said = capsys.readouterr()
    assert exited.value.code == 2
    assert said.out == ""
    assert sorted(folder.iterdir()) == before
    return said.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("liveness")
    shutil.copy(path_of("gpt2_cpu"), path / "gpt2.tide")
    graph = load(path / "gpt2.tide")
    ns = tuple(1000 * (1 + i % 7) for i in range(len(graph)))
    save_durations(Durations(ns, "a clock", "measured", graph=identity(graph)), path / "times.json")
    return path


def test_it_advises_and_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "FIGURES", ("live", "intervals"))
    files = ["--figure", "all.png", "--trace", "t.json", "--csv", "lives.csv", "--html", "pages/of/page.html"]
    done = called(folder, "memory", "gpt2.tide", "--idle", "--durations", "times.json", *files)
    assert (done.returncode, done.stderr) == (0, "")
    for told in (
        "durations a clock",
        "of memory-time is inactive",
        "Memory-time by role",
        "Hideable",
        "Worth recomputing",
    ):
        assert told in done.stdout
    for name in ("all.png", "t.json", "lives.csv", "pages/of/page.html"):
        assert f"wrote {name}" in done.stdout
        assert (folder / name).stat().st_size > 1000
    assert "Worth moving" not in done.stdout  # a few kilobytes each
    graph = load(folder / "gpt2.tide")
    assert len((folder / "lives.csv").read_text().splitlines()) == 1 + len(graph.storages)


def test_figures_go_into_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "FIGURES", ("lifetimes",))
    text = inside(folder, capsys, "gpt2.tide", "--figure", "drawn", "--top", "0")
    assert "wrote drawn\n" in text
    assert {path.name for path in (folder / "drawn").iterdir()} == {"lifetimes.png", "lifetimes.svg"}
    assert (folder / "drawn" / "lifetimes.png").read_bytes().startswith(b"\x89PNG")


def test_json_is_the_analysis(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load(folder / "gpt2.tide")
    ns = [1000 * (1 + i % 7) for i in range(len(graph))]
    shown: Any = json.loads(inside(folder, capsys, "gpt2.tide", "--durations", "times.json", "--json"))
    facts, found = shown["sections"]["idle"]["facts"], idleness(graph, ns)
    assert facts["active_byte_ns"] == found.total.active_byte_ns
    assert facts["op_sum_ns"] == sum(ns)
    assert facts["peak_bytes"] == int(found.live.max())
    assert (facts["mode"], facts["link"]) == ("storage", "pcie4")
    options = ("--json", "--mode", "compat", "--link", "2GB/s", "--machine", "H100-SXM-80GB")
    compat: Any = json.loads(inside(folder, capsys, "gpt2.tide", *options))
    facts = compat["sections"]["idle"]["facts"]
    assert (facts["mode"], facts["link"], facts["storages"]) == ("compat", "2GB/s", len(graph.tensors))
    assert "H100" in compat["subtitle"][-1]


def test_two_settings_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = inside(folder, capsys, "mlp", "--compare", "batch=256", "--set", "batch=64")
    assert "batch=64" in text.split("B: mlp")[0]
    assert "batch=256" in text.split("B: mlp")[1]
    both: Any = json.loads(inside(folder, capsys, "mlp", "--compare", "gpt2.tide", "--json"))
    assert [line.split()[1] for line in both["subtitle"]] == ["mlp", "gpt2"]
    figures = both["sections"]["idle"]["tables"]["figures"]
    assert figures["a"][figures["name"].index("ops")] < figures["b"][figures["name"].index("ops")]


def test_the_page_and_the_trace_of_a_report_have_durations(folder: Path) -> None:
    files = ("--html", "made/report.html", "--trace", "timed.json", "--quiet")
    done = called(folder, "report", "gpt2.tide", "--durations", "times.json", *files)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "made" / "report.html").stat().st_size > 1000
    trace = json.loads((folder / "timed.json").read_text())
    assert "time: a clock" in trace["otherData"]["subtitle"]
    assert "Worth moving" not in done.stdout  # a few kilobytes each
    ops = {event["args"]["op"]: event for event in trace["traceEvents"] if "op" in event.get("args", {})}
    graph = load(folder / "gpt2.tide")
    ns = load_durations(folder / "times.json", graph).ns
    assert [round(1000 * ops[i]["dur"]) for i in range(len(graph))] == list(ns)
    done = called(folder, "report", "gpt2.tide", "--machine", "A100-SXM-80GB")
    assert "predicted for NVIDIA A100" in done.stdout


def test_loops_are_written_out(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = Graph(
        ops=tuple(Op(0, (), (i,), Phase.FORWARD, loop=0) for i in range(2)),
        calls=(Call("test.make.default"),),
        tensors=tuple(Tensor(i, "float32", (2,), (1,)) for i in range(2)),
        storages=tuple(Storage(8, "cpu", Role.TEMPORARY, i, i + 1) for i in range(2)),
        loops=(Loop("again", OUTSIDE, 5),),
    )
    save(graph, folder / "looped.tide")
    shown: Any = json.loads(inside(folder, capsys, "looped.tide", "--json"))
    facts = shown["sections"]["idle"]["facts"]
    assert (facts["ops"], facts["storages"]) == (10, 10)


def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no link is called 'floppy'" in error_of(folder, capsys, "gpt2.tide", "--link", "floppy")
    assert "exclude each other" in error_of(
        folder, capsys, "gpt2.tide", "--machine", "A100-SXM-80GB", "--durations", "times.json"
    )
    assert "times.json" in error_of(folder, capsys, "mlp", "--durations", "times.json")
    assert "the graph has cpu" in error_of(folder, capsys, "gpt2.tide", "--device", "cuda:0")
    assert "ends in .png" in error_of(folder, capsys, "gpt2.tide", "--figure", "a.doc")
    assert "does not exist" in error_of(folder, capsys, "gpt2.tide", "--csv", "nowhere/a.csv")
    assert "--idle and --against exclude each other" in error_of(folder, capsys, "gpt2.tide", "--against", "mlp")
    assert "--idle and --allocator exclude each other" in error_of(folder, capsys, "gpt2.tide", "--allocator", "cuda")
    for option, value in (("--link", "pcie3"), ("--mode", "compat"), ("--compare", "batch=2")):
        assert f"{option} goes with --idle" in fails(capsys, "memory", "mlp", option, value)
