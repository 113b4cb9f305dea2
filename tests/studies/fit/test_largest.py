"""The search for the largest batch, on peaks that are known functions of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensortide.errors import CaptureError
from tensortide.studies.fit.largest import largest_batch

PEAKS: dict[str, Callable[[int], int]] = {
    "straight": lambda batch: 1000 + 37 * batch,
    "stepped": lambda batch: 1000 + 64 * (37 * batch // 64),
    "square": lambda batch: 500 + batch * batch,
    "flat, then steep": lambda batch: max(2000, 500 * batch - 100_000),
}


@pytest.mark.parametrize("name", PEAKS)
@pytest.mark.parametrize("start", [1, 8, 100, 5000])
@pytest.mark.parametrize("limit", [1100, 3000, 40_000, 1_000_000])
def test_the_largest_batch_fits_and_one_more_does_not(name: str, start: int, limit: int) -> None:
    peak, asked = PEAKS[name], set[int]()

    def capture(batch: int) -> int:
        assert batch >= 1
        asked.add(batch)
        return peak(batch)

    found = largest_batch("batch", start, capture, limit)
    assert found is not None
    assert found.next_bytes is not None
    assert peak(found.batch + 1) == found.next_bytes > limit
    assert found.batch == 0 or peak(found.batch) == found.reserved_bytes <= limit
    assert found.captures == len(asked) <= (9 if name == "straight" else 40)


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
