"""The example of the page on plans is true."""

from __future__ import annotations

import doctest

from tests.conftest import ROOT


def test_the_example_of_the_page_plays_as_it_says() -> None:
    result = doctest.testfile(str(ROOT / "docs/plans.md"), module_relative=False)
    assert result.attempted > 10
    assert result.failed == 0
