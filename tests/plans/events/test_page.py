"""The examples of the pages on plans are true."""

from __future__ import annotations

import doctest

import pytest

from tests.conftest import ROOT

_FILE, _BESIDE, _COMPILED = "## As a file for PyTorch", "## Beside G10's policies", "## Compiled plans"


def assert_true(text: str, name: str) -> int:
    """The examples in ``text`` print what it says; returns their number."""
    runner = doctest.DocTestRunner()
    runner.run(doctest.DocTestParser().get_doctest(text, {}, name, None, None))
    assert runner.failures == 0
    return runner.tries


def parts() -> dict[str, str]:
    """What follows each heading after which examples are checked apart; under "", what is before all of them."""
    found, rest = {}, (ROOT / "docs/plans.md").read_text()
    for before, heading in (("", _FILE), (_FILE, _BESIDE), (_BESIDE, _COMPILED)):
        found[before], _, rest = rest.partition(heading)
    return {**found, _COMPILED: rest}


def test_the_example_of_the_page_plays_as_it_says() -> None:
    assert ">>>" not in parts()[""]
    assert assert_true(parts()[_BESIDE], "plans") > 10


@pytest.mark.slow
@pytest.mark.parametrize("heading", [_FILE, _COMPILED])
def test_the_examples_of_plans_for_pytorch_run_as_they_say(heading: str) -> None:
    pytest.importorskip("torch")
    assert assert_true(parts()[heading], heading) > 10


def test_the_example_of_several_devices_plays_as_it_says() -> None:
    assert assert_true((ROOT / "docs/placed_plans.md").read_text(), "placed plans") > 15
