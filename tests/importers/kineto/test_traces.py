"""A profiler's trace with shapes is a step without its model: the same products, phases, modules, and times."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, schedule

from tensortide import capture
from tensortide.cost import count
from tensortide.errors import GraphError, TimesError
from tensortide.examples import find
from tensortide.graph import Graph, Phase, Role, validate
from tensortide.importers.door import open as opened
from tensortide.importers.imported import Imported
from tensortide.importers.kineto.calls import read_calls
from tensortide.importers.kineto.graph import graph_of
from tensortide.timelines import timeline
from tests.cli.command import run

GPU = Path(__file__).parents[2] / "data/kineto/gpt2.json.gz"
TRANSFORMER = {"batch": 3, "seq": 20, "layers": 2, "hidden": 48, "heads": 2, "vocab": 70}
"""Sizes that differ from each other: equal shapes of different tensors are what a trace does not tell apart."""
STATE = (Role.PARAMETER, Role.OPTIMIZER_STATE, Role.BUFFER, Role.GRADIENT)


def profiled(name: str, path: Path, **settings: Any) -> Path:
    """Trace two steps of a built-in example on the CPU."""
    torch.set_num_threads(1)
    step = find(name).load()(**settings)
    plan = schedule(wait=1, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_modules=True, with_stack=True,
                 profile_memory=True, schedule=plan) as profiler:  # fmt: skip
        for _ in range(4):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return path


@functools.cache
def of_gpu() -> Imported:
    """The stored trace of a GPU."""
    return opened(GPU)


def working_peak(graph: Graph) -> int:
    """Most bytes of activations and temporaries at once, in the forward and backward pass."""
    line = timeline(graph, lifetimes="last_use")
    working = line.resident - sum(series for role, series in line.by_role.items() if role in STATE)
    trained = [op.phase in (Phase.FORWARD, Phase.BACKWARD) for op in graph.ops]
    return int(working[trained].max())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", {**TRANSFORMER, "layers": 1}),
        pytest.param("bert", TRANSFORMER, marks=pytest.mark.slow),
        pytest.param("resnet18_cifar", {"batch": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_trace_has_the_products_of_the_capture(name: str, settings: dict[str, int], tmp_path: Path) -> None:
    found = opened(profiled(name, tmp_path / "x", **settings))
    graph, real = found.graph, capture(find(name).load(), hyperparameters=settings, real=True)
    traced, counted = count(graph), count(real)
    assert traced.total.macs == counted.total.macs
    for phase in ("forward", "backward"):
        assert traced.by_phase[phase].macs == counted.by_phase[phase].macs
        assert traced.by_phase[phase].flops == pytest.approx(counted.by_phase[phase].flops, rel=0.02)
    assert working_peak(graph) == pytest.approx(working_peak(real), rel=0.15)
    assert found.durations is not None
    assert all(found.durations.ns[op] > 0 for op in range(len(graph)) if graph[op].name == "aten.addmm.default")
    validate(graph)


def test_a_trace_of_a_gpu_has_what_the_capture_has() -> None:
    """GPT-2 of 4 layers, batch 4, sequence 256, traced on an H200: figures of the capture for that GPU."""
    found = of_gpu()
    graph = found.graph
    counted = count(graph)
    assert counted.total.macs == 210_376_065_024
    assert counted.by_phase["backward"].macs == 140_250_710_016
    assert counted.total.is_lower_bound
    assert {group.name for group in counted.coverage.missing} >= {"kineto._foreach_lerp_"}
    line = timeline(graph)
    at_peak = {role: int(series[line.peak_op]) for role, series in line.by_role.items()}
    assert at_peak[Role.PARAMETER] == 4 * (50257 * 768 + 256 * 4 * 768 + 4 * (12 * 768**2 + 13 * 768) + 2 * 768)
    assert at_peak[Role.ACTIVATION] + at_peak[Role.TEMPORARY] == pytest.approx(787.2 * 2**20, rel=0.01)
    assert "the profiler counted 1.59 GiB allocated at most" in graph.meta.assumptions
    assert graph.index.main_device == "cuda:0"
    assert "GPT2_0.Sequential_0.Block_3.Linear_15" in {module.path for module in graph.modules}
    backward = {graph[i].module for i, op in enumerate(graph.ops) if op.phase is Phase.BACKWARD}
    assert any(path.endswith("Linear_15") for path in backward)
    assert found.durations is not None
    assert 15e6 < sum(found.durations.ns) < 40e6


def test_a_step_is_chosen_by_its_number() -> None:
    assert len(opened(GPU, profiler_step=4).graph) == len(of_gpu().graph)
    with pytest.raises(TimesError, match="has no ProfilerStep#3; its steps: 4"):
        opened(GPU, profiler_step=3)


def test_a_trace_without_shapes_says_how_to_record_them(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::relu", "ts": 1.0, "dur": 7.0, "pid": 1, "tid": 1, "args": {}}
    path = tmp_path / "x"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [event]}))
    with pytest.raises(TimesError, match=r"record_shapes=True.*--step TARGET"):
        opened(path)


def call(name: str, at: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": 5, "pid": 1, "tid": 1, "args": args}


def tensor(*shape: int) -> dict[str, Any]:
    return {"Input Dims": [list(shape)], "Input type": ["float"], "Concrete Inputs": [""]}


@pytest.mark.parametrize(
    "args",
    [
        {"Input Dims": [[-1, 3]], "Input type": ["float"]},
        {"Input Dims": [[1] * 1000], "Input type": ["float"]},
        {"Input Dims": 5, "Input type": ["float"]},
        {"Input Dims": [[]], "Input type": ["Scalar"], "Concrete Inputs": ["(" * 5000]},
        {"Input Dims": [[]], "Input type": ["Scalar"], "Concrete Inputs": ["__import__('os').abort()"]},
    ],
)
def test_arguments_that_are_none_are_unknown(args: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "x"
    events = [call("aten::relu", 1, tensor(4, 4)), call("aten::exp", 10, args)]
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    graph = graph_of(read_calls(path), "x").graph
    assert [graph[i].name for i in range(2)] == ["aten.relu.default", "kineto.exp"]
    assert count(graph).total.unknown_ops == 1


@pytest.mark.parametrize("size", [10**6, 10**12, 10**18])
def test_a_large_shape_takes_no_memory(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [call("aten::relu", 1, tensor(size))]}))
    reading = read_calls(path)
    if 4 * size < 1 << 60:
        assert graph_of(reading, "x").graph.storages[0].nbytes == 4 * size
    else:
        with pytest.raises(GraphError, match="4 EiB"):
            graph_of(reading, "x")


def test_two_traces_are_compared_as_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert "times and no step" not in run(capsys, "compare", GPU, GPU)


def test_sizes_beyond_any_memory_make_an_op_unknown(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 4)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        layer(torch.ones(2, 3))
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event.get("args", {}).get("Input Dims"):
            event["args"]["Input Dims"][0] = [10**15, 10**15]
    path.write_text(json.dumps(trace))
    assert count(opened(path).graph).total.is_lower_bound
