"""Records of other tools on the command line: traces, dumps, configuration files, and their formats written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tensortide.importers.g10.compare import compare
from tensortide.importers.g10.read import read_trace
from tensortide.importers.g10.results import read_liveness
from tests.cli.command import called, tensortide
from tests.importers.g10.example import write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT, body


def said(folder: Path, *arguments: str) -> str:
    done = called(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(folder: Path, *arguments: str) -> str:
    """What is said of a mistake, which must be the only thing that happens."""
    before = sorted(folder.rglob("*"))
    done = called(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sorted(folder.rglob("*")) == before
    assert re.fullmatch(r"error: [^\n]+\n(?:[^\n]+\n){0,3}", done.stderr)
    return done.stderr


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    for kind, text in (("forward", FORWARD), ("backward", BACKWARD), ("weight", WEIGHT)):
        (tmp_path / f"fx_graph_transformed_{kind}.py").write_text(text, "utf-8")
    return tmp_path


def config(folder: Path, *lines: str) -> str:
    names = [f"nn_model_input_{kind} fx_graph_transformed_{kind}.py" for kind in ("forward", "backward", "weight")]
    text = ["# one run", "output_folder results/net/pytorch8", "is_pytorch 1", "is_profiling 0", *names, *lines]
    (folder / "run.config").write_text("\n".join(text), "utf-8")
    return "run.config"


def facts(folder: Path, *arguments: str) -> Any:
    shown = json.loads(said(folder, "memory", *arguments, "--idle", "--json"))
    return shown["sections"]["idle"]["facts"]


def test_a_kernel_trace_is_seen_as_its_tool_sees_it(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace")
    found = facts(tmp_path, "trace")
    assert found["mode"] == "compat"
    assert found["op_sum_ns"] == 150_000
    assert found["peak_bytes"] == 17
    assert "durations recorded in trace" in said(tmp_path, "memory", "trace", "--idle")
    assert "kernel trace, read from a file" in said(tmp_path, "memory", "trace")


def test_what_is_exported_is_what_was_read(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace")
    said(
        tmp_path,
        *("capture", "trace", "--g10", "out/net/pytorch8", "--with-times"),
        *("--format", "config", "--format", "csv"),
    )
    assert len([path for path in (tmp_path / "out").rglob("*") if path.is_file()]) == 10
    again = read_trace(tmp_path / "out/net/pytorch8/statistics")
    first = read_trace(tmp_path / "trace")
    assert again.times is not None
    assert first.times is not None
    assert again.times.total_ns == first.times.total_ns
    assert not compare(again, tmp_path / "out/net/pytorch8/statistics").differences


def test_dumps_are_one_step_in_a_folder_and_by_name(dumps: Path) -> None:
    folder = facts(dumps, "./")
    parts = [f"--{kind}=fx_graph_transformed_{kind}.py" for kind in ("backward", "weight")]
    named = facts(dumps, "fx_graph_transformed_forward.py", *parts)
    assert folder == named
    assert folder["mode"] == "storage"
    assert "views follows from their names" in said(dumps, "memory", "./", "--idle")


def test_sizes_that_nobody_knows_are_told_and_can_be_given(tmp_path: Path) -> None:
    text = body('a: "f32[s0, 6]" = torch.ops.aten.mul.Tensor(primals_1, 2)', parameters='primals_1: "f32[s0, 6]"')
    (tmp_path / "fx_graph_transformed.py").write_text(text, "utf-8")
    told = said(tmp_path, "memory", "fx_graph_transformed.py", "--idle")
    assert "are unknown and count 0 bytes: no value for s0" in told
    assert "memory of an unknown device" in told
    assert facts(tmp_path, "fx_graph_transformed.py", "--set", "s0=4")["peak_bytes"] == 2 * 4 * 6 * 4
    assert "are unknown" in refused(tmp_path, "capture", "fx_graph_transformed.py", "--g10", "out")


def test_a_configuration_file_is_done_and_shown(dumps: Path) -> None:
    name = "run.config"
    for idle in ((), ("--idle",)):
        assert config(dumps, "GPU_memory_size_GB 16") == name
        assert "of the 16.00 GiB that the device has, which is enough." in said(dumps, "memory", name, *idle)
        small = said(dumps, "memory", config(dumps, "GPU_memory_size_GB 0.000000001"), *idle)
        assert "of the 1 B that the device has: " in small
        assert "too much." in small
    config(dumps, "GPU_memory_size_GB 16")
    assert "results/net/pytorch8" in said(dumps, "capture", name)
    statistics = dumps / "results/net/pytorch8/statistics"
    assert sorted(path.name for path in statistics.iterdir()) == [
        "kernels.config",
        "liveness_analysis.config",
        "tensors.config",
    ]
    assert read_liveness(statistics / "liveness_analysis.config")
    assert (dumps / "results/net/pytorch8_TensorPeriodLog.py").is_file()
    assert (dumps / "results/net/pytorch8_NNMemConsumptionLog.py").is_file()


def test_a_configuration_can_ask_for_measured_kernels(dumps: Path) -> None:
    name = config(dumps)
    (dumps / name).write_text((dumps / name).read_text().replace("is_profiling 0", "is_profiling 1"))
    assert "measured" in said(dumps, "memory", name, "--idle").split("\n\n")[0]


@pytest.mark.slow
def test_the_compilers_graphs_of_a_workload(tmp_path: Path) -> None:
    settings = ("--set", "layers=1", "--set", "hidden=32", "--set", "heads=2", "--set", "seq=16", "--set", "batch=2")
    done = tensortide(tmp_path, "capture", "gpt2", *settings, "--compiled", "-o", "compiled.tide")
    assert (done.returncode, done.stderr) == (0, "")
    found = facts(tmp_path, "compiled.tide")
    assert found["ops"] > 50
    assert found["peak_bytes"] > 0


def test_one_message_for_a_mistake(dumps: Path) -> None:
    write_trace(dumps / "trace")
    assert "line 8: unknown key colour" in refused(dumps, "memory", config(dumps, "colour 3"), "--idle")
    assert "capture once for each" in refused(dumps, "capture", "trace", "-o", "a.tide", "--g10", "out")
    assert "--with-times goes with --g10" in refused(dumps, "capture", "trace", "--with-times")
    assert "--compiled goes with a workload or a script" in refused(dumps, "capture", "trace", "--compiled")
    (dumps / "empty").mkdir()
    assert "empty is nothing that tensortide reads" in refused(dumps, "count", "empty")
