"""What tests of formulas share."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from tensortide import symbolic


@pytest.fixture(scope="module", autouse=True)
def _no_time_limit() -> Iterator[None]:
    """Derive whole formulas however slow the machine is: beyond the usual limit they have fewer symbols."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(symbolic.__kwdefaults__ or {}, "limit", math.inf)
        yield
