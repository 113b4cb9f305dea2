"""Baselines: stable text, accepted on purpose, refused for another step, and told where something changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tensortide
from tensortide.errors import CheckError
from tensortide.measures.checks.baseline import load_baseline
from tests.measures.checks.steps import blocks, captured


def accept(path: Path, **settings: int) -> Any:
    return tensortide.check(captured(blocks, **settings), "flops <= +1% of baseline", baseline=path, accept=True)


def altered(path: Path, **changes: Any) -> None:
    """Change values of a file."""
    data = json.loads(path.read_text())
    for name, value in changes.items():
        place = data
        *parts, last = name.split("__")
        for part in parts:
            place = place[part]
        place[last] = value
    path.write_text(json.dumps(data))


def test_the_text_is_stable_sorted_and_has_a_module_in_a_line(tmp_path: Path) -> None:
    accept(tmp_path / "a.json", depth=11)
    accept(tmp_path / "b.json", depth=11)
    text = (tmp_path / "a.json").read_text()
    assert text == (tmp_path / "b.json").read_text()
    lines = text.splitlines()
    modules = [line.split('"')[1] for line in lines if line.startswith(' "blocks.')]
    assert modules == [f"blocks.{i}.{j}" for i in range(11) for j in range(2)]
    assert lines[1:3] == ['"format": "tensortide baseline",', '"version": 2,']
    assert all(len(json.loads(f"{{{line.strip().rstrip(',')}}}")) == 1 for line in lines if line.startswith(' "'))
    assert str(tmp_path) not in text


def test_a_change_of_one_module_changes_its_lines_and_the_totals(tmp_path: Path) -> None:
    accept(tmp_path / "a.json")
    accept(tmp_path / "b.json", second=16)
    texts = ((tmp_path / name).read_text() for name in ("a.json", "b.json"))
    a, b = (re.sub(r', "peak_bytes": \d+', "", text).splitlines() for text in texts)  # the peak is at another moment
    changed = {x.split('"')[1] for x, y in zip(a, b, strict=True) if x != y}
    assert {"blocks.1.0", "blocks.1.1", "flops", "total_params", "of"} <= changed
    assert not any(name.startswith(("blocks.0", "blocks.2", "head")) for name in changed)


def test_what_was_accepted_is_equal_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    found = accept(path)
    assert found.accepted is not None
    assert found.accepted.before is None
    assert load_baseline(path) == found.accepted.baseline
    names = [name for name in found.accepted.baseline.metrics if " " not in name]
    same = tensortide.check(captured(blocks), [f"{name} == baseline" for name in names], baseline=path)
    assert same.holds
    assert not same.remarks
    assert all(one.growth is None for one in same.verdicts)


def test_every_quantity_that_is_compared_is_recorded(tmp_path: Path) -> None:
    texts = ["flops in blocks.* <= baseline", "time(h100-sxm) <= +5% of baseline"]
    path = tmp_path / "b.json"
    accept(path)
    with pytest.raises(CheckError, match="the baseline has no"):
        tensortide.check(captured(blocks), texts[:1], baseline=path)
    tensortide.check(captured(blocks), texts, baseline=path, accept=True)
    assert {"flops in blocks.*", "step_time(h100-sxm)"} <= set(load_baseline(path).metrics)
    assert tensortide.check(captured(blocks), texts, baseline=path).holds


def test_accepting_shows_what_changes(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    accept(path)
    altered(path, metrics__flops=1, metrics__gone=5, modules__head={"flops": 1})
    again = accept(path).accepted
    assert again is not None
    assert {one.name: tuple(one.values("value")) for one in again.changes} == {
        "flops": (1, again.baseline.metrics["flops"]),
        "gone": (5, None),
    }
    assert again.modules == ("head",)
    assert load_baseline(path) == again.baseline
    nothing = accept(path)
    assert (nothing.accepted.changes, nothing.accepted.modules) == ((), ())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"of__workload": "other"}, "workload was 'other', is 'blocks'"),
        ({"of__hyperparameters__batch": 3}, "batch was 3, is 2"),
        ({"of__hyperparameters__heads": 3}, "heads was 3, is not set"),
        ({"of__compiled": True}, "compiled was True, is False"),
        ({"of__device": "cuda", "of__machine": "T4", "of__step": "first"}, ": step was 'first', is 'steady'."),
        ({"of__step": "first"}, "step was 'first', is 'steady'"),
        ({"version": 3}, "baseline format 3; this release reads 2"),
        ({"version": 0}, "baseline format 0"),
        ({"format": "tensortide plan"}, "is not a tensortide baseline"),
        ({"metrics": []}, "does not hold a valid baseline"),
    ],
)
def test_a_baseline_of_another_step_or_version_is_refused_with_the_difference(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "b.json"
    accept(path)
    altered(path, **changes)
    with pytest.raises(CheckError) as caught:
        tensortide.check(captured(blocks), "flops <= baseline", baseline=path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_another_version_of_the_framework_is_a_remark(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    accept(path)
    altered(path, versions__framework="torch 1.0", versions__tensortide="0.0.1")
    found = tensortide.check(captured(blocks), "flops <= baseline", baseline=path)
    assert found.holds
    assert [text.partition(", this is")[0] for text in found.remarks] == [
        "the baseline was made with torch 1.0",
        "the baseline was made with tensortide 0.0.1",
    ]


def test_a_missing_baseline_says_how_to_accept_one(tmp_path: Path) -> None:
    with pytest.raises(CheckError, match=r"there is no baseline .*none\.json.\nAccept .* with --accept"):
        tensortide.check(captured(blocks), "flops <= baseline", baseline=tmp_path / "none.json")
    with pytest.raises(CheckError, match="'flops <= baseline' needs a baseline"):
        tensortide.check(captured(blocks), "flops <= baseline")
    with pytest.raises(CheckError, match="--accept writes a baseline"):
        tensortide.check(captured(blocks), "flops <= 1", accept=True)
    assert tensortide.check(captured(blocks), "flops <= 1 TFLOP", baseline=tmp_path / "none.json").holds


def test_accept_replaces_a_baseline_of_another_step_and_says_so_but_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    accept(path)
    altered(path, of__hyperparameters__batch=3)
    again = accept(path).accepted
    assert (again.before, again.reason) == (None, "it was of another step: batch was 3, is 2")
    altered(path, version=99)
    assert "format 99" in accept(path).accepted.reason
    path.write_text('{"format": "tensortide plan", "version": 1}')
    with pytest.raises(CheckError, match="is not a tensortide baseline"):
        accept(path)
    assert "plan" in path.read_text()


def test_a_baseline_is_the_same_from_another_folder(tmp_path: Path) -> None:
    source = (
        "import torch\ndef step(width=4):\n m = torch.nn.Linear(width, 4)\n return lambda: m(torch.randn(2, width))\n"
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(source)
    path = tmp_path / "b.json"
    tensortide.check(f"{tmp_path}/a/train.py:step", "flops == baseline", baseline=path, accept=True)
    assert tensortide.check(f"{tmp_path}/b/train.py:step", "flops == baseline", baseline=path).holds
    assert load_baseline(path).of.workload == "train.py:step"
