"""Memory of a step on a pretended GPU, against what was measured on real ones and against arithmetic."""

from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tensortide
from tensortide.graph.model import Role
from tensortide.memory import reserve, workspace_bytes
from tensortide.recorder import capture
from tensortide.recorder.blas_workspaces import captured_bytes
from tensortide.recorder.pretended import Gpu
from tensortide.reports.sections import Step as Shown
from tensortide.reports.sections import sections_of
from tensortide.timing import device

Step = Callable[[], Any]
MIB = 2**20


def _published(reference: Path, kernel: str, size: str) -> int:
    with (reference / "memory" / "kernel_memory.csv").open(newline="") as file:
        wanted = (kernel, "huggingface", "full", size)
        return next(
            int(row["value_bytes"])
            for row in csv.DictReader(file)
            if (row["kernel"], row["provider"], row["mode"], row["x_value"]) == wanted
        )


def test_cross_entropy_takes_what_was_measured(reference: Path) -> None:
    def workload() -> Step:
        x = torch.randn(8 * 2048, 4096, device="cuda", requires_grad=True)
        target = torch.randint(4096, (8 * 2048,), device="cuda")
        return lambda: F.cross_entropy(x, target).backward()

    found = reserve(capture(workload, machine="A100-SXM-80GB")).peak_allocated
    assert found == _published(reference, "cross_entropy", "4096")


