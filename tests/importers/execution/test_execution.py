"""Execution traces of PyTorch: the published one, real runs against captures of the same step, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, record_function

import tensortide
from tensortide.cost import count
from tensortide.errors import TensortideError, TimesError
from tensortide.graph import Graph, Phase, Role
from tensortide.importers.execution.graph import LAST_USE


def _fixture(reference: Path, name: str) -> Path:
    return reference / "timing" / "fixtures" / f"{name}_mlp_cpu.json.gz"


def test_both_published_traces_of_one_run_make_a_step_with_times(reference: Path) -> None:
    step = tensortide.open(_fixture(reference, "execution_trace"), kineto=_fixture(reference, "kineto"))
    assert step.durations is not None
    assert step.durations.unknown == 0
    assert "33 of 33 ops found by number and name" in step.durations.source
    mm = next(i for i, op in enumerate(step.graph) if op.name == "aten.addmm.default")
    assert step.durations.ns[mm] == 19_407_166  # as the profiler wrote it, in microseconds: 19407.166
    assert LAST_USE in step.graph.meta.assumptions
    assert count(step.graph).total.macs == 8 * (64 * 128 + 128 * 10) * 2 + 8 * 128 * 10  # no gradient of the input


def small() -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)
    )
    return model, torch.optim.SGD(model.parameters(), 0.1), torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))


def workload() -> Any:
    model, optimizer, x, y = small()

    def step() -> None:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two marked steps of a small network, in an execution trace and a profiler's trace of one run."""
    folder = tmp_path_factory.mktemp("traces")
    step = workload()
    step()
    observer = ExecutionTraceObserver().register_callback(str(folder / "et.json"))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, execution_trace_observer=observer) as profiler:
        for number in range(2):
            with record_function(f"ProfilerStep#{number}"):
                step()
    profiler.export_chrome_trace(str(folder / "kineto.json"))
    return folder / "et.json", folder / "kineto.json"


def _shape(graph: Graph) -> list[tuple[str, object, object]]:
    """Ops but views with the shapes of their operands; numbers are operands without dimensions, or no tensors."""
    ops = [op for op in graph if not op.is_view]
    return [(op.name, [t.shape for t in op.inputs if t.shape], [t.shape for t in op.outputs]) for op in ops]


def test_a_real_run_is_the_step_that_is_captured(traces: tuple[Path, Path]) -> None:
    captured = tensortide.capture(workload)
    step = tensortide.open(traces[0], kineto=str(traces[1]))
    assert _shape(step.graph) == _shape(captured)
    assert count(step.graph).total.flops == count(captured).total.flops
    roles = {storage.role for storage in step.graph.storages}
    assert roles >= {Role.PARAMETER, Role.GRADIENT, Role.ACTIVATION, Role.INPUT, Role.BUFFER}
    parameters = sum(int(s.nbytes) for s in step.graph.storages if s.role is Role.PARAMETER)
    assert parameters == sum(int(s.nbytes) for s in captured.storages if s.role is Role.PARAMETER)
    assert {op.op.phase for op in step.graph} == {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER}
    assert step.durations is not None
    assert step.durations.unknown == 0
    assert min(step.durations.ns) > 0


def test_its_parameters_are_those_of_the_model(traces: tuple[Path, Path]) -> None:
    model = small()[0]
    sizes = count(tensortide.open(traces[0]).graph).sizes
    assert sizes.parameters == sizes.trainable == sum(p.numel() for p in model.parameters())


def test_one_of_several_steps_is_read(traces: tuple[Path, Path]) -> None:
    steps = [tensortide.open(traces[0], profiler_step=number).graph for number in (0, 1)]
    assert _shape(steps[0]) == _shape(steps[1]) == _shape(tensortide.open(traces[0]).graph)
    with pytest.raises(TimesError, match=r"no ProfilerStep#7; its steps: 0, 1"):
        tensortide.open(traces[0], profiler_step=7)


def test_ops_that_do_not_join_are_counted_and_named(traces: tuple[Path, Path], tmp_path: Path) -> None:
    trace = json.loads(traces[1].read_text())
    lost = [e for e in trace["traceEvents"] if e.get("name") == "aten::convolution_backward"]
    trace["traceEvents"] = [e for e in trace["traceEvents"] if e not in lost]
    (tmp_path / "k.json").write_text(json.dumps(trace))
    step = tensortide.open(traces[0], kineto=str(tmp_path / "k.json"))
    assert step.durations is not None
    assert step.durations.measurement is not None
    assert step.durations.unknown == 1
    assert "has no call number" in next(iter(step.durations.measurement.stand_ins.values()))


def test_traces_of_two_runs_are_refused(traces: tuple[Path, Path], tmp_path: Path) -> None:
    other = {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1, "args": {}}]}
    (tmp_path / "k.json").write_text(json.dumps(other))
    with pytest.raises(TimesError, match=r"is of another run: of \d+ ops of the execution trace none"):
        tensortide.open(traces[0], kineto=str(tmp_path / "k.json"))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("[]}", "it has no nodes"),
        ('[{"id": 1}]}', "node 0 is no node of an execution trace: .*name"),
        ('[{"id": 1, "name": "x", "ctrl_deps": 1, "inputs"', "no execution trace of PyTorch .*where the file ends"),
    ],
)
def test_a_damaged_trace_is_one_clear_error(nodes: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "et.json").write_text(f'{{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": {nodes}')
    with pytest.raises(TensortideError, match=message):
        tensortide.open(tmp_path / "et.json")
