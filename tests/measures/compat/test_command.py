"""``tensortide metrics --compat deeplite``, as a person runs it."""

from __future__ import annotations

import json

import pytest

from tests.cli.command import fails, run


def test_figures_stand_beside_ours_with_reasons_that_add_up(capsys: pytest.CaptureFixture[str]) -> None:
    target = ("resnet18_cifar", "--set", "train=false", "--set", "batch=2")
    document = json.loads(run(capsys, "metrics", *target, "--compat", "deeplite", "--json"))["sections"]
    tables = document["deeplite"]["tables"]
    rows = dict(zip(tables["figures"]["figure"], tables["figures"]["difference"], strict=True))
    reasons = zip(*(tables["reasons"][name] for name in ("figure", "reason", "amount")), strict=True)
    sums = dict.fromkeys(rows, 0)
    for figure, reason, amount in reasons:
        sums[figure] += amount
        assert reason != "remainder" or amount == 0
    assert rows == sums
    assert rows["flops"] == 2 * 1_786_368
    assert document["metrics"]["facts"]["macs"] == 2 * 555_468_800


def test_a_step_that_trains_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    refused = fails(capsys, "metrics", "mlp", "--compat", "deeplite")
    assert "the graph is no inference forward: it has a backward or an optimizer" in refused
