"""Help: the first screen, and the screens of verbs, as a person reads them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.option_tables import every_command
from tensortide.cli.app import VERBS
from tensortide.cli.help import common, every_option, grouped, value_of
from tensortide.examples import find
from tensortide.request import Arg, Option
from tests.cli.command import called, on_terminal, tensortide

COMMANDS = [*every_command()]
EXAMPLES = {name: verb.example for verbs in VERBS.values() for name, verb in verbs.items() if verb.example}
FIRST_COLUMN = re.compile(r"^  (\S.*?)(?:  |$)", re.MULTILINE)


def screen(folder: Path, *typed: str, columns: int = 80) -> str:
    done = called(folder, *typed, COLUMNS=str(columns))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def of_commands(check: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(check, COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS])


@pytest.mark.parametrize("typed", [(), ("--help",), ("-h",), ("--help-all",)])
def test_the_first_screen_is_one_screen(tmp_path: Path, typed: Sequence[str]) -> None:
    lines = screen(tmp_path, *typed).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert lines[0].endswith("?")
    assert "tensortide VERB --help" in lines[-1]
    assert "--help-all" in lines[-1]
    assert "--version" in lines[-1]


def test_the_first_screen_has_every_verb_once_in_its_group(tmp_path: Path) -> None:
    text = screen(tmp_path, columns=100)  # at which each is a line
    assert [*EXAMPLES] == ["fit", "report", "count", "time", "compare"]
    for title, verbs in VERBS.items():
        part = next(part for part in text.split("\n\n") if part.startswith(f"{title}\n"))
        rows = [re.split(r"\s{2,}", line.strip()) for line in part.splitlines()[1:]]
        assert rows == [[f"tensortide {v.example}" if v.example else name, v.summary] for name, v in verbs.items()]


def test_the_first_commands_name_their_verb_and_targets_that_there_are() -> None:
    for name, example in EXAMPLES.items():
        verb, target, *_ = example.split()
        assert verb == name
        assert find(target).name == target


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_the_first_commands_run_as_they_stand(tmp_path: Path, example: str) -> None:
    done = tensortide(tmp_path, *example.split())
    assert done.returncode == 0, done.stderr
    assert "gpt2" in done.stdout


def test_headings_are_bold_on_a_terminal(tmp_path: Path) -> None:
    seen = on_terminal(tmp_path, "--help", COLUMNS="80")
    assert "\x1b[1mStart here\x1b[0m" in seen.stdout
    assert "\x1b" not in on_terminal(tmp_path, "--help", COLUMNS="80", TERM="dumb").stdout


@pytest.mark.parametrize("width", [20, 60, 120])
def test_help_is_read_at_any_width(tmp_path: Path, width: int) -> None:
    for typed in ((), ("place",)):
        seen = on_terminal(tmp_path, *typed, "--help-all", COLUMNS=str(width), LINES="25", TERM="dumb").stdout
        assert len(seen.splitlines()) > 20
        assert width < 60 or max(map(len, seen.splitlines())) <= width


def test_the_first_screen_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom tensortide.cli import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'numpy', 'tensortide.graph', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@of_commands("path_command")
def test_help_shows_few_options_and_help_all_every_one(tmp_path: Path, path_command: tuple[Any, Any]) -> None:
    path, command = path_command
    every = every_option(command)
    few, whole = screen(tmp_path, *path, "--help"), screen(tmp_path, *path, "--help-all")
    assert 1 <= len(common(every)) <= 12
    assert rows_of(few, common(every)) == len(common(every))
    assert rows_of(whole, every) == len(every)
    left = len(every) - len(common(every))
    name = f"tensortide {' '.join(path)}"
    assert few.startswith(f"Usage: {name} ")
    assert few.rstrip().endswith(f"{left} more options: {name} --help-all") is bool(left)
    assert "more options" not in whole


def rows_of(text: str, shown: Sequence[Option]) -> int:
    """The number of ``shown`` options that ``text`` has a row for; it has no others."""
    body = text.partition("\nVerbs: ")[0]
    names = FIRST_COLUMN.findall(body)
    found = {one.name for one in shown for name in names if re.split(r"[ ,.]", name)[0] == one.name}
    assert {re.split(r"[ ,.]", name)[0] for name in names} == found
    return len(found)


@of_commands("path_command")
def test_every_option_has_a_heading_and_a_value_that_say_something(path_command: tuple[Any, Any]) -> None:
    for heading, some in grouped(every_option(path_command[1])).items():
        assert heading[:1].isupper(), some
        assert heading not in ("Parameters", "Options")
        for one in some:
            if not isinstance(one.opt, Arg):
                assert "TEXT" not in value_of(one), one.name
                assert (value_of(one) == "") is (one.kinds == (bool,)), one.name


@of_commands("path_command")
def test_arguments_come_first_and_the_output_last(path_command: tuple[Any, Any]) -> None:
    every = every_option(path_command[1])
    arguments = [isinstance(one.opt, Arg) for one in every]
    assert arguments == sorted(arguments, reverse=True)
    headings = [*grouped(every)]
    assert headings[-1] == "Output"
    shared = [one.field.name for one in every if one.field.name in ("set", "machines", "html", "json")]
    assert shared == [name for name in ("set", "machines", "html", "json") if name in shared]


def test_no_help_text_tells_its_default_twice() -> None:
    for path, command in COMMANDS:
        for one in every_option(command):
            assert "Repeatable" not in one.opt.help, (path, one.name)  # it is said of all that may be
            assert one.opt.help.count("default") <= 1, (path, one.name)


def test_what_must_be_given_is_in_the_usage_and_in_the_help(tmp_path: Path) -> None:
    text = screen(tmp_path, "draw", "--help")
    assert text.startswith("Usage: tensortide draw TARGET --output FILE [OPTIONS]\n")
    assert "Required." in text


def test_verbs_of_a_verb_are_named_with_a_line_each(tmp_path: Path) -> None:
    text = screen(tmp_path, "time", "--help")
    assert text.startswith("Usage: tensortide time [TARGET] [OPTIONS]\n       tensortide time VERB ...\n")
    part = text.partition("Verbs: tensortide time VERB --help\n")[2]
    assert re.findall(r"^  (\w+) +\w", part, re.MULTILINE) == ["steady", "calibrate"]
    alone, asked = screen(tmp_path, "remat"), screen(tmp_path, "remat", "--help")
    assert alone == asked
    assert alone.startswith("Usage: tensortide remat VERB ...\n")


@pytest.mark.parametrize("verb", [(), ("fit",), ("plan", "order")])
def test_help_is_a_verb_too(tmp_path: Path, verb: Sequence[str]) -> None:
    assert screen(tmp_path, "help", *verb) == screen(tmp_path, *verb, "--help")


def test_help_after_the_dashes_is_of_the_script(tmp_path: Path) -> None:
    done = called(tmp_path, "fit", "--", "python", "none.py", "--help-all")
    assert done.returncode == 2
    assert "Usage" not in done.stdout
