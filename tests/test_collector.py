"""Old objects are kept from the garbage collector while something runs; what a program froze stays frozen."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tensortide.collector import frozen_heap, no_collection


@pytest.fixture
def _as_it_was() -> Iterator[None]:
    """The heap is frozen after the test as it is in all others."""
    yield
    gc.freeze()


@pytest.mark.usefixtures("_as_it_was")
def test_the_heap_is_frozen_meanwhile_and_not_after() -> None:
    gc.unfreeze()
    with frozen_heap():
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0


FROZEN = """
import gc
from tensortide.collector import frozen_heap

gc.freeze()
before = gc.get_freeze_count()
kept = [[number] for number in range(1000)]
with frozen_heap():
    assert gc.get_freeze_count() < before + len(kept)
assert before - 1000 < gc.get_freeze_count() < before + len(kept)
"""
"""Run in an interpreter of its own: hundreds of thousands of objects are counted slowly."""


def test_a_heap_that_is_frozen_stays_so_and_nothing_is_added() -> None:
    subprocess.run([sys.executable, "-c", FROZEN], check=True)


@pytest.mark.parametrize("enabled", [False, True])
def test_the_collector_is_off_meanwhile_and_then_as_before(enabled: bool) -> None:
    try:
        (gc.enable if enabled else gc.disable)()
        with no_collection():
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()
