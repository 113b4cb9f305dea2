"""``tensortide liveness`` on what other tools recorded: traces, dumps, configuration files, and their formats."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tensortide.importers.g10.compare import compare
from tensortide.importers.g10.liveness import read_liveness
from tensortide.importers.g10.read import read_trace
from tests.cli.command import tensortide
from tests.importers.g10.example import write_trace
from tests.importers.inductor.dumps import BACKWARD, FORWARD, WEIGHT, body


def said(folder: Path, *arguments: str) -> str:
    done = tensortide(folder, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(folder: Path, *arguments: str) -> str:
    """What is said of a mistake, which must be the only thing that happens."""
    before = sorted(folder.rglob("*"))
    done = tensortide(folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
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


def test_a_kernel_trace_is_seen_as_its_tool_sees_it(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace")
    view = json.loads(said(tmp_path, "liveness", "trace", "--json"))
    assert view["mode"] == "compat"
    assert view["step_ns"] == 150_000
    assert view["peak"]["live_bytes"] == 17
    assert view["durations"] == "recorded in trace"
    assert "kernel trace, read from a file" in said(tmp_path, "memory", "trace")


def test_what_is_exported_is_what_was_read(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace")
    told = said(
        tmp_path,
        *("liveness", "trace", "--export", "out/net", "--run", "pytorch8", "--with-times"),
        *("--format", "config", "--format", "csv"),
    )
    written = re.findall(r"wrote (\S+)", told)
    assert len(written) == 10
    again = read_trace(tmp_path / "out/net/pytorch8/statistics")
    first = read_trace(tmp_path / "trace")
    assert again.times is not None
    assert first.times is not None
    assert again.times.total_ns == first.times.total_ns
    assert not compare(again, tmp_path / "out/net/pytorch8/statistics").differences


def test_dumps_are_one_step_in_a_folder_and_by_name(dumps: Path) -> None:
    folder = json.loads(said(dumps, "liveness", ".", "--json"))
    named = json.loads(
        said(
            dumps,
            *("liveness", "fx_graph_transformed_forward.py", "--backward", "fx_graph_transformed_backward.py"),
            *("--weight", "fx_graph_transformed_weight.py", "--json"),
        )
    )
    assert folder["ops"] == named["ops"]
    assert folder["peak"] == named["peak"]
    assert folder["mode"] == "storage"
    assert "views follows from their names" in "".join(folder["assumptions"])


def test_sizes_that_nobody_knows_are_told_and_can_be_given(tmp_path: Path) -> None:
    text = body('a: "f32[s0, 6]" = torch.ops.aten.mul.Tensor(primals_1, 2)', parameters='primals_1: "f32[s0, 6]"')
    (tmp_path / "fx_graph_transformed.py").write_text(text, "utf-8")
    told = said(tmp_path, "liveness", "fx_graph_transformed.py")
    assert "are unknown and count 0 bytes: no value for s0" in told
    assert "memory of an unknown device" in told
    bound = json.loads(said(tmp_path, "liveness", "fx_graph_transformed.py", "--set", "s0=4", "--json"))
    assert bound["peak"]["live_bytes"] == 2 * 4 * 6 * 4
    assert "are unknown" in refused(tmp_path, "liveness", "fx_graph_transformed.py", "--export", "out")


def test_a_configuration_file_is_done_and_shown(dumps: Path) -> None:
    told = said(dumps, "liveness", "--config", config(dumps, "GPU_memory_size_GB 16"))
    assert "of the 16.00 GiB that the device has" in told
    statistics = dumps / "results/net/pytorch8/statistics"
    assert sorted(path.name for path in statistics.iterdir()) == [
        "kernels.config",
        "liveness_analysis.config",
        "tensors.config",
    ]
    assert read_liveness(statistics / "liveness_analysis.config")
    assert (dumps / "results/net/pytorch8_TensorPeriodLog.py").is_file()
    assert (dumps / "results/net/pytorch8_NNMemConsumptionLog.py").is_file()


@pytest.mark.slow
def test_the_compilers_graphs_of_a_workload(tmp_path: Path) -> None:
    settings = ("--set", "layers=1", "--set", "hidden=32", "--set", "heads=2", "--set", "seq=16", "--set", "batch=2")
    view = json.loads(said(tmp_path, "liveness", "gpt2", *settings, "--compiled", "--json"))
    assert view["ops"] > 50
    assert view["peak"]["live_bytes"] > 0


def test_one_message_for_a_mistake(dumps: Path) -> None:
    write_trace(dumps / "trace")
    assert "a target, or --config FILE" in refused(dumps, "liveness")
    assert "a target, or --config FILE" in refused(dumps, "liveness", "trace", "--config", config(dumps))
    assert "line 8: unknown key colour" in refused(dumps, "liveness", "--config", config(dumps, "colour 3"))
    assert "leave out" in refused(dumps, "liveness", "--config", config(dumps), "--export", "out")
    assert "which has no step to run: --compiled goes with a workload" in refused(
        dumps, "liveness", "trace", "--compiled"
    )
    assert "--backward goes with a dump" in refused(
        dumps, "liveness", "mlp", "--backward", "fx_graph_transformed_backward.py"
    )
    (dumps / "empty").mkdir()
    assert "empty is nothing that tensortide reads" in refused(dumps, "count", "empty")
