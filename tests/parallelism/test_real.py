"""Transforms of the step of one process, beside steps that PyTorch itself divides, captured as one of several ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tensortide import capture
from tensortide.graph import Graph, Role
from tensortide.graph.communication import kind_of, moves_data, payload_bytes
from tensortide.parallelism import Degrees, per_rank, product_flops

RANKS, WIDTH, BATCH, SEQUENCE, HEADS = 4, 64, 8, 16, 8


class Attention(nn.Module):
    """(B, S, width) -> (B, S, width), without biases. ``heads`` are those of this rank."""

    def __init__(self, heads: int = HEADS) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            layer(x).view(*x.shape[:2], self.heads, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], self.heads * (WIDTH // HEADS)))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """(B, S, width) -> (B, S, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, heads: int = HEADS) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention(heads)
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


def training(wrap: Callable[[nn.Module], nn.Module], batch: int, heads: int = HEADS) -> Callable[[], Any]:
    model = wrap(nn.Sequential(nn.Linear(WIDTH, WIDTH), Block(heads)))
    optimizer, x = torch.optim.Adam(model.parameters(), foreach=False), torch.randn(batch, SEQUENCE, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def single() -> Callable[[], Any]:
    return training(lambda model: model, BATCH)


def replicated() -> Callable[[], Any]:
    dist.init_process_group("gloo")
    return training(
        lambda model: nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), BATCH // RANKS
    )


def fully_sharded() -> Callable[[], Any]:
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Module) -> nn.Module:
        assert isinstance(model, nn.Sequential)
        for layer in model:
            fully_shard(layer)
        return fully_shard(model)  # type: ignore[return-value]

    dist.init_process_group("gloo")
    return training(wrap, BATCH // RANKS)


def hybrid_sharded() -> Callable[[], Any]:
    """Shards in groups of two ranks, each of which has all."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    def wrap(model: nn.Module) -> nn.Module:
        assert isinstance(model, nn.Sequential)
        mesh = init_device_mesh("cpu", (RANKS // 2, 2), mesh_dim_names=("replicate", "shard"))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)  # type: ignore[return-value]

    dist.init_process_group("gloo")
    return training(wrap, BATCH // RANKS)


def by_columns_and_rows() -> Callable[[], Any]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    columns, rows = ColwiseParallel(), RowwiseParallel()

    def wrap(model: nn.Module) -> nn.Module:
        assert isinstance(model, nn.Sequential)
        mesh = init_device_mesh("cpu", (RANKS,))
        parallelize_module(model, mesh, {"0": RowwiseParallel(input_layouts=Replicate())})
        for block in list(model)[1:]:
            plan = {f"attention.{name}": columns for name in ("query", "key", "value")}
            parallelize_module(block, mesh, {**plan, "attention.out": rows, "mlp.up": columns, "mlp.down": rows})
        return model

    dist.init_process_group("gloo")
    return training(wrap, BATCH, HEADS // RANKS)


def moved(graph: Graph) -> Counter[tuple[str, str]]:
    """Payload by kind of collective and phase."""
    found: Counter[tuple[str, str]] = Counter()
    for op in graph:
        if moves_data(op.name):
            found[kind_of(op.name) or "", op.phase.value] += payload_bytes(op)
    return found


def held(graph: Graph, role: Role) -> int:
    return sum(int(s.nbytes) for s in graph.storages if s.role is role and s.birth is None and s.death is None)


@pytest.fixture(scope="module")
def whole() -> Graph:
    return capture(single, real=True)


def test_replicas_are_those_of_distributed_data_parallel(whole: Graph) -> None:
    real = capture(replicated, ranks=RANKS)
    ours = per_rank(whole, Degrees(data=RANKS)).graph
    assert moved(ours) == moved(real)
    assert product_flops(ours) == product_flops(real)
    assert held(ours, Role.PARAMETER) == held(real, Role.PARAMETER)


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_stage_3_is_that_of_fully_sharded_data_parallel(whole: Graph) -> None:
    real = capture(fully_sharded, ranks=RANKS)
    ours = per_rank(whole, Degrees(data=RANKS, zero=3)).graph
    assert moved(ours) == moved(real)
    assert sum(moved(ours).values()) == 3 * held(whole, Role.PARAMETER)
    assert product_flops(ours) == product_flops(real)
    for role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
        assert held(ours, role) == held(real, role)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_groups_of_stage_3_are_those_of_a_hybrid_mesh(whole: Graph) -> None:
    """Parameters are gathered and gradients scattered in the group that shards, and parts averaged over the groups."""
    real = capture(hybrid_sharded, ranks=RANKS)
    ours = per_rank(whole, Degrees(data=RANKS, zero=3, zero_group=2)).graph
    assert moved(ours) == moved(real)
    assert moved(ours)["all_reduce", "backward"] == held(whole, Role.PARAMETER) // 2
    for role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
        assert held(ours, role) == held(real, role)


def test_tensor_ranks_are_those_of_column_and_row_parallel_layers(whole: Graph) -> None:
    real = capture(by_columns_and_rows, ranks=RANKS)
    ranks = per_rank(whole, Degrees(tensor=RANKS))
    assert not ranks.replicated
    message = BATCH * SEQUENCE * WIDTH * 4
    ours = moved(ranks.graph)
    assert moved(real)["all_reduce", "forward"] == ours["all_reduce", "forward"] == 3 * message
    assert ours["all_reduce", "backward"] == 2 * message
    assert product_flops(ranks.graph) == product_flops(real)
    for role in (Role.PARAMETER, Role.OPTIMIZER_STATE):
        assert held(ranks.graph, role) == held(real, role)
