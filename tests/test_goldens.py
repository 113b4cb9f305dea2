"""Golden texts: each is written by the one command that says so, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.goldens import ROOT, golden_tests, main
from tests.golden import REWRITE, assert_golden


def test_a_golden_text_is_compared_and_only_written_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "golden.txt"
    path.write_text("before", "utf-8")
    with pytest.raises(AssertionError):
        assert_golden("after", path)
    assert path.read_text("utf-8") == "before"
    monkeypatch.setenv(REWRITE, "1")
    assert_golden("after", path)
    assert path.read_text("utf-8") == "after"


@pytest.mark.slow
def test_the_command_finds_every_test_that_compares_with_a_golden_text(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*golden_tests()]
    users = {path for path in (ROOT / "tests").rglob("test_*.py") if "assert_golden(" in path.read_text("utf-8")}
    assert {ROOT / one.partition("::")[0] for one in found} == users
    assert "tests/reports/test_report.py::test_the_text_is_the_golden_copy" in found
    assert main(["no such word"]) == 2
    assert "no golden text" in capsys.readouterr().out
