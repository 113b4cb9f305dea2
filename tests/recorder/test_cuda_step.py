"""The CUDA step without a GPU: devices, kernels and answers, on any build of PyTorch."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import tensortide
from tensortide.cost import missing
from tensortide.errors import CaptureError, TensortideError
from tensortide.graph.model import Graph, Phase
from tensortide.recorder import capture
from tests.recorder.steps import Step, trained


def _net() -> torch.nn.Module:
    layers = (torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten())
    return torch.nn.Sequential(*layers, torch.nn.Dropout(0.1), torch.nn.Linear(8 * 36, 10))


def _names_no_device() -> Step:
    net = _net()
    x, y = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
    return trained(net, lambda: F.cross_entropy(net(x), y))


def _names_its_device() -> Step:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = _net().to(device)
    x, y = torch.randn(4, 3, 8, 8).to(device), torch.randint(10, (4,), device=torch.device(device, 0))
    return trained(net, lambda: F.cross_entropy(net(x), y))


def _ops(graph: Graph) -> list[str]:
    return [op.name for op in graph]


def test_a_workload_that_names_no_device_is_captured_as_one_that_names_cuda() -> None:
    moved, named = capture(_names_no_device, device="cuda"), capture(_names_its_device, device="cuda")
    assert _ops(moved) == _ops(named)
    assert Counter(s.nbytes for s in moved.storages if s.device == "cuda:0") == Counter(
        s.nbytes for s in named.storages if s.device == "cuda:0"
    )
    assert moved.index.main_device == named.index.main_device == "cuda:0"
    assert moved.meta.machine == tensortide.timing.DEFAULT_DEVICE
    on_cpu = {s.name.rpartition(".")[2] for s in moved.storages if s.device == "cpu" and s.name}
    assert on_cpu <= {"step", "num_batches_tracked"}  # counters, as after model.cuda()


def test_kernels_are_those_of_cuda() -> None:
    gpu, cpu = Counter(_ops(capture(_names_no_device, device="cuda"))), Counter(_ops(capture(_names_no_device)))
    for name in ("cudnn_batch_norm", "cudnn_batch_norm_backward", "native_dropout", "native_dropout_backward"):
        assert gpu[f"aten.{name}.default"] == 1
        assert cpu[f"aten.{name}.default"] == 0
    assert gpu["aten._foreach_sqrt.default"] == 1
    assert cpu["aten._foreach_sqrt.default"] == 0
    assert not missing(capture(_names_no_device, device="cuda"))


def test_everything_is_as_it_was_afterwards() -> None:
    names = ("is_available", "device_count", "Stream", "Event", "_lazy_init", "memory_allocated", "manual_seed_all")
    before = [getattr(torch.cuda, name) for name in names]
    available = torch.accelerator.is_available()
    capture(_names_its_device, device="cuda")
    assert [getattr(torch.cuda, name) for name in names] == before
    assert torch.accelerator.is_available() == available
    torch.manual_seed(0)
    assert torch.get_default_device() == torch.device("cpu")
    assert torch.autograd.is_multithreading_enabled()
    q = torch.randn(1, 1, 4, 8, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q).sum().backward()
    assert q.grad is not None


def test_what_stays_on_the_cpu_is_copied_where_the_program_says() -> None:
    def workload() -> Step:
        net = torch.nn.Linear(64, 64).cuda()
        data = torch.randn(32, 64).pin_memory()

        def step() -> Any:
            net(data.to("cuda", non_blocking=True)).sum().backward()
            net.zero_grad()

        return step

    graph = capture(workload, device="cuda")
    copies = [op for op in graph if op.name == "aten._to_copy.default"]
    assert [graph.storages[t.storage].device for op in copies for t in (*op.inputs, *op.outputs)] == ["cpu", "cuda:0"]
    assert sum(s.nbytes for s in graph.storages if s.device == "cpu") == 32 * 64 * 4


def test_tensors_of_two_devices_do_not_mix() -> None:
    def workload() -> Step:
        net, x = torch.nn.Linear(8, 8).cuda(), torch.randn(2, 8)
        return lambda: net(x)

    with pytest.raises(CaptureError, match="at least two devices"):
        capture(workload, device="cuda")


@pytest.mark.parametrize(
    ("machine", "dtype", "width", "masked", "kernel"),
    [
        ("A100-SXM-80GB", torch.float16, 64, False, "flash"),
        ("A100-SXM-80GB", torch.bfloat16, 100, False, "flash"),
        ("A100-SXM-80GB", torch.float32, 64, False, "efficient"),
        ("A100-SXM-80GB", torch.float32, 62, False, "math"),
        ("A100-SXM-80GB", torch.float16, 64, True, "efficient"),
        ("A100-SXM-80GB", torch.float16, 264, False, "efficient"),
        ("A100-SXM-80GB", torch.float64, 64, False, "math"),
        ("T4", torch.float16, 64, False, "efficient"),
        ("T4", torch.bfloat16, 64, False, "math"),
        ("L4", torch.float16, 256, False, "flash"),
        ("L4", torch.float16, 208, False, "efficient"),
    ],
)
def test_attention_is_chosen_by_dtype_width_mask_and_architecture(
    machine: str, dtype: torch.dtype, width: int, masked: bool, kernel: str
) -> None:
    def workload() -> Step:
        q = torch.randn(2, 4, 16, width, dtype=dtype, device="cuda", requires_grad=True)
        mask = torch.ones(16, 16, dtype=torch.bool, device="cuda") if masked else None
        return lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()

    ops = Counter(_ops(capture(workload, machine=machine)))
    for name in ("flash", "efficient", "cudnn"):
        full = f"aten._scaled_dot_product_{name}_attention"
        assert ops[f"{full}.default"] == ops[f"{full}_backward.default"] == (kernel == name)


def test_hopper_prefers_cudnn_unless_it_is_switched_off() -> None:
    def workload() -> Step:
        q = torch.randn(2, 4, 16, 64, dtype=torch.float16, device="cuda", requires_grad=True)
        return lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()

    def flash() -> Step:
        torch.backends.cuda.enable_cudnn_sdp(False)
        return workload()

    assert "aten._scaled_dot_product_cudnn_attention.default" in _ops(capture(workload, machine="H100-SXM-80GB"))
    assert "aten._scaled_dot_product_flash_attention.default" in _ops(capture(flash, machine="H100-SXM-80GB"))


def test_autocast_of_the_cpu_is_that_of_the_gpu_once_everything_is_moved_there() -> None:
    def halves() -> Any:
        model, x = torch.nn.Linear(16, 4), torch.randn(8, 16)

        def step() -> None:
            with torch.autocast("cpu", torch.bfloat16):
                model(x).sum().backward()

        return step

    graph = capture(halves, device="cuda")
    products = [op for op in graph if op.name.startswith("aten.addmm")]
    assert [op.outputs[0].dtype for op in products] == ["bfloat16"]


def test_autocast_and_scaler_are_those_of_cuda() -> None:
    def workload() -> Step:
        net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.LayerNorm(16)).cuda()
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
        x = torch.randn(8, 16, device="cuda")

        def step() -> Any:
            with torch.autocast("cuda", dtype=torch.float16):
                loss = net(x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        return step

    graph = capture(workload, device="cuda")
    dtypes = {op.name: op.outputs[0].dtype for op in graph if op.phase is Phase.FORWARD and op.outputs}
    assert dtypes["aten.addmm.default"] == "float16"
    assert dtypes["aten.native_layer_norm.default"] == "float32"  # by CUDA's list, not by the CPU's
    assert "aten._amp_foreach_non_finite_check_and_unscale_.default" in _ops(graph)


def test_a_scaler_has_a_scale_that_programs_can_divide_by() -> None:
    def workload() -> Step:
        x = torch.ones(2, device="cuda", requires_grad=True)
        scaler = torch.amp.GradScaler("cuda")

        def step() -> Any:
            scaler.scale(x.sum()).backward()
            return 1 / scaler.get_scale()

        return step

    assert capture(workload, device="cuda").meta.assumptions == ()  # its value is known


def test_loaders_load_on_the_cpu() -> None:
    def workload() -> Step:
        data = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=8, shuffle=True, pin_memory=True)
        net = torch.nn.Linear(4, 4)

        def step() -> Any:
            for (x,) in data:
                net(x).sum().backward()
            net.zero_grad()

        return step

    assert capture(workload, device="cuda").index.main_device == "cuda:0"


def test_backward_runs_whatever_is_in_it() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            assert x.is_cuda
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            assert gradient.is_cuda
            return gradient * torch.full((), 2.0, device=gradient.device)

    def workload() -> Step:
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8)).cuda()
        seen = []
        next(net.parameters()).register_hook(lambda gradient: seen.append(gradient.device))

        def step() -> Any:
            x = torch.randn(4, 8, device="cuda", requires_grad=True)
            y = Double.apply(checkpoint(net, x, use_reentrant=False))
            (slope,) = torch.autograd.grad(net(x).sigmoid().sum(), x, create_graph=True)
            (slope.pow(2).sum() + y.mean() + checkpoint(net, x, use_reentrant=True).sum()).backward()
            assert {device.type for device in seen} == {"cuda"}

        return step

    graph = capture(workload, device="cuda")
    assert set(graph.index.devices) == {"cuda:0"}
    recomputed = [op.name for op in graph if op.op.recompute]
    assert "aten.native_dropout.default" in recomputed


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_cudnns(kind: str) -> None:
    def workload() -> Step:
        net = getattr(torch.nn, kind)(8, 16, 2, batch_first=True, dropout=0.1, bidirectional=True).cuda()
        x = torch.randn(4, 10, 8, device="cuda")
        return lambda: net(x)[0].sum().backward()

    graph = capture(workload, device="cuda")
    (forward,) = (op for op in graph if op.name == "aten._cudnn_rnn.default")
    assert forward.outputs[0].shape == (4, 10, 32)
    assert forward.outputs[3].numel >= 4 * 10 * 2 * 2 * 16 * 4  # at least every output of every layer
    assert "aten._cudnn_rnn_backward.default" in _ops(graph)
    assert any("cuDNN" in text for text in graph.meta.assumptions)


def test_optimizers_are_fused_where_asked() -> None:
    def workload() -> Step:
        net = torch.nn.Linear(8, 8).cuda()
        optimizer = torch.optim.AdamW(net.parameters(), fused=True)

        def step() -> Any:
            net(torch.randn(4, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    graph = capture(workload, device="cuda")
    assert "aten._fused_adamw_.default" in _ops(graph)
    assert graph.index.devices.get("cpu", 0) == 0  # its counters are on the GPU


def test_a_model_and_its_inputs_are_moved() -> None:
    graph = capture(_net(), torch.randn(4, 3, 8, 8), loss="sum", optimizer="adam", device="cuda")
    assert sum(graph.storages[graph.tensors[n.tensor].storage].device == "cuda:0" for n in graph.named) >= 12
    assert graph.index.main_device == "cuda:0"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"device": "tpu"}, "cpu or cuda, not on 'tpu'"),
        ({"device": "cuda", "real": True}, "real tensors are where"),
        ({"device": "cuda", "machine": "TPU v4"}, "no GPU that PyTorch calls cuda"),
        ({"machine": "Z9000"}, "no device is called 'Z9000'"),
    ],
)
def test_impossible_devices_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(TensortideError, match=message):
        capture(_names_no_device, **how)


def test_a_machine_of_another_kind_only_times() -> None:
    assert capture(_names_no_device, machine="TPU v4").index.main_device == "cpu"


def test_scale_of_attention_is_that_of_the_width_before_padding() -> None:
    def workload() -> Step:
        q = torch.randn(2, 4, 16, 100, dtype=torch.float16, device="cuda")
        return lambda: F.scaled_dot_product_attention(q, q, q)

    (op,) = (op for op in capture(workload, device="cuda") if "flash_attention" in op.name)
    assert op.arguments["scale"] == pytest.approx(1 / math.sqrt(100))
    assert op.inputs[0].shape[-1] == 104


def test_a_program_may_call_the_autograd_engine_itself() -> None:
    def backward(loss: torch.Tensor) -> None:
        loss.backward(torch.ones_like(loss))

    def engine(loss: torch.Tensor) -> None:
        run: Any = torch.autograd.Variable._execution_engine
        gradients = (torch.ones_like(loss),)
        how = {"inputs": (), "allow_unreachable": True, "accumulate_grad": True}
        run.run_backward(tensors=(loss,), grad_tensors=gradients, keep_graph=False, create_graph=False, **how)

    def workload(run: Any) -> Any:
        net = torch.nn.Linear(8, 8)
        return lambda: run(net(torch.randn(4, 8)).square().mean())

    one, other = (capture(lambda run=run: workload(run), machine="t4") for run in (backward, engine))
    assert [(op.name, op.phase) for op in one] == [(op.name, op.phase) for op in other]
    assert Phase.BACKWARD in {op.phase for op in other}
