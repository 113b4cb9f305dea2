"""Ops whose writes a budget cannot follow are refused in one line; what only returns new tensors takes part."""

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


def _fill(x: Tensor) -> None:
    x.fill_(7)


WRITERS = {
    "declared": ("fill_it(Tensor(a!) x) -> ()", _fill),
    "out": ("fill_it.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", lambda x, out: out.copy_(x)),
    "inferred": ("fill_it(Tensor x) -> ()", _fill),
    "inferred-in-place": ("fill_it_(Tensor x) -> Tensor", lambda x: x.fill_(7).clone()),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_ops_of_unknown_namespaces_that_write_are_refused(writer: str) -> None:
    schema, kernel = WRITERS[writer]
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT") as library:
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CompositeExplicitAutograd")
        name, _, overload = schema.partition("(")[0].partition(".")
        op = getattr(getattr(torch.ops.tensortide_tests, name), overload or "default")
        tensor = torch.ones(8)
        with pytest.raises(RunError) as caught, tensortide.budget("1MiB"):
            op(tensor, **({"out": tensor} if overload else {}))
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith(f"{op} writes memory: ")
        assert "'tensortide_tests'" in str(caught.value)
        assert torch.equal(tensor, torch.ones(8))
        with pytest.raises(RunError, match="writes memory"), tensortide.budget("1MiB"):
            op(tensor, **({"out": tensor} if overload else {}))  # not only the first time


@pytest.fixture
def doubled() -> Iterator[Callable[[Tensor], Tensor]]:
    with torch.library._scoped_library("tensortide_tests", "FRAGMENT"):
        op = torch.library.custom_op(
            "tensortide_tests::doubled", lambda x: x * 2, mutates_args=(), schema="(Tensor x) -> Tensor"
        )
        op.register_autograd(lambda ctx, gradient: gradient * 2)
        yield op


def test_custom_ops_that_return_new_tensors_are_recomputed(doubled: Callable[[Tensor], Tensor]) -> None:
    def gradient() -> Tensor:
        weight = torch.linspace(0, 1, 4096, requires_grad=True)
        x = weight
        for _ in range(12):
            x = doubled(x.sin()).cos()
        x.sum().backward()
        assert weight.grad is not None
        return weight.grad

    expected = gradient()
    with tensortide.budget(12 * 4096 * 4) as memory:
        found = gradient().clone()
    assert memory.usage.recomputations > 0
    assert torch.equal(found, expected)


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
