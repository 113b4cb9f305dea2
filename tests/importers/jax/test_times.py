"""Products of JAX are timed as those of PyTorch are: by their dimensions. No JAX is needed."""

from __future__ import annotations

from typing import Any

import pytest

from tensortide.graph import GraphBuilder
from tensortide.timing.families import works


def _work(name: str, left: tuple[int, ...], right: tuple[int, ...], out: tuple[int, ...], **arguments: Any) -> Any:
    b = GraphBuilder("one")
    x, w = b.input("x", left), b.parameter("w", right)
    b.output(b.op(f"jax.{name}", x, w, out=out, names=("lhs", "rhs"), arguments=arguments))
    (work,), _ = works(b.build())
    return work


def test_a_contraction_is_a_batch_of_products() -> None:
    numbers = (((3,), (1,)), ((0,), (0,)))
    work = _work("dot_general", (2, 3, 4, 8), (2, 8, 5), (2, 3, 4, 5), dimension_numbers=numbers)
    assert work.family.startswith("bmm")
    assert work.dims == (2, 12, 5, 8)
    assert work.dims[0] * work.dims[1] * work.dims[2] * work.dims[3] * 2 == work.matrix_flops


def test_what_contracts_nothing_is_no_product() -> None:
    work = _work("dot_general", (3,), (4,), (3, 4), dimension_numbers=(((), ()), ((), ())))
    assert not work.family.startswith("bmm")


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_a_product_of_patches(groups: int) -> None:
    layout = ((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))
    work = _work(
        "conv_general_dilated", (2, 8, 8, 6), (3, 3, 6 // groups, 4), (2, 6, 6, 4),
        dimension_numbers=layout, feature_group_count=groups, window_strides=(1, 1), lhs_dilation=(1, 1),
    )  # fmt: skip
    assert work.family.startswith("convolution")
    assert work.dims == (groups, 2 * 36, 4 // groups, 9 * 6 // groups)
