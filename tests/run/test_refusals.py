"""Ops that a budget cannot follow are refused in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import tensortide
from tensortide.errors import RunError


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


COLLECTIVES: dict[str, Callable[[Tensor], Any]] = {
    "c10d.broadcast_": lambda tensor: dist.broadcast(tensor, 0),
    "c10d.allreduce_": dist.all_reduce,
    "c10d.allgather_": lambda tensor: dist.all_gather([torch.empty_like(tensor)], tensor),
    "_c10d_functional.all_reduce": lambda tensor: torch.ops._c10d_functional.all_reduce(tensor, "sum", "0"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_communication_is_refused(name: str, group: None) -> None:
    tensor = torch.ones(8)
    before = tensor.clone()
    with pytest.raises(RunError) as caught, tensortide.budget("1MiB"):
        COLLECTIVES[name](tensor)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{name}.default communicates: ")
    assert "outside of `with tensortide.budget(...)`" in str(caught.value)
    assert torch.equal(tensor, before)
    dist.all_reduce(tensor)


def test_a_barrier_writes_nothing(group: None) -> None:
    with tensortide.budget("1MiB"):
        dist.barrier()


@pytest.mark.parametrize("inference", [False, True])
def test_other_threads_and_inference_mode_are_as_they_were(inference: bool) -> None:
    found: list[Tensor] = []

    def work() -> None:
        with torch.inference_mode(inference), tensortide.budget("1MiB"):
            found.append(torch.ones(64).mul_(3).add(1).sum())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    work()
    assert [float(value) for value in found] == [256.0, 256.0]
