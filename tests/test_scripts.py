"""The scripts that developers run: which tests a change needs, and lines that count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scripts.quick import targets
from scripts.room_sizes import code_lines, sizes

SOURCE = '''"""A module.

Of two lines."""

# A comment.
x = """text
that counts"""
"""Said of x."""


def f() -> None:
    """Do nothing."""  # twice
    return  # once
'''


def test_a_change_runs_the_tests_of_its_room(tmp_path: Path) -> None:
    for room in ("cost", "graph"):
        (tmp_path / "tests" / room).mkdir(parents=True)
    (tmp_path / "tests" / "test_import.py").touch()
    assert targets(["src/tensortide/cost/rules/linalg.py", "README.md"], tmp_path) == ["tests/cost"]
    assert targets(["tests/graph/test_model.py", "src/tensortide/cost/a.py"], tmp_path) == ["tests/cost", "tests/graph"]
    assert targets(["src/tensortide/units.py"], tmp_path) == ["tests/test_import.py"]
    assert targets(["src/tensortide/gone/a.py"], tmp_path) == ["tests/test_import.py"]
    assert targets(["docs/cost.md", "src/other.py"], tmp_path) == []


def test_lines_of_code_are_those_that_do_something() -> None:
    assert code_lines(SOURCE) == 4


def test_a_renamed_room_is_counted_as_the_new_one() -> None:
    def sources() -> Iterator[tuple[str, str]]:
        yield from (("capture/a.py", "x = 1\n"), ("capture/g10/b.py", "y = 1\n\n"), ("units.py", "# nothing\n"))

    lines, code = sizes(sources(), {"capture": "recorder", "capture/g10": "importers"})
    assert lines == {"recorder": 1, "importers": 2, "(top)": 1}
    assert code == {"recorder": 1, "importers": 1, "(top)": 0}
