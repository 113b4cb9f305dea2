"""Which tests of live runs take part by default: those that take seconds on a busy machine."""

from __future__ import annotations

import os

import pytest

_ALWAYS = ("test_identity.py::test_features", "tests/run/test_budget.py::test_nested", "test_identity.py::test_much")
_WHY = "live runs at length: set TENSORTIDE_LIVE=1"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, visibly, what takes long unless it is asked for."""
    if os.environ.get("TENSORTIDE_LIVE"):
        return
    for item in items:
        if item.nodeid.startswith("tests/run/") and not any(name in item.nodeid for name in _ALWAYS):
            item.add_marker(pytest.mark.skip(reason=_WHY))
