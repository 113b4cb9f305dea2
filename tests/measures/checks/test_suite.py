"""Files of checks: found, read, and refused where they are not as they must be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.errors import CheckError
from tensortide.measures.checks.suite import chosen, find_file, load_checks
from tensortide.targets.requests import CaptureRequest

GOOD = """
# costs of our models
[check.gpt2]
target = "models/train.py:workload"
set = { batch = 8 }
device = "cuda"
assert = [
  "peak <= 24GiB",
  "flops <= +1% of baseline",
]

[check."small one"]
target = "package.module:step"
baseline = "kept/small.json"
assert = ["peak <= 24GiB"]
"""


def written(folder: Path, text: str, name: str = "tensortide.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_checks_are_read_with_paths_beside_the_file(tmp_path: Path) -> None:
    first, second = load_checks(written(tmp_path, GOOD))
    assert (first.name, first.target) == ("gpt2", f"{tmp_path}/models/train.py:workload")
    assert first.assertions == ("peak <= 24GiB", "flops <= +1% of baseline")
    assert first.baseline == tmp_path / "baselines" / "gpt2.json"
    assert first.capture == CaptureRequest(set=("batch=8",), device="cuda")
    assert first.lines == {"peak <= 24GiB": 8, "flops <= +1% of baseline": 9}
    assert (second.target, second.baseline) == ("package.module:step", tmp_path / "kept" / "small.json")
    assert second.lines == {"peak <= 24GiB": 15}


def test_a_project_has_them_under_tool(tmp_path: Path) -> None:
    text = "[project]\nname = 'x'\n" + GOOD.replace("[check.", "[tool.tensortide.check.")
    path = written(tmp_path, text, "pyproject.toml")
    assert [one.name for one in load_checks(path)] == ["gpt2", "small one"]
    assert load_checks(path)[1].lines == {"peak <= 24GiB": 17}


def test_the_nearest_file_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    with pytest.raises(CheckError, match=r"no checks: there is no tensortide\.toml"):
        find_file(inner)
    written(tmp_path, "[project]\nname = 'x'\n", "pyproject.toml")
    outer = written(tmp_path, GOOD)
    assert find_file(inner) == outer
    project = written(inner.parent, "[tool.tensortide.check.x]\n", "pyproject.toml")
    assert find_file(inner) == project


def test_names_choose(tmp_path: Path) -> None:
    checks = load_checks(written(tmp_path, GOOD))
    assert [one.name for one in chosen(checks, ())] == ["gpt2", "small one"]
    assert [one.name for one in chosen(checks, ("small one",))] == ["small one"]
    with pytest.raises(CheckError, match=r"no check 'gpt' \(did you mean gpt2\?\)"):
        chosen(checks, ("gpt",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[check.x", "is not TOML"),
        ("", "no checks: write"),
        ("[checks.x]\n", "unknown key 'checks': did you mean check"),
        ("[check.x]\ntarget = 'mlp'\n", "check x has no assert"),
        ("[check.x]\nassert = ['peak <= 1']\n", "check x has no target"),
        ("[check.x]\ntarget = 'mlp'\nassert = 'peak <= 1'\n", "assert takes a list of assertions, not 'peak <= 1'"),
        ("[check.x]\ntarget = 'mlp'\nassert = [1]\n", "assert takes a list of assertions"),
        ("[check.x]\ntarget = 'mlp'\nasert = ['peak <= 1']\n", "unknown key 'asert': did you mean assert?"),
        ("[check.x]\ntarget = 'mlp'\nqwx = 1\n", "unknown key 'qwx'; there are target, assert, baseline, set"),
        ("[check.x]\ntarget = 'mlp'\nranks = true\n", "ranks takes a number, not True"),
        ("[check.x]\ntarget = 'mlp'\nassert = ['ops <= 1']\nreal = true\nfake = true\n", "exclude each other"),
        ("[check]\nx = 1\n", "check x is no table"),
        (
            "".join(f"[check.{x}]\ntarget = 'mlp'\nassert = ['ops <= 1']\nbaseline = 'b.json'\n" for x in "xy"),
            "checks x and y have one baseline",
        ),
    ],
)
def test_a_file_that_is_not_as_it_must_be_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CheckError) as caught:
        load_checks(written(tmp_path, text))
    assert words in str(caught.value)
    assert "tensortide.toml" in str(caught.value)
