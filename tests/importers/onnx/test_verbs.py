"""Every verb that does not run the step takes an ONNX model, and a training step derived from it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.cli.command import fails, run
from tests.importers.onnx.models import bad, model
from tests.marks import some_slow

MODELS = ("functions", "scan", "if_branches", "loop_from_input")
TRAINED = ("--train", "--optimizer", "adam")


def test_open_symbols_are_counted_in_formulas(capsys: pytest.CaptureFixture[str]) -> None:
    assert "2880*n" in run(capsys, "count", model("functions"))
    assert "5.76 kMAC" in run(capsys, "count", model("functions"), "--set", "n=4")
    assert "512*trips" in run(capsys, "count", model("loop_from_input"))


def test_a_derived_step_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "count", model("functions"), "--set", "n=4", *TRAINED)
    assert "derived from an inference model" in text
    assert "adam" in text
    assert "optimizer" in text


VERBS = ("memory", "time", "metrics", "report")
PAIRS = [*zip(VERBS, MODELS, strict=True)]
"""Each verb with a model, and each model with a verb."""
ALL = list(product(VERBS, MODELS))


@pytest.mark.parametrize(("verb", "name"), some_slow(ALL, {*ALL} - {*PAIRS}))
def test_verbs(capsys: pytest.CaptureFixture[str], name: str, verb: str, tmp_path: Path) -> None:
    page = ("--html", tmp_path / "page.html") if verb == "report" else ()
    for options in ((), TRAINED):
        assert model(name).name in run(capsys, verb, model(name), *options, *page)


def test_plans_and_policies(capsys: pytest.CaptureFixture[str]) -> None:
    target = (model("functions"), *TRAINED, "--set", "n=64", "--budget", "100%")
    assert "Plan" in run(capsys, "plan", *target)
    assert "Peak" in run(capsys, "remat", "simulate", *target)


def test_an_inference_step_and_its_training_step_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "compare", model("functions"), model("functions"), "--set", "n=4")
    assert "compared" in text


def test_a_saved_step_keeps_its_formulas(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run(capsys, "capture", model("functions"), "-o", tmp_path / "f.tide")
    assert "2880*n" in run(capsys, "count", tmp_path / "f.tide", "--ops")


def test_a_rule_is_explained_and_a_missing_one_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "E k MACs" in run(capsys, "count", model("functions"), "--explain", "onnx.MatMul")
    assert "RunShell" in fails(capsys, "count", bad("unknown_op"), "--strict", status=3)
    assert "a cycle" in fails(capsys, "report", bad("cycle"))
