"""Ceilings of a machine, by clocks that tell what they are made to tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensortide.profile.calibration import ceilings
from tensortide.profile.calibration.ceilings import COPIES, PRODUCTS, measure_ceilings
from tensortide.profile.stopwatch import Clocks
from tests.profile.tiny import small_ceilings

SIDE, NBYTES = 128, 1 << 20


class Scripted:
    """A clock that stands still but for what is measured: each call takes the next of ``times``."""

    def __init__(self, times: list[int]) -> None:
        self.times = iter(times)
        self.now = self.readings = 0

    def __call__(self) -> int:
        """Read it: the second of two readings is later."""
        self.readings += 1
        if self.readings % 2 == 0:
            self.now += next(self.times)
        return self.now


def calls(best: int, repeats: int, median: int = 0) -> list[int]:
    """Times of calls: a short first one, which warms up, then ``repeats`` of which the last is the best."""
    return [1, *[median or 3 * best] * (repeats - 1), best]


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with small_ceilings():
        assert ceilings.SIZES["cpu"] == (SIDE, NBYTES)
        yield


@pytest.mark.parametrize("clock", ["wall", "thread"])
def test_the_fastest_product_and_copy_after_the_first_are_the_ceilings(clock: str) -> None:
    def never() -> int:
        raise AssertionError("this clock was not asked for")

    copy, read = calls(5000, COPIES), calls(4000, COPIES)
    script = Scripted([*calls(1000, PRODUCTS, median=1250), *calls(2000, COPIES), *calls(4000, COPIES), *copy, *read])
    clocks = Clocks(wall=script, thread=never) if clock == "wall" else Clocks(wall=never, thread=script)
    found = measure_ceilings("cpu", clock, clocks)  # type: ignore[arg-type]
    flops = 2 * SIDE**3  # a multiplication and an addition for each term
    assert found.flops_per_s == {
        "float32": pytest.approx(flops / 1000e-9),
        "float64": pytest.approx(flops / 2000e-9),
        "bfloat16": pytest.approx(flops / 4000e-9),
    }
    assert found.bytes_per_s == pytest.approx(2 * NBYTES / 5000e-9)  # a copy reads and writes
    assert found.noise_share == pytest.approx(0.2)  # 1000 against a median of 1250
    assert found.links == {}
    assert next(script.times, None) is None


def test_what_is_read_alone_counts_where_it_moves_more() -> None:
    products = [*calls(1000, PRODUCTS), *calls(1000, COPIES), *calls(1000, COPIES)]
    found = measure_ceilings("cpu", "wall", Clocks(Scripted([*products, *calls(5000, COPIES), *calls(1000, COPIES)])))
    assert found.bytes_per_s == pytest.approx(NBYTES / 1000e-9)


def test_the_clock_is_read_around_the_call_and_not_after_it() -> None:
    order: list[str] = []

    def clock() -> int:
        order.append("clock")
        return len(order)

    ceilings._Watch("cpu", clock).times(lambda: order.append("call"), 2)
    assert order == ["clock", "call", "clock"] * 3
