"""TorchScript in captured programs: on fake tensors its functions run the ops that they run for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide import capture
from tensortide.errors import CaptureError
from tensortide.graph import Graph
from tensortide.recorder.script import ScriptOptions
from tests.recorder.script_run import forked

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),
]


def _half(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tensor(0.5)


def _gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    z = x + bias
    return _half(z) * (1.0 + torch.erf(z / 1.41421))


def _scripted() -> Callable[..., Any]:
    return torch.jit.script(_gelu)


def _traced() -> Callable[..., Any]:
    return torch.jit.trace(_gelu, (torch.ones(2, 4), torch.ones(4)))  # type: ignore[no-any-return]


def _step(make: Callable[[], Callable[..., Any]], device: str) -> Callable[[], Callable[[], Any]]:
    def workload() -> Callable[[], Any]:
        function, bias = make(), torch.zeros(4, device=device, requires_grad=True)
        return lambda: function(torch.ones(2, 4, device=device), bias).sum().backward()

    return workload


def _computed(graph: Graph) -> list[str]:
    """Names of the ops but for reads of TorchScript's own constants, which are numbers on fake tensors."""
    return [op.name for op in graph if op.name != "aten._local_scalar_dense.default"]


@pytest.mark.parametrize("make", [_scripted, _traced])
def test_torchscript_runs_the_ops_on_fake_tensors_that_it_runs_for_real(make: Callable[[], Any]) -> None:
    ran, faked = (_computed(capture(_step(make, "cpu"), real=real)) for real in (True, False))
    assert "aten.erf.default" in ran
    assert faked == ran


@pytest.mark.parametrize("make", [_scripted, _traced])
def test_torchscript_runs_on_a_pretended_gpu_and_assumes_nothing(make: Callable[[], Any]) -> None:
    graph = capture(_step(make, "cuda"), device="cuda")
    erf = [op for op in graph if op.name == "aten.erf.default"]
    assert [graph.storages[op.outputs[0].storage].device for op in erf] == ["cuda:0"]
    assert not graph.meta.decisive


def test_a_function_that_is_scripted_in_a_capture_computes_afterwards() -> None:
    def workload() -> Callable[[], Any]:
        function = torch.jit.script(_gelu)
        bias = torch.zeros(4, requires_grad=True)
        return lambda: function(torch.ones(2, 4), bias).sum().backward()

    capture(workload, real=False)
    x, bias = torch.ones(2, 4), torch.zeros(4)
    assert torch.equal(torch.jit.script(_gelu)(x, bias), _gelu(x, bias))


def test_a_list_that_torchscript_writes_to_a_tensor_is_an_error_on_fake_tensors() -> None:
    def of_list(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 2.0])

    def workload() -> Callable[[], Any]:
        function, weight = torch.jit.script(of_list), torch.ones(2, requires_grad=True)
        return lambda: function(weight).sum().backward()

    with pytest.raises(CaptureError, match="of_list writes a list to a tensor in TorchScript"):
        capture(workload, real=False)


SHARDED = """
import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda())
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW)
for i in range(3):
    model(torch.ones(2, 4, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_a_script_may_import_the_optimizers_that_pytorch_scripts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SHARDED)
    ran = forked(tmp_path, "train.py", options=ScriptOptions(device="cuda", ranks=2))
    assert ran.graph is not None, ran.err
    assert {"c10d.allreduce_.default", "c10d.broadcast_.default"} <= {op.name for op in ran.graph}
