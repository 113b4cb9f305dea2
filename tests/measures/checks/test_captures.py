"""Captures of a checked step: an assertion is about the device that it names, whatever stands beside it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.errors import CheckError
from tensortide.measures.checks.assertions import parse
from tensortide.measures.checks.baseline import load_baseline
from tensortide.measures.checks.captures import Place, places
from tensortide.measures.registry import default_registry
from tests.measures.checks import steps

H100, A100 = "H100-SXM-80GB", "A100-SXM-80GB"
blocks = functools.partial(steps.blocks, depth=1)
MIXED = ["peak <= 1GiB", "time(h100-sxm) <= 1 s", "time(2xt4) <= 1 s", "peak <= 1GiB on cuda", "flops <= 1 TFLOP"]


def test_an_assertion_has_the_value_that_it_has_alone() -> None:
    together = tensortide.check(blocks, MIXED).verdicts
    alone = [tensortide.check(blocks, text).verdicts[0] for text in MIXED]
    assert [(one.value, one.place) for one in together] == [(one.value, one.place) for one in alone]
    assert [one.place for one in together] == ["cpu", f"cuda of {H100}", "cuda of T4", f"cuda of {A100}", "cpu"]
    assert len({one.value for one in together[:4:3]}) == 2  # a peak on the CPU is another one than on a GPU


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ["cpu", f"cuda of {H100}", f"cuda of {A100}", "cpu"]),
        ({"machine": "t4"}, ["cuda of T4", f"cuda of {H100}", "cuda of T4", "cuda of T4"]),
        ({"device": "cuda"}, [f"cuda of {A100}", f"cuda of {H100}", f"cuda of {A100}", f"cuda of {A100}"]),
        ({"device": "cpu"}, ["cpu", "cpu", "cpu", "cpu"]),
    ],
)
def test_device_and_machine_of_a_check_are_those_of_assertions_that_name_none(
    given: dict[str, Any], expected: list[str]
) -> None:
    texts = ["peak <= 1GiB", "time(h100-sxm) <= 1 s", "peak <= 1GiB on cuda", "peak <= 1GiB on cpu"]
    found = tensortide.check(blocks, texts, **given)
    assert [one.place for one in found.verdicts] == expected


def test_a_place_is_captured_once_however_it_is_named() -> None:
    texts = ["peak <= 1 on cuda", "time(a100-sxm-80gb) <= 1", "time(4xA100-SXM-80GB) <= 1", "peak <= 1 on cuda:0"]
    rules = [parse(text.replace("<= 1", "<= 1 s" if "time" in text else "<= 1B"),
                   default_registry()) for text in texts]  # fmt: skip
    assert set(places(rules, None, None)) == {Place("cuda", A100)}
    peaks = [parse("peak <= 1B", default_registry()), parse("peak <= 1B on cpu", default_registry())]
    assert set(places(peaks, None, None)) == {Place("cpu")}


def test_a_step_that_is_called_gives_each_capture_the_same(tmp_path: Path) -> None:
    step = blocks()
    found = tensortide.check(step, ["flops <= 1 TFLOP", "peak <= 1GiB on cuda", "parameters == 171"])
    again = tensortide.check(step, "flops <= 1 TFLOP")
    assert found.holds
    assert found.verdicts[0].value == again.verdicts[0].value


def test_a_baseline_has_every_capture_and_compares_each_with_its_own(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    texts = [
        "peak <= baseline",
        "time(h100-sxm) <= +1% of baseline",
        "peak <= baseline on cuda",
        "flops in blocks.* == baseline",
    ]
    tensortide.check(blocks, texts, baseline=path, accept=True)
    kept = load_baseline(path)
    assert [one.of.machine for one in kept.parts] == ["", H100, A100]
    assert kept.metrics["step_peak"] != kept.others[1].metrics["step_peak on cuda"]
    for order in (texts, texts[::-1]):
        found = tensortide.check(blocks, order, baseline=path)
        assert found.holds, found
        assert [one.value for one in found.verdicts] == [one.baseline for one in found.verdicts]
    grown = tensortide.check(blocks, ["flops <= 1", "time(h100-sxm) <= 1 ns"], baseline=path)
    assert [one.growth for one in grown.verdicts] == [None, None]  # no module differs on its own device


NEW = "time(h100-sxm) <= +1% of baseline"


KEPT = "peak <= +1% of baseline"


@pytest.mark.parametrize("texts", [pytest.param([KEPT, NEW], marks=pytest.mark.slow), [NEW, KEPT], [NEW]])
def test_an_assertion_about_a_device_that_the_baseline_lacks_is_undecided_and_the_others_are_not(
    tmp_path: Path, texts: list[str]
) -> None:
    path = tmp_path / "b.json"
    tensortide.check(blocks, "peak <= +1% of baseline", baseline=path, accept=True)
    found = tensortide.check(blocks, texts, baseline=path)
    assert not found.holds
    assert {one.text: one.outcome for one in found.verdicts} == {
        text: "unknown" if text == NEW else "holds" for text in texts
    }
    (new,) = found.failures
    assert new.value
    assert (new.baseline, new.limit, new.growth) == (None, None, None)
    assert new.reason == (
        f"the baseline has figures for cpu, none for cuda of {H100}: "
        "accept them with --accept (of pytest: --tensortide-accept)"
    )
    accepted = tensortide.check(blocks, texts, baseline=path, accept=True).accepted
    assert accepted is not None
    assert not accepted.reason
    assert accepted.before is not None
    assert tensortide.check(blocks, texts, baseline=path).holds


def test_a_device_that_the_baseline_lacks_leaves_fixed_limits_decided(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    tensortide.check(blocks, "peak <= baseline", baseline=path, accept=True)
    found = tensortide.check(blocks, ["peak <= 1GiB", "peak <= 1B", "peak <= baseline"], device="cuda", baseline=path)
    assert [one.outcome for one in found.verdicts] == ["holds", "fails", "unknown"]
    (path.parent / "other.json").write_text(path.read_text().replace('"step": "steady"', '"step": "first"'))
    with pytest.raises(CheckError, match=r"of another step: step was 'first', is 'steady'\."):
        tensortide.check(blocks, ["peak <= baseline", NEW], baseline=path.parent / "other.json")


def test_accepting_names_what_changes_on_each_device(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    texts = ["peak <= baseline", "peak <= baseline on cuda"]
    tensortide.check(blocks, texts, baseline=path, accept=True)
    data = json.loads(path.read_text())
    data["others"][0]["metrics"]["flops"] = 1
    data["others"][0]["modules"]["head"] = {"flops": 1}
    path.write_text(json.dumps(data))
    again = tensortide.check(blocks, texts, baseline=path, accept=True).accepted
    assert again is not None
    assert [one.name for one in again.changes] == [f"flops (cuda of {A100})"]
    assert again.modules == ("head",)
