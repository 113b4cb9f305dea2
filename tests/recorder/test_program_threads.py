"""Threads of a program that runs on fake tensors are on fake tensors, too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

import tensortide
from tensortide.graph import Graph
from tensortide.graph.model import Role


def parameters(graph: Graph) -> list[tuple[str, int]]:
    return [(each.device, each.nbytes) for each in graph.storages if each.role is Role.PARAMETER]


def test_weights_that_threads_put_on_the_gpu_are_those_of_the_step() -> None:
    def weight(columns: int) -> torch.Tensor:
        return torch.zeros(8, columns).to(device=0, dtype=torch.bfloat16)

    def workload() -> Any:
        with ThreadPoolExecutor(4) as pool:
            weights = [nn.Parameter(each) for each in pool.map(weight, [8] * 32)]
        inputs = torch.randn(4, 8, device="cuda", dtype=torch.bfloat16)

        def step() -> None:
            hidden = inputs
            for each in weights:
                hidden = hidden @ each
            hidden.sum().backward()

        return step

    graph = tensortide.capture(workload, machine="t4")
    assert parameters(graph) == [("cuda:0", 8 * 8 * 2)] * 32


def test_a_backward_pass_of_another_thread_runs_there() -> None:
    def workload() -> Any:
        layer = nn.Linear(8, 8, device="cuda")

        def step() -> None:
            layer(torch.randn(4, 8, device="cuda")).sum().backward()
            layer.zero_grad()

        with ThreadPoolExecutor(1) as pool:
            pool.submit(step).result()
        return step

    assert parameters(tensortide.capture(workload, machine="t4")) == [("cuda:0", 8 * 8 * 4), ("cuda:0", 8 * 4)]


def test_threads_that_load_data_are_on_real_tensors() -> None:
    class Rows(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> torch.Tensor:
            with ThreadPoolExecutor(1) as pool:
                row = pool.submit(torch.zeros, 8).result()
            assert type(row) is torch.Tensor
            return row

    def workload() -> Any:
        layer = nn.Linear(8, 8, device="cuda")
        batches = iter(DataLoader(Rows(), batch_size=2))
        return lambda: layer(next(batches).cuda()).sum().backward()

    assert parameters(tensortide.capture(workload, machine="t4")) == [("cuda:0", 8 * 8 * 4), ("cuda:0", 8 * 4)]
