"""Trips of a ``while_loop``, from blocks written out here."""

from __future__ import annotations

import pytest

from tensortide.importers.exported.control import trips_of
from tensortide.importers.exported.program import Arg, Block, Node, Ref, Type

FULL = Node("i", "aten.full.default", (("size", ()), ("fill_value", 2)), ("i",), 2)
SCALAR = Node("i", "aten.scalar_tensor.default", (("s", 2), ("dtype", "int64"), ("pin_memory", False)), ("i",), 1)


def trips(start: Node, *, by: tuple[tuple[str, Arg], ...] = (("other", 3),), dtype: str = "int64") -> int | None:
    """Trips of ``while i < 17: i += ...``."""
    types = {"i": Type(dtype, (), ()), "next": Type(dtype, (), ()), "goes_on": Type("bool", (), ())}
    outer = Block("outer", (), [start], (Ref("i"),), types)
    less = Node("goes_on", "aten.lt.Scalar", (("self", Ref("i")), ("other", 17)), ("goes_on",), 2)
    add = Node("next", "aten.add.Tensor", (("self", Ref("i")), *by), ("next",), 2)
    condition = Block("condition", ("i",), [less], (Ref("goes_on"),), types)
    return trips_of(outer, condition, Block("body", ("i",), [add], (Ref("next"),), types), 1, (Ref("i"),))


@pytest.mark.parametrize("start", [FULL, SCALAR], ids=lambda node: node.base)
def test_a_counter_starts_at_the_number_that_fills_it(start: Node) -> None:
    assert trips(start) == len(range(2, 17, 3))


def test_a_step_that_is_scaled_is_no_number() -> None:
    assert trips(FULL, by=(("other", 3), ("alpha", 1))) == 5
    assert trips(FULL, by=(("other", 3), ("alpha", 2))) is None


@pytest.mark.parametrize(("dtype", "expected"), [("int32", 5), ("uint8", None), ("float32", None)])
def test_counters_that_round_or_wrap_early_are_not_counted(dtype: str, expected: int | None) -> None:
    assert trips(FULL, dtype=dtype) == expected
