"""Arithmetic of shapes agrees with NumPy, which computes the arrays, and keeps expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.expr import expr_of, sized, symbol
from tensortide.importers.shapes import (
    PLAIN,
    Plain,
    ShapeError,
    Table,
    axis_of,
    broadcast,
    concatenated,
    einsum,
    inserted,
    joined,
    permuted,
    positions,
    product,
    reduced,
    replaced,
    spread,
    unsqueezed,
)

DIMS = st.lists(st.integers(1, 4), max_size=4).map(tuple)
SMALL = st.integers(1, 5)


@given(st.lists(DIMS, max_size=3))
def test_broadcasting_is_that_of_numpy(shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ShapeError, match=r"the sizes \d and \d do not match"):
            broadcast(PLAIN, *shapes)
    else:
        assert broadcast(PLAIN, *shapes) == expected


@given(DIMS, DIMS)
def test_products_are_those_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        expected = np.matmul(np.ones(a), np.ones(b)).shape
    except ValueError:
        with pytest.raises(ShapeError):
            product(PLAIN, a, b)
    else:
        assert product(PLAIN, a, b) == expected


EQUATIONS = ("ab,bc->ac", "ab,bc", "...ij,...jk->...ik", "a...,a->...", "ii->i", "abc,cd->adb", "...a->a...", "ab,cd")


@given(st.sampled_from(EQUATIONS), st.lists(DIMS, min_size=1, max_size=2))
def test_einsum_is_that_of_numpy(equation: str, shapes: list[tuple[int, ...]]) -> None:
    try:
        expected = np.einsum(equation, *(np.ones(shape) for shape in shapes)).shape
    except ValueError:
        with pytest.raises(ShapeError):
            einsum(PLAIN, equation, shapes)
    else:
        assert einsum(PLAIN, equation, shapes) == expected


def test_letters_that_stand_for_an_ellipsis_are_none_of_the_equation() -> None:
    alpha = chr(0x3B1)
    assert einsum(PLAIN, f"{alpha}...,...->{alpha}...", [(2, 3), (3,)]) == (2, 3)


@pytest.mark.parametrize("equation", ["a.b->ab", "a....b->ab", "a1->a", "...a...->a", "a->b", "a,b->ab"])
def test_what_is_no_equation_is_an_error(equation: str) -> None:
    with pytest.raises(ShapeError):
        einsum(PLAIN, equation, [(2, 3)])


@given(st.integers(1, 20), SMALL, SMALL, SMALL)
def test_windows_are_as_many_as_fit(size: int, window: int, stride: int, dilation: int) -> None:
    extent = (window - 1) * dilation + 1
    fits = [at for at in range(0, size, stride) if at + extent <= size]
    if size >= extent:
        assert positions(size, window, stride, dilation) == len(fits)
        assert spread(len(fits), window, stride, dilation) == fits[-1] + extent
    assert positions(size, window, stride, dilation, same=True) == len(range(0, size, stride))


@given(DIMS.filter(bool), st.data())
def test_axes_go_where_numpy_puts_them(shape: tuple[int, ...], data: st.DataObject) -> None:
    array, rank = np.ones(shape), len(shape)
    axis = data.draw(st.integers(-rank, rank - 1))
    place = axis_of(axis, rank)
    order = data.draw(st.permutations(range(rank)))
    assert reduced(shape, {place}) == array.sum(axis).shape
    assert reduced(shape, {place}, 1) == array.sum(axis, keepdims=True).shape
    assert permuted(shape, order) == array.transpose(order).shape
    assert unsqueezed(shape, {place}, 1) == inserted(shape, place, 1) == np.expand_dims(array, place).shape
    assert replaced(shape, place, 3, 5) == (*shape[:place], 3, 5, *shape[place + 1 :])
    whole = np.concatenate([array, array, array], axis).shape
    assert concatenated(PLAIN, [shape] * 3, place) == whole
    with pytest.raises(ShapeError, match="dimensions"):
        axis_of(data.draw(st.sampled_from((rank, -rank - 1))), rank)
    with pytest.raises(ShapeError, match="order"):
        permuted(shape, [0, *order])


class Learned(Plain):
    """Sizes of which none has a value yet, and the pairs that must be one."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def stored(self, size: int) -> bool:
        return False

    def equal(self, a: int, b: int) -> int:
        self.pairs.append((a, b))
        return b


def test_a_size_that_is_1_in_an_example_alone_does_not_give_way() -> None:
    one, b = sized(symbol("n"), 1), sized(symbol("b"), 6)
    assert str(expr_of(joined(PLAIN, one, b))) == "b"  # here it has the value
    sizes = Learned()
    assert joined(sizes, one, b) is b
    assert sizes.pairs == [(one, b)]


def test_expressions_are_kept() -> None:
    b, one = sized(symbol("b"), 6), sized(symbol("n"), 1)
    assert str(expr_of(broadcast(PLAIN, (6, 1), (b, 4))[0])) == "b"
    assert str(expr_of(broadcast(PLAIN, (1,), (one,), (1,))[0])) == "n"
    assert broadcast(PLAIN, (one,), (4,)) == (4,)
    assert str(expr_of(concatenated(PLAIN, [(b, 2), (3, 2)], 0)[0])) == "b + 3"
    assert str(expr_of(positions(b, 3, 2))) == str(expr_of((b - 3) // 2 + 1))
    assert str(expr_of(product(PLAIN, (b, 5), (5, 7))[0])) == "b"


def test_an_op_has_one_shape_function() -> None:
    table: Table[Callable[[Any], int]] = Table()
    table.rows("Add Sub")(len)
    table.rows("Add", "own")(len)
    assert [*table] == ["Add", "Sub", "own::Add"]
    with pytest.raises(ValueError, match="Sub has two shape functions"):
        table.rows("Sub")(len)
