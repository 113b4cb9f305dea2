"""Documentation: its links lead somewhere; the commands, modules and source files that it names exist."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import CycloptsError, MissingArgumentError

from tensortide.cli.app import application
from tensortide.cli.scripts import with_script
from tensortide.run.traced import LiveStep
from tensortide.run.usage import Usage

ROOT = Path(__file__).parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = [ROOT / "CONTRIBUTING.md", ROOT / "benchmarks/README.md"]  # they name what is yet to be added


def each(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


def broken_links(page: Path) -> Iterator[str]:
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield f"{path}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of ``page``, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def code(text: str) -> Iterator[str]:
    """Lines of code blocks, and code spans."""
    for block in re.split(r"^ *```", text, flags=re.MULTILINE)[1::2]:
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))


def wrong_commands(text: str) -> Iterator[str]:
    """Commands of which a verb or an option does not exist; a mention may leave out arguments."""
    for command in code(text):
        if command.startswith("tensortide ") and (wrong := refused(command)):
            yield f"{command}: {wrong}"


@functools.cache
def refused(command: str) -> str:
    """Why the command line refuses a command; nothing if it does not, or only misses an argument."""
    words = with_script(shlex.split(command.partition(" | ")[0], comments=True)[1:])
    try:
        application(words).parse_args(words, exit_on_error=False, print_error=False)
    except MissingArgumentError:
        pass
    except CycloptsError as error:
        return str(error)
    return ""


def missing_sources(text: str) -> Iterator[str]:
    """Source files and dotted names that do not exist; a name in a module is looked for in its text."""
    for piece in code(text):
        for path in re.findall(r"^(?!\.)[\w/]+/\w+\.py$", piece):
            if not (ROOT / path).exists() and not (ROOT / "src/tensortide" / path).exists():
                yield path
        names = re.findall(r"(?<![\w\"])tensortide((?:\.\w+)+)(?![\w/])", piece)
        for module, imported in re.findall(r"^from tensortide([\w.]*) import ([\w, ]+)", piece):
            names += [f"{module}.{name.strip()}" for name in imported.split(",")]
        for name in names:
            place, rest = ROOT / "src/tensortide", name.split(".")[1:]
            while rest and ((place / rest[0]).is_dir() or (place / f"{rest[0]}.py").is_file()):
                place /= rest.pop(0)
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            if name == ".toml":  # the file of checks
                continue
            if rest and not re.search(rf"\b{rest[0]}\b", file.read_text()) and f'"tensortide{name}"' not in PROJECT:
                yield f"tensortide{name}"


@each([*PAGES, *OTHERS])
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page)) == []


@each(PAGES)
def test_commands_and_sources_exist(page: Path) -> None:
    text = page.read_text()
    assert list(wrong_commands(text)) == []
    assert list(missing_sources(text)) == []


def missing_of_rows(text: str) -> Iterator[str]:
    """Files of table rows that are neither in the package nor in the tests, and names that these files do not define.

    A row may leave out folders that the text above its table names; files with NAME in them are yet to be added.
    """
    tops = [ROOT / "src/tensortide", ROOT / "tests"]
    folders = [ROOT, *tops, *(each for top in tops for each in top.rglob("*") if each.is_dir())]
    for row in re.findall(r"^\|.+\|$", text, re.MULTILINE):
        for path, names in re.findall(r"`([\w/]+\.py)`(?:,|:)?((?: `\w+`,?)*)", row):
            found = [folder / path for folder in folders if (folder / path).is_file()]
            if "NAME" not in path and not found:
                yield path
            for name in re.findall(r"`(\w+)`", names):
                made = re.compile(rf"^(?: *(?:def|class) )?{name}\b", re.MULTILINE)
                if found and not any(made.search(file.read_text()) for file in found):
                    yield f"{path}: {name}"


def test_rows_of_tables_for_contributors_name_what_exists() -> None:
    assert list(missing_of_rows((ROOT / "CONTRIBUTING.md").read_text())) == []


def test_every_field_of_usage_stands_in_its_table() -> None:
    section = (ROOT / "docs/run.md").read_text().partition("\n## Usage\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE)
    properties = [name for name, member in vars(Usage).items() if isinstance(member, property)]
    assert [name for name, _ in rows] == [*(field.name for field in dataclasses.fields(Usage)), *properties]


def test_attributes_of_a_live_step_exist() -> None:
    part = (ROOT / "docs/run.md").read_text().partition("`memory.steps` has")[2].partition("\n## ")[0]
    names = re.findall(r"`(\w+)(?:\(\))?`", part.partition("`Timeline`")[0] + part.partition("durations), and")[2])
    assert {"plan", "replayed", "run_ns"} <= {*names}
    assert [name for name in names if not hasattr(LiveStep, name)] == []


def test_commands_of_paleo_read_files_that_there_are() -> None:
    nets = re.findall(r"place paleo (\S+)", (ROOT / "docs/paleo.md").read_text())
    assert len(nets) == 2
    assert all((ROOT / net).is_file() for net in nets)


def test_what_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Here it is\n[a](none.md) [b](#here-it-is) [c](#there)\n")
    assert list(broken_links(page)) == ["none.md#", "#there"]
    text = (
        "`tensortide repart x` `tensortide report x --nothing` `tensortide run` `run/none.py` `tensortide.run.none`\n"
    )
    assert [command.partition(":")[0] for command in wrong_commands(text)] == [
        "tensortide repart x",
        "tensortide report x --nothing",
    ]
    assert list(missing_sources(text)) == ["run/none.py", "tensortide.run.none"]
    rows = "| a | `run/none.py`, `run/repeat.py`: `Nothing` | `recorder/values.py`, `Values`, `none/NAME.py` |\n"
    assert list(missing_of_rows(rows)) == ["run/none.py", "run/repeat.py: Nothing"]


@each(sorted((ROOT / "docs/importers").glob("*.md")))
def test_a_page_of_an_importer_says_what_is_read_assumed_and_refused(page: Path) -> None:
    text = page.read_text()
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    for part in ("What is read", "What is assumed", "What is (unknown or )?refused"):
        assert any(re.match(part, heading) for heading in headings), part
    assert len(re.findall(r"^```", text, re.MULTILINE)) >= 4, "a command, and what it prints"
    for index in ("README.md", "docs/files.md"):
        assert f"importers/{page.name}" in (ROOT / index).read_text()
