"""Costs of primitives of JAX's experimental modules, on Graphs built by hand, against counts by brute force."""

from __future__ import annotations

import itertools

import pytest

from tensortide.cost.rules.recurrent import LSTM, Layer
from tests.importers.jax.test_rules import cost


def test_a_sparse_product_counts_the_stored_elements() -> None:
    given = {"data": (5,), "indices": (5, 2), "rhs": (4, 7)}
    found = cost("bcoo_dot_general", given, (3, 7), dimension_numbers=(((1,), (0,)), ((), ())))
    assert (found.macs, found.exact) == (5 * 7, False)
    batched = {"data": (2, 5), "indices": (2, 5, 1), "rhs": (2, 4, 7)}
    found = cost("bcoo_dot_general", batched, (2, 7), dimension_numbers=(((1,), (1,)), ((0,), (0,))))
    assert found.macs == sum(1 for _ in itertools.product(range(2), range(5), range(7)))


@pytest.mark.parametrize(("name", "dense", "columns"), [("coo_matvec", (4,), 1), ("csr_matmat", (4, 6), 6)])
def test_a_sparse_matrix_meets_a_dense_one(name: str, dense: tuple[int, ...], columns: int) -> None:
    assert cost(name, {"data": (5,), "row": (5,), "col": (5,), "B": dense}, (3, *dense[1:])).macs == 5 * columns


def test_a_sampled_product_counts_what_is_stored() -> None:
    given = {"A": (3, 4), "B": (4, 7), "indices": (5, 2)}
    assert cost("bcoo_dot_general_sampled", given, (5,), dimension_numbers=(((1,), (0,)), ((), ()))).macs == 5 * 4


def test_an_lstm_of_cudnn_costs_what_its_layers_do() -> None:
    layers = [Layer(LSTM, 2 * 5, 2, x, 6) for x in (4, 12)]
    given = {"x": (2, 5, 4), "h_0": (4, 2, 6), "c_0": (4, 2, 6), "w": (1000,), "seq_lengths": (2,)}
    found = cost("rnn_fwd", given, (2, 5, 12), hidden_size=6, num_layers=2, bidirectional=True)
    assert found.macs == sum(2 * layer.forward().macs for layer in layers)


@pytest.mark.parametrize(("name", "made"), [("psum_start", 6 * 7 // 8), ("reduce_scatter_start", 6 * 7)])
def test_a_collective_counts_where_it_starts(name: str, made: int) -> None:
    assert cost(name, {"x": (2, 3)}, (2, 3), group_size=8).elementwise_flops == made + (name == "psum_start")
    assert cost(name.replace("start", "done"), {"x": (2, 3)}, (2, 3)).flops == 0
