"""``tensortide metrics --compat deeplite``, as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.command import tensortide


def test_figures_stand_beside_ours_with_reasons_that_add_up(tmp_path: Path) -> None:
    target = ("resnet18_cifar", "--set", "train=false", "--set", "batch=2")
    run = tensortide(tmp_path, "metrics", *target, "--compat", "deeplite", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)["sections"]
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


def test_a_step_that_trains_is_refused(tmp_path: Path) -> None:
    run = tensortide(tmp_path, "metrics", "mlp", "--compat", "deeplite")
    assert run.returncode == 1
    assert "the graph is no inference forward: it has a backward or an optimizer" in run.stderr
