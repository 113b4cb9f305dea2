"""What tests of formulas share."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import pytest

from tensortide import symbolic
from tensortide.formulas import derive


@pytest.fixture(scope="module", autouse=True)
def _no_time_limit() -> Iterator[None]:
    """Derive whole formulas however slow the machine is: beyond the usual limit they have fewer symbols."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(symbolic.__kwdefaults__ or {}, "limit", math.inf)
        yield


@pytest.fixture(scope="module", autouse=True)
def _frozen_before() -> Iterator[None]:
    """Leave the heap as tests have it, frozen, which takes long to find out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(derive, "frozen_heap", contextlib.nullcontext)
        yield
