"""Arguments that an op does not read: those times a factor of 0, and those that it overwrites.

The oracle is the op itself: an argument full of NaN that leaves no trace in the result was not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.probe import cost_of

A, B, X = torch.ones(3, 4), torch.ones(4, 5), torch.ones(4)
BATCHES = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
SUMS: dict[str, tuple[torch.Tensor, ...]] = {
    "addmm": (torch.ones(3, 5), A, B),
    "addmv": (torch.ones(3), A, X),
    "addbmm": (torch.ones(3, 5), *BATCHES),
    "baddbmm": (torch.ones(2, 3, 5), *BATCHES),
    "addr": (torch.ones(3, 5), torch.ones(3), torch.ones(5)),
    "_addmm_activation": (torch.ones(5), A, B),
}
"""A term and two factors of a product."""
factors = st.sampled_from([0, 1, 0.5])


def assert_reads_what_matters(run: Callable[..., Any], *given: torch.Tensor) -> None:
    """Compare the bytes read with those of the tensors whose values show in what ``run`` returns."""
    read = 0
    for place in range(len(given)):
        poisoned = [each.clone() for each in given]
        poisoned[place].fill_(math.nan)
        read += given[place].nbytes * bool(run(*poisoned).isnan().any())
    assert cost_of(run, *[each.clone() for each in given]).read_bytes == read


@pytest.mark.parametrize("name", SUMS)
@given(beta=factors, alpha=factors, inplace=st.booleans())
def test_a_factor_of_0_switches_a_read_off(name: str, beta: float, alpha: float, inplace: bool) -> None:
    if name == "baddbmm" and alpha == 0:
        return  # on few elements PyTorch has a loop of its own in place of BLAS: see the next test
    in_place = inplace and not name.startswith("_")
    run = getattr(torch.ops.aten, name + "_" * in_place)
    assert_reads_what_matters(lambda *tensors: run(*tensors, beta=beta, alpha=alpha), *SUMS[name])


@pytest.mark.parametrize("beta", [0, 1])
def test_products_of_a_batch_times_0_are_not_read(beta: int) -> None:
    term, one, other = torch.ones(2, 3, 80), torch.ones(2, 3, 64), torch.ones(2, 64, 80)
    assert_reads_what_matters(lambda *tensors: torch.baddbmm(*tensors, beta=beta, alpha=0), term, one, other)


@pytest.mark.parametrize("name", SUMS)
def test_a_product_times_0_is_not_computed(name: str) -> None:
    run = getattr(torch.ops.aten, name)
    cost = cost_of(lambda: run(*SUMS[name], alpha=0))
    assert cost.macs == 0
    if name not in ("addr", "_addmm_activation"):  # pointwise, and followed by an activation
        assert cost.flops == 0


OVERWRITTEN: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (lambda out, a, b: torch.mm(a, b, out=out), (torch.ones(3, 5), A, B)),
    "addmm": (lambda out, *given: torch.addmm(*given, beta=0, out=out), (torch.ones(3, 5), *SUMS["addmm"])),
    "add": (lambda out, a: torch.add(a, a, out=out), (torch.ones(3, 4), A)),
    "cat": (lambda out, a, b: torch.cat([a, b], out=out), (torch.ones(6, 4), A, A.clone())),
    "copy_": (lambda a, b: a.copy_(b), (torch.ones(3, 4), A)),
    "fill_": (lambda a: a.fill_(1), (torch.ones(3, 4),)),
    "zero_": (lambda a: a.zero_(), (torch.ones(3, 4),)),
    "normal_": (lambda a: a.normal_(), (torch.ones(3, 4),)),
    "add of nothing": (lambda a, b: torch.add(a, b, alpha=0), (A, A.clone())),  # 0 times NaN shows
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_what_is_overwritten_is_not_read(name: str) -> None:
    run, tensors = OVERWRITTEN[name]
    assert_reads_what_matters(run, *tensors)


def test_every_sum_that_has_both_factors_is_tested() -> None:
    others = {"sparse_sampled_addmm", "_sparse_addmm", "sspaddmm", "_sparse_semi_structured_addmm", "hamming_window"}
    schemas = torch._C._jit_get_all_schemas()
    named = {each.name for each in schemas if {"alpha", "beta"} <= {argument.name for argument in each.arguments}}
    assert {name.removeprefix("aten::").removesuffix("_") for name in named} == SUMS.keys() | others
