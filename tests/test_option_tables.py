"""docs/options.md has the options that the verbs take."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from scripts.option_tables import PAGE, _row, _with_inner, every_command, own_options, page, requests
from tensortide.cli.app import VERBS
from tests.graphs import path_of
from tests.toy_request import Inner, Made, Toy


def test_the_page_has_the_options_of_every_verb() -> None:
    assert PAGE.read_text("utf-8") == page(), "options have changed: python -m scripts.option_tables writes the page"


def test_the_example_of_the_page_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(path_of("mlp"), tmp_path / "step.tide")
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
    exec(example, {})
    said = [text for line in re.findall(r"print\(.+  # (.+)", example) for text in line.split(", then ")]
    assert capsys.readouterr().out.splitlines() == said


def test_every_command_is_made_of_requests() -> None:
    found = {path: requests(command) for path, command in every_command()}
    names = {name for verbs in VERBS.values() for name in verbs}
    assert {path[0] for path in found} == names
    assert len(found) > len(names)
    assert all(found.values())


def test_a_row_has_what_an_option_takes() -> None:
    assert [*_with_inner(Toy)] == [(Toy, ""), (Inner, "inner")]
    rows = {one.field.name: _row(one) for kind in (Toy, Inner, Made) for one in own_options(kind)}
    assert rows["target"] == "| **`TARGET`** | a text | must be given | A target. |"
    assert rows["budget"] == "| `--budget` | bytes, as 8GiB |  | Memory: 8GiB. |"
    assert rows["budgets"] == "| `--budgets` | bytes, as 8GiB, several |  | Several. |"
    assert rows["ratio"] == "| `--ratio`, `-r` | a finite number from 0 up to 1 | `0.5` | A ratio; by default half. |"
    assert rows["count"] == "| `--count` | a whole number from 2 or auto | `auto` | How many, or auto. |"
    assert rows["listed"] == "| `--list` (`listed`) |  |  | List them. |"
    assert rows["clock"] == "| `--clock` | wall or thread | `wall` | Which clock. |"
    assert rows["names"] == "| `--names` | a text, several | `a` `b` | Names. |"
    assert "secret" not in rows
