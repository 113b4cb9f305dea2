"""Every op of PyTorch's own table of examples, with all that can be evicted gone between its forward pass, its backward
pass and the reading of results."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from tensortide.run.budget import Budget
from tensortide.run.runtime import Runtime
from tests.conftest import hide
from tests.run.conftest import MANY, TABLE_OF_OPS
from tests.run.same import UNLIMITED, identical

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CHUNKS = 4
UNDEFINED = frozenset({"empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_"})
"""Ops whose results are whatever the memory contained, besides those with ``empty`` in their names."""
ROUNDED = frozenset({"masked_fill", "max", "median", "min", "nanmedian", "prod"})
"""Ops whose gradients autograd rounds otherwise under any dispatch mode (docs/run.md)."""


class Empty(TorchDispatchMode):
    """Passes every op on."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def played(op: Any, sample: Any, between: Callable[[], None] = lambda: None) -> list[Any]:
    """Results of ``op`` for a ``sample``, and the gradients of its inputs."""
    torch.manual_seed(0)
    copies = tree_map(_copy, (sample.input, sample.args, sample.kwargs))
    given, args, kwargs = tree_map(lambda x: x * 1 if isinstance(x, torch.Tensor) and x.requires_grad else x, copies)
    results = tree_leaves(op.op(given, *args, **kwargs))
    del given, args, kwargs
    between()
    ends = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad and x.layout == torch.strided]
    leaves = [x for x in tree_leaves(copies) if isinstance(x, torch.Tensor) and x.requires_grad]
    if ends and leaves:
        sums = [x.abs().sum() if x.is_complex() else x.sum() * 1.5 + x.square().sum() for x in ends]
        results += torch.autograd.grad(sums, leaves, allow_unused=True)
    between()
    return results


def _copy(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    made = value.detach() * 1 if value.is_floating_point() else value.detach().clone()
    return made.requires_grad_(value.requires_grad)


def evict_all(runtime: Runtime) -> None:
    runtime.promote()
    engine = runtime.engine
    for storage in list(engine.pool):
        if engine.resident[storage] and not engine.locks[storage]:
            engine.evict(storage)


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(itertools.starmap(_same, zip(one, other, strict=True)))


def _same(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor):
        return repr(one) == repr(other)
    if one.layout != torch.strided:
        return bool(one.layout == other.layout)
    return identical(one, other)


def cases(chunk: int) -> Iterator[tuple[Any, Any]]:
    """A sample of each op in a ``chunk`` of the table: the first of one, the second of the next, if it has two.

    The table's own way to its samples looks for the test that asks, among all modules, and takes most of the time.
    """
    seed = pytest.importorskip("torch.testing._internal.common_utils").set_rng_seed
    ops = pytest.importorskip(TABLE_OF_OPS).op_db
    for number, op in enumerate(ops[chunk::CHUNKS]):
        if op.name in UNDEFINED or "empty" in op.name or not op.supports_dtype(torch.float32, "cpu"):
            continue
        seed(number)
        samples = op.sample_inputs_func(op, "cpu", torch.float32, op.supports_autograd)
        yield from ((op, sample) for sample in [*itertools.islice(samples, 1 + number % 2)][-1:])


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_op_is_recomputed_bit_for_bit(chunk: int) -> None:
    pytest.importorskip("expecttest")  # the table asks for it
    compared = evicted = 0
    for number, (op, sample) in enumerate(cases(chunk)):
        if len(gc.get_objects()) > MANY:  # some samples import libraries
            hide()
        try:
            plain = played(op, sample)
        except Exception:  # noqa: BLE001  # samples for other devices, and for errors
            continue
        if not same(plain, played(op, sample)):  # it does not repeat
            continue
        with Budget(UNLIMITED, compiled=number % 2 == 0) as budget:
            runtime = budget.runtime
            assert runtime is not None
            found = played(op, sample, lambda at=runtime: evict_all(at))  # type: ignore[misc]
        evicted += budget.usage.evictions
        compared += 1
        if not same(plain, found):
            assert op.name in ROUNDED, (op.name, op.variant_test_name, sample)
            with Empty():
                assert same(played(op, sample), found)
    assert compared > 100
    assert evicted > 2 * compared
