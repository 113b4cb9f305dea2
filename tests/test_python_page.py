"""The page of the functions of Python: it has every verb and every public name, and what it shows runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tensortide
from tensortide.cli.app import VERBS

PAGE = (Path(__file__).parent.parent / "docs/python.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)
BLOCKS = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)


def test_every_verb_has_a_public_function() -> None:
    assert {verb for verb, *_ in ROWS} == {name for verbs in VERBS.values() for name in verbs}
    for verb, functions, *_ in ROWS:
        found = re.findall(r"`(\w+)`", functions)
        assert found, verb
        assert {*found} <= {*tensortide.__all__}, verb


def test_every_public_name_stands_on_the_page() -> None:
    assert {name for name in tensortide.__all__ if f"`{name}`" not in PAGE} == set()


@pytest.mark.slow
def test_what_the_page_shows_runs_one_block_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in BLOCKS:
        exec(block, names)
    printed = capsys.readouterr().out
    assert printed.startswith("<ModelVerdict yes: needs ")
    assert len(BLOCKS) == 3
