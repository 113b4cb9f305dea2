"""A pretended GPU answers for itself: its name and number, streams, generators, and the tensors on it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tensortide.recorder import capture
from tests.recorder.steps import Step


@pytest.mark.parametrize("make", [torch.ones, torch.empty, torch.zeros, torch.randn])
def test_tensors_are_on_the_gpu_that_they_name(make: Any) -> None:
    """A rank may name its own GPU without choosing it; values of small tensors are known, those of others are not."""

    def workload() -> Step:
        own = torch.device("cuda", 1)
        weight = torch.ones(2).to(own).requires_grad_()
        places = {each.device for each in (make(2, device=own), make(64, 64, device=own), weight)}
        assert places == {own}

        def step() -> Any:
            loss = (make(2, device=own) * weight).sum()
            loss.backward()
            return loss

        return step

    assert set(capture(workload, device="cuda").index.devices) == {"cuda:1"}


def test_the_gpu_answers_for_itself() -> None:
    def workload() -> Step:
        cuda = torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        torch.manual_seed(0)
        cuda.manual_seed_all(0)
        cuda.set_device(0)
        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        start.record()
        with cuda.stream(cuda.Stream()), cuda.device(0):
            cuda.current_stream().synchronize()
        end.record()
        cuda.synchronize()
        assert start.elapsed_time(end) > 0
        assert (cuda.device_count(), cuda.current_device()) == (1, 0)
        assert cuda.get_device_name() == "H100-SXM-80GB"
        assert cuda.get_device_capability("cuda:0") == (9, 0)
        assert cuda.get_device_properties(0).total_memory == cuda.mem_get_info()[1] == 80 * 2**30
        assert cuda.is_bf16_supported()
        assert cuda.max_memory_allocated() == 0
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        x = torch.randn(4, device="cuda", requires_grad=True)
        assert x.device == torch.device("cuda", 0)
        assert x.is_cuda

        def step() -> Any:
            x.sum().backward()
            assert x.grad is not None
            assert x.grad.is_cuda

        return step

    graph = capture(workload, machine="H100-SXM-80GB")
    assert set(graph.index.devices) == {"cuda:0"}
    assert any("used GPU memory" in text for text in graph.meta.assumptions)


def test_a_gpu_has_a_number() -> None:
    """Scripts for several processes name their device by their local rank."""

    def workload() -> Step:
        net = torch.nn.Linear(4, 4).to(0)
        torch.nn.Linear(4, 4).cuda(0)
        x = torch.randn(2, 4).to(0, non_blocking=True) + torch.zeros(4, device=0)
        assert torch.device(0) == x.device == torch.device("cuda", 0)
        assert net.weight.is_cuda
        return lambda: net(x.cuda(0)).sum().backward()

    assert set(capture(workload, device="cuda").index.devices) == {"cuda:0"}


def test_generators_and_streams_are_those_of_the_gpu() -> None:
    def workload() -> Step:
        generator = torch.Generator(device="cuda").manual_seed(0)
        assert generator.device == torch.device("cuda", 0)
        assert isinstance(generator, torch.Generator)
        assert torch.Generator().device == torch.device("cpu")
        net = torch.nn.DataParallel(torch.nn.Linear(4, 4).cuda())
        torch.cuda.memory._record_memory_history()

        def step() -> Any:
            x = torch.randn(2, 4, device="cuda", generator=generator)
            x.record_stream(torch.cuda.current_stream())
            net(x).sum().backward()

        return step

    graph = capture(workload, device="cuda")
    assert set(graph.index.devices) == {"cuda:0"}
    assert graph[0].name == "aten.randn.generator"
    assert type(torch.Generator()) is torch.Generator
