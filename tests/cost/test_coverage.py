"""Every op of every vocabulary has a rule, or its reason in the one list; the lists are those of installed packages."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from scripts.coverage.page import PAGE, model_ops, page, reasons, unexplained
from scripts.coverage.vocabularies import VOCABULARIES, Vocabulary


def named(one: Vocabulary) -> str:
    return one.name


@pytest.mark.parametrize("one", VOCABULARIES, ids=named)
def test_an_op_without_a_rule_has_a_reason(one: Vocabulary) -> None:
    assert len(one.names()) > 100
    assert unexplained(one) == []


def test_a_reason_is_one_for_ops_that_have_no_rule() -> None:
    for one in VOCABULARIES:
        lacking = [*one.lacking()]
        given = [reason for reason in reasons() if reason.vocabulary == one.name]
        assert given
        for pattern in (pattern for reason in given for pattern in reason.ops):
            assert any(fnmatchcase(name, pattern) for name in lacking), f"{one.name}: {pattern} has a rule"


def test_the_page_is_that_of_the_lists() -> None:
    assert PAGE.read_text("utf-8") == page(), "rules or reasons have changed: run python -m scripts.coverage"


@pytest.mark.parametrize("one", [one for one in VOCABULARIES if one.name in ("onnx", "tflite")], ids=named)
def test_a_list_is_that_of_the_installed_package(one: Vocabulary) -> None:
    assert one.path.read_text("utf-8") == one.written(), "python -m scripts.coverage writes the lists"


@pytest.mark.frameworks
@pytest.mark.parametrize("one", [one for one in VOCABULARIES if one.name in ("jax", "keras")], ids=named)
def test_a_list_has_what_the_installed_framework_has(one: Vocabulary) -> None:
    if one.path.read_text("utf-8").startswith(f"# {one.installed()}\n"):
        assert set(one.names()) >= set(one.listed())


def test_every_op_that_models_dispatch_has_a_rule() -> None:
    ops = model_ops()
    assert len(ops) > 300
    assert [op.name for op in ops if not op.covered] == []
