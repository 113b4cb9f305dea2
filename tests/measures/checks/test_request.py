"""Checks, asked from Python: of a file, and of one target."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensortide.errors import CheckError, RequestError
from tensortide.measures.checks.request import CheckRequest, answer
from tensortide.targets.requests import CaptureRequest

CHECKS = """
[check.fits]
target = "mlp"
set = { batch = 2 }
assert = ["peak <= 1TiB"]

[check.timed]
target = "mlp"
set = { batch = 2 }
assert = ["time <= 1 s", "parameters <= baseline"]
"""


def test_named_checks_are_tried_each_by_itself(tmp_path: Path) -> None:
    file = tmp_path / "tensortide.toml"
    file.write_text(CHECKS)
    first, second = answer(CheckRequest(file=file))
    assert first.result is not None
    assert (first.check.name, first.result.outcome, first.error) == ("fits", "holds", None)
    assert (second.check.name, second.result) == ("timed", None)
    assert isinstance(second.error, CheckError)
    (accepted,) = answer(CheckRequest(names=("timed",), file=file, accept=True))
    assert accepted.result is not None
    assert accepted.result.outcome == "unknown"  # no machine
    assert (tmp_path / "baselines/timed.json").is_file()


def test_a_target_is_checked_as_it_is_captured() -> None:
    asked = CheckRequest(
        names=("mlp",), assertions=("time <= 1 h", "ops <= 1"), capture=CaptureRequest(machines=("t4",))
    )
    (found,) = answer(asked)
    assert found.result is not None
    assert [one.outcome for one in found.result.verdicts] == ["holds", "fails"]
    assert found.result.outcome == "fails"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"assertions": ("ops <= 1",)}, "goes with one target"),
        ({"names": ("a",), "assertions": ("ops <= 1",), "file": Path("x.toml")}, "--assert and --file exclude"),
        ({"baseline": Path("b.json")}, "--baseline goes with --assert"),
        ({"capture": CaptureRequest(real=True)}, "--real goes with --assert"),
    ],
)
def test_what_does_not_go_together_is_no_request(options: dict[str, object], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        CheckRequest(**options)  # type: ignore[arg-type]