def test_a_gated_mlp_takes_what_was_measured_with_the_workspace_of_blas(reference: Path) -> None:
    def workload() -> Step:
        gate, up, down = (nn.Linear(*s, bias=False) for s in ((4096, 11008), (4096, 11008), (11008, 4096)))
        net = nn.ModuleList((gate, up, down)).cuda().to(torch.bfloat16)
        x = torch.randn(4, 1024, 4096, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        gradient = torch.randn_like(x, requires_grad=False)

        def step() -> Any:
            net[2](F.silu(net[0](x)) * net[1](x)).backward(gradient, retain_graph=True)

        return step

    graph = capture(workload, machine="A100-SXM-80GB")
    assert "aten.silu_backward.default" in {op.name for op in graph}
    assert reserve(graph).peak_allocated == _published(reference, "swiglu", "1024")


@pytest.mark.parametrize(
    ("machine", "nbytes"),
    [
        ("A100-SXM-80GB", 8_519_680),
        ("T4", 8_519_680),
        ("H100-SXM-80GB", 32 * MIB),
        ("b200", 32 * MIB),
        ("MI300X", 128 * MIB),
    ],
)
def test_workspace_of_blas_is_pytorchs_default(machine: str, nbytes: int) -> None:
    assert captured_bytes(Gpu.of(device(machine))) == nbytes


def test_workspace_of_blas_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    assert captured_bytes(Gpu.of(device("H100-SXM-80GB"))) == 8_519_680
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    assert captured_bytes(Gpu.of(device("H100-SXM-80GB"))) == 0


def _trained() -> Step:
    net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
    optimizer, x = torch.optim.Adam(net.parameters()), torch.randn(64, 256, device="cuda")

    def step() -> Any:
        net(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_each_thread_that_multiplies_has_a_workspace() -> None:
    both, one = capture(_trained, device="cuda"), capture(nn.Linear(8, 8), torch.randn(2, 8), device="cuda")
    assert [s.nbytes for s in both.storages if s.role is Role.LIBRARY] == [8_519_680] * 2
    assert [s.nbytes for s in one.storages if s.role is Role.LIBRARY] == [8_519_680]


@pytest.mark.slow
def test_a_script_has_them_too(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "net = torch.nn.Linear(8, 8).to('cuda' if torch.cuda.is_available() else 'cpu')\n"
        "optimizer = torch.optim.Adam(net.parameters())\n"
        "for _ in range(4):\n"
        "    net(torch.randn(2, 8).to(net.weight.device)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
    )
    file = tmp_path / "step.tide"
    command = [sys.executable, "-m", "tensortide", "capture", "--device", "cuda", "-o", str(file), "--", sys.executable]
    subprocess.run([*command, str(script)], check=True, timeout=120, capture_output=True)
    graph = tensortide.open(file).graph
    assert [s.nbytes for s in graph.storages if s.role is Role.LIBRARY] == [8_519_680] * 2


def test_the_first_line_says_which_device_it_speaks_of() -> None:
    gpu, cpu = Shown(capture(_trained, machine="H100-SXM-80GB")), Shown(capture(nn.Linear(8, 8), torch.randn(2, 8)))
    assert gpu.document().subtitle[0].startswith("one training step on cuda:0 of H100-SXM-80GB")
    assert cpu.document().subtitle[0].startswith("one inference step on cpu")


def test_a_step_on_a_gpu_is_headed_by_its_allocators_counters() -> None:
    step = Shown(capture(_trained, device="cuda"))
    totals = next(section for section in sections_of(step) if section.key == "cost")
    found = reserve(step.graph)
    facts = {fact.key: fact.value for block in totals.blocks for fact in getattr(block, "rows", ())}
    assert facts["steady_allocated_bytes"] == found.peak_allocated
    assert facts["steady_reserved_bytes"] == found.peak_reserved
    assert found.peak_reserved % (2 * MIB) == 0
    assert facts["peak_bytes"] <= found.peak_allocated <= facts["peak_bytes"] + 512 * len(step.graph.storages)


def test_kernels_of_the_cpu_take_nothing_on_a_gpu() -> None:
    def workload() -> Step:
        conv, x = nn.Conv2d(3, 8, 3).cuda(), torch.randn(2, 3, 8, 8, device="cuda")
        lstm, y = nn.LSTM(8, 8).cuda(), torch.randn(4, 2, 8, device="cuda")

        def step() -> Any:
            (conv(x).sum() + lstm(y)[0].sum()).backward()

        return step

    line = tensortide.timeline(capture(workload, device="cuda"))
    taken = {line.graph[i].name for i, nbytes in enumerate(line.workspace.tolist()) if nbytes}
    assert taken <= {"aten.convolution.default", "aten.convolution_backward.default"}


def _taken_by(channels: int, kernel: int, *, last: bool = False, trains: bool = True, **options: Any) -> dict[str, int]:
    """Workspace of a convolution of two images of 8 x 8 to 32 channels, and of its backward pass, by op."""

    def workload() -> Step:
        layout: dict[str, Any] = {"memory_format": torch.channels_last if last else torch.contiguous_format}
        conv = nn.Conv2d(channels, 32, kernel, padding=kernel // 2, bias=False, **options).cuda()
        conv = conv.to(**layout)
        images = torch.randn(2, channels, 8, 8, device="cuda").to(**layout).requires_grad_()
        conv.requires_grad_(trains)
        return lambda: conv(images).sum().backward()

    graph = capture(workload, machine="A100-SXM-80GB")
    taken = workspace_bytes(graph, "cuda:0").tolist()
    return {op.name: nbytes for op, nbytes in zip(graph, taken, strict=True) if nbytes}


FORWARD, BACKWARD = "aten.convolution.default", "aten.convolution_backward.default"


def _operands(channels: int) -> int:
    return 4 * (2 * channels * 64 + 32 * channels * 9 + 2 * 32 * 64)


def test_a_convolution_of_tensor_cores_has_its_operands_in_nhwc() -> None:
    copies = _operands(16)
    assert _taken_by(16, 3) == {FORWARD: copies, BACKWARD: 2 * copies}
    assert _taken_by(16, 3, trains=False) == {FORWARD: copies, BACKWARD: copies}


def test_products_and_grouped_convolutions_are_computed_as_they_lie() -> None:
    assert _taken_by(16, 1) == _taken_by(16, 3, groups=16) == {}


def test_convolutions_that_lie_as_tensor_cores_want_them_copy_nothing() -> None:
    assert _taken_by(16, 3, last=True) == {}


def test_the_three_channels_of_an_image_are_converted_for_the_gradient_of_the_weight_alone() -> None:
    assert _taken_by(3, 3) == {BACKWARD: _operands(3)}
    assert _taken_by(3, 3, trains=False) == {}


def test_memory_of_a_convolution_net_grows_with_the_batch_as_was_measured(reference: Path) -> None:
    with (reference / "memory" / "cuda_peaks.csv").open(newline="") as file:
        published = {line["id"]: int(line["value_bytes"]) for line in csv.DictReader(file)}
    few, many = (
        reserve(
            capture("vgg", hyperparameters={"batch": batch, "optimizer": "sgd"}, machine="A100-SXM-80GB")
        ).peak_reserved
        for batch in (64, 128)
    )  # published with Adam, whose states the difference does not have
    assert many - few == pytest.approx(published["gmn-vgg16-b128"] - published["gmn-vgg16-b64"], rel=0.1)
