"""The search for the largest batch, on peaks that are known functions of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensortide.errors import CaptureError
from tensortide.studies.fit.largest import MOST, Largest, largest_batch

PEAKS: dict[str, Callable[[int], int]] = {
    "straight": lambda batch: 1000 + 37 * batch,
    "stepped": lambda batch: 1000 + 64 * (37 * batch // 64),
    "square": lambda batch: 500 + batch * batch,
    "a jump": lambda batch: 1000 + batch + 10**8 * (batch > 937),
    "flat, then steep": lambda batch: max(2000, 500 * batch - 100_000),
}


def searched(peak: Callable[[int], int], start: int, limit: int) -> Largest:
    """The largest batch, which is found with as many captures as it says, each of another batch."""
    asked = list[int]()

    def capture(batch: int) -> int:
        assert batch >= 1
        asked.append(batch)
        return peak(batch)

    found = largest_batch("batch", start, capture, limit)
    assert found is not None
    assert found.captures == len(asked) == len(set(asked))
    return found


@pytest.mark.parametrize("name", PEAKS)
@pytest.mark.parametrize("start", [1, 8, 100, 5000])
@pytest.mark.parametrize("limit", [1100, 3000, 40_000, 1_000_000, 30_000_000])
def test_the_largest_batch_fits_and_the_next_of_three_digits_does_not(name: str, start: int, limit: int) -> None:
    peak = PEAKS[name]
    found = searched(peak, start, limit)
    assert found.next_batch is not None
    assert peak(found.next_batch) == found.next_bytes
    assert peak(found.next_batch) > limit
    assert found.batch == 0 or peak(found.batch) == found.reserved_bytes <= limit
    assert found.next_batch - found.batch <= max(1, found.batch // 100)
    assert found.batch >= 1000 or found.next_batch == found.batch + 1
    assert found.captures <= {"straight": 10, "a jump": 60}.get(name, 40)


@given(
    fixed=st.integers(0, 10**6), each=st.integers(1, 10**4), start=st.integers(1, 10**4), limit=st.integers(1, 10**9)
)
def test_of_peaks_on_a_line_few_are_captured(fixed: int, each: int, start: int, limit: int) -> None:
    found = searched(lambda batch: fixed + each * batch, start, limit)
    most = max(0, (limit - fixed) // each)
    if most < MOST:
        assert found.batch <= most < (found.next_batch or 0)
        assert found.captures <= 12


def test_a_batch_that_cannot_be_captured_ends_the_search_with_what_is_known() -> None:
    def capture(batch: int) -> int:
        if batch > 20:
            raise CaptureError("too many")
        return batch

    found = largest_batch("batch", 10, capture, 1000)
    assert found is None or found.least

    def only_ten(batch: int) -> int:
        if batch != 10:
            raise CaptureError("ten")
        return batch

    assert largest_batch("batch", 10, only_ten, 1000) is None


def test_from_a_batch_that_is_far_too_large_three_digits_are_found() -> None:
    found = largest_batch("batch", 500_000_000, lambda batch: 1000 * batch, 824_492_123)
    assert found is not None
    assert (found.batch, found.next_batch) == (824_000, 825_000)
    assert found.captures < 12
