"""Costs of JAX's primitives on Graphs built by hand, against counts by brute force. No JAX is needed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tensortide.cost import Cost, count
from tensortide.graph import GraphBuilder, Out
from tests.importers.jax.loops import convolution, transposed

SPEC = ((0, 1, 2), (0, 1, 2), (0, 1, 2))
"""Batch, features, sites; the kernel: outputs, inputs, sites."""


def cost(
    name: str, inputs: Mapping[str, Sequence[int]], out: Sequence[int], dtype: str = "float32", **arguments: Any
) -> Cost:
    b = GraphBuilder("one")
    handles = [b.input(key, shape, dtype) for key, shape in inputs.items()]
    b.output(b.op(f"jax.{name}", *handles, out=Out(tuple(out)), names=tuple(inputs), arguments=arguments))
    found = count(b.build(), strict=True).total.cost
    assert isinstance(found, Cost)
    return found


def conv(lhs: Sequence[int], rhs: Sequence[int], out: Sequence[int], **arguments: Any) -> int:
    given = {"window_strides": (1,), "lhs_dilation": (1,), "rhs_dilation": (1,), "dimension_numbers": SPEC, **arguments}
    return cost("conv_general_dilated", {"lhs": lhs, "rhs": rhs}, out, **given).macs


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (1, 1), (2, 0)])
@pytest.mark.parametrize(("dilation", "groups"), [(1, 1), (2, 1), (1, 3)])
def test_a_convolution_and_its_gradients_cost_the_same(
    stride: int, low: int, high: int, dilation: int, groups: int
) -> None:
    n, c, f, size, k = 2, 6, 9, 11, 3
    sites = (size + low + high - (k - 1) * dilation - 1) // stride + 1
    want = convolution(n, c, f, size, k, stride=stride, low=low, high=high, dilation=dilation, groups=groups)
    steps = {"window_strides": (stride,), "rhs_dilation": (dilation,)}
    assert conv((n, c, size), (f, c // groups, k), (n, f, sites), **steps) == want
    # as JAX writes them: the input's gradient has the strides as dilation of what comes back, the kernel turned
    back = {"lhs_dilation": (stride,), "rhs_dilation": (dilation,), "gradient_of": "input"}
    assert conv((n, f, sites), (c, f // groups, k), (n, c, size), **back) == want
    # the weight's gradient sums over the batch, which stands where features do
    of_weight = {"rhs_dilation": (stride,), "window_strides": (dilation,), "gradient_of": "weight"}
    weight_spec = ((1, 0, 2), (0, 1, 2), (1, 0, 2))
    made = conv((n, c, size), (f, n, sites), (f, c // groups, k), **of_weight, dimension_numbers=weight_spec)
    assert made == want


def test_a_transposed_convolution_counts_its_input_and_so_do_its_gradients() -> None:
    n, c, f, size, k = 2, 4, 3, 5, 4
    want, large = transposed(n, c, f, size, k), 10
    assert conv((n, c, size), (f, c, k), (n, f, large), lhs_dilation=(2,)) == want
    assert conv((n, f, large), (c, f, k), (n, c, size), window_strides=(2,), gradient_of="input") == want
    spec = ((1, 0, 2), (0, 1, 2), (1, 0, 2))
    back = {"lhs_dilation": (2,), "gradient_of": "weight", "dimension_numbers": spec}
    assert conv((n, c, size), (f, n, large), (f, c, k), **back) == want


def test_a_contraction_counts_every_pair_once() -> None:
    batch, m, k, n = 3, 4, 5, 6
    numbers = (((2,), (1,)), ((0,), (0,)))
    found = cost("dot_general", {"lhs": (batch, m, k), "rhs": (batch, k, n)}, (batch, m, n), dimension_numbers=numbers)
    assert found.macs == sum(1 for _ in itertools.product(range(batch), range(m), range(k), range(n)))
    assert found.elementwise_flops == 0


def test_a_contraction_over_nothing_is_multiplication() -> None:
    found = cost("dot_general", {"lhs": (3,), "rhs": (4,)}, (3, 4), dimension_numbers=(((), ()), ((), ())))
    assert (found.macs, found.elementwise_flops) == (0, 12)


def test_every_row_of_a_ragged_product_meets_one_matrix() -> None:
    numbers = ((((1,), (1,)), ((), ())), (0,), (0,))
    found = cost(
        "ragged_dot_general", {"lhs": (7, 4), "rhs": (3, 4, 5), "sizes": (3,)}, (7, 5),
        ragged_dot_dimension_numbers=numbers,
    )  # fmt: skip
    assert found.macs == 7 * 4 * 5
    assert not found.exact


def _merge_sort(n: int) -> int:
    """Comparisons of merge sort in the worst case, by its recurrence."""
    return 0 if n < 2 else _merge_sort(n // 2) + _merge_sort(n - n // 2) + n - 1


@pytest.mark.parametrize("n", [1, 2, 4, 5, 64])
def test_sort_compares_as_merge_sort_in_the_worst_case(n: int) -> None:
    assert cost("sort", {"x0": (3, n)}, (3, n), dimension=1).comparisons == 3 * _merge_sort(n)


@pytest.mark.parametrize(("name", "each"), [("cumsum", 1), ("cumlogsumexp", 5)])
def test_a_running_sum_takes_one_step_less_than_there_are_elements(name: str, each: int) -> None:
    rows = [list(itertools.accumulate(range(8))) for _ in range(3)]
    steps = sum(len(row) - 1 for row in rows)
    assert cost(name, {"x0": (3, 8)}, (3, 8), axis=1).elementwise_flops == each * steps


@pytest.mark.parametrize(("power", "want"), [(1, 0), (2, 1), (3, 2), (4, 2), (7, 4), (8, 3), (-2, 2)])
def test_integer_powers_multiply_by_binary_powering(power: int, want: int) -> None:
    assert cost("integer_pow", {"x0": (5,)}, (5,), y=power).elementwise_flops == 5 * want


def test_reductions_combine_all_but_one_element() -> None:
    assert cost("reduce_sum", {"x0": (4, 6)}, (4,), axes=(1,)).elementwise_flops == 4 * 5
    assert cost("reduce_max", {"x0": (4, 6)}, (4,), axes=(1,)).comparisons == 4 * 5
    assert cost("reduce_sum", {"x0": (4, 6)}, (4,), dtype="int32", axes=(1,)).elementwise_flops == 0


def test_windows_combine_all_but_one_of_their_elements() -> None:
    found = cost("reduce_window_max", {"x0": (1, 8, 8, 1)}, (1, 4, 4, 1), window_dimensions=(1, 2, 3, 1))
    assert found.comparisons == 16 * 5


def test_lookups_read_the_selected_rows_alone() -> None:
    b = GraphBuilder("lookup")
    table, ids = b.parameter("table", (1000, 8)), b.input("ids", (5, 1), "int32")
    b.output(b.op("jax.gather", table, ids, out=(5, 8), names=("operand", "indices")))
    found = count(b.build(), strict=True).total.cost
    assert (found.read_bytes, found.written_bytes) == (5 * 4 + 5 * 8 * 4, 5 * 8 * 4)


def test_collectives_share_the_work_of_combining() -> None:
    found = cost("psum", {"x0": (8, 4)}, (8, 4), axes=("d",), group_size=4)
    assert found.elementwise_flops == 8 * 4 * 3 // 4
    assert cost("all_gather", {"x0": (2, 4)}, (8, 4), group_size=4).flops == 0


def test_a_view_moves_nothing() -> None:
    b = GraphBuilder("view")
    x = b.input("x", (4, 6))
    y = b.op("jax.reshape", x, out=Out((24,), view_of=x))
    b.output(b.op("jax.transpose", y, out=Out((24,), view_of=x)))
    assert count(b.build(), strict=True).total.cost.bytes == 0


def test_a_primitive_without_a_rule_is_unknown() -> None:
    b = GraphBuilder("kernel")
    b.output(b.op("jax.pallas_call", b.input("x", (4,)), out=(4,)))
    total = count(b.build()).total
    assert total.unknown_ops
    assert functools.reduce(lambda a, c: a or c.cost is None, count(b.build()).costs, False)
