"""The examples of the page on plans are true."""

from __future__ import annotations

import doctest

import pytest

from tests.conftest import ROOT

_COMPILED = "## Compiled plans"


def assert_true(text: str, name: str) -> int:
    """The examples in ``text`` print what it says; returns their number."""
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, None))
    assert runner.failures == 0
    return runner.tries


def test_the_example_of_the_page_plays_as_it_says() -> None:
    text, heading, _ = (ROOT / "docs/plans.md").read_text().partition(_COMPILED)
    assert heading
    assert assert_true(text, "plans") > 10


@pytest.mark.slow
def test_the_examples_of_compiled_plans_run_as_they_say() -> None:
    pytest.importorskip("torch")
    _, _, text = (ROOT / "docs/plans.md").read_text().partition(_COMPILED)
    assert assert_true(text, "compiled plans") > 10
