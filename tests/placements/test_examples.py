"""The examples in docstrings of placements give what they say."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ("modes", "nets.assignments", "nets.net", "simulator.simulation")


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"tensortide.placements.{name}"))
    assert found.attempted > 0
    assert found.failed == 0
