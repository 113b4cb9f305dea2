"""Sizes of windowed results, against the shapes that PyTorch gives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from tensortide.expr import constant
from tensortide.formulas.lift import window_sizes

small = st.integers(1, 5)


def sizes_of(*tensors: Tensor, transposed: bool = False, **integers: int) -> list[int]:
    """All sizes that a result may have."""
    shapes = [[constant(size) for size in tensor.shape] for tensor in tensors]
    named = {name: [constant(number)] for name, number in integers.items()}
    return [int(size.value or 0) for size in window_sizes(shapes, named, transposed=transposed)]


@given(size=st.integers(5, 40), kernel=small, stride=small, padding=st.integers(0, 2), dilation=st.integers(1, 3))
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution(transposed: bool, size: int, kernel: int, stride: int, padding: int, dilation: int) -> None:
    reach = dilation * (kernel - 1) + 1
    assume(reach <= size and 2 * padding < reach)
    x, weight = torch.empty(1, 1, size, device="meta"), torch.empty(1, 1, kernel, device="meta")
    if transposed:
        result = F.conv_transpose1d(x, weight, stride=stride, padding=padding, dilation=dilation)
    else:
        result = F.conv1d(x, weight, stride=stride, padding=padding, dilation=dilation)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    assert result.shape[-1] == sizes_of(x, weight, transposed=transposed, **options)[0]


@given(size=st.integers(5, 40), kernel=small, stride=small)
def test_a_pooling_and_what_takes_steps(size: int, kernel: int, stride: int) -> None:
    x = torch.empty(1, 1, size, device="meta")
    assert F.avg_pool1d(x, kernel, stride).shape[-1] in sizes_of(x, kernel_size=kernel, stride=stride)
    assert F.avg_pool1d(x, kernel).shape[-1] in sizes_of(x, kernel_size=kernel)
    assert x.unfold(2, kernel, stride).shape[2] in sizes_of(x, size=kernel, step=stride)
    assert x[..., kernel::stride].shape[-1] in (0, *sizes_of(x, start=kernel, step=stride))


@given(size=st.integers(5, 20), kernel=small, stride=small)
def test_columns_of_an_image(size: int, kernel: int, stride: int) -> None:
    x = torch.empty(1, 1, size, size + 3, device="meta")
    shapes = [[constant(n) for n in x.shape]]
    named = {"kernel_size": [constant(kernel)] * 2, "stride": [constant(stride)] * 2}
    found = [expr.value for expr in window_sizes(shapes, named, transposed=False)]
    assert F.unfold(x, kernel, stride=stride).shape[-1] in found
