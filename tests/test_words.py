"""Docstrings can be read alone: they open with a verb or a noun phrase, not with a bare relative word."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tensortide.collector import no_collection
from tests.conftest import ROOT

BARE = {"What", "Whether", "Where", "How", "Who", "When", "Which", "Why"} | {
    "That",
    "Those",
    "Whatever",
    "Of",
    "By",
    "So",
}
MOST = 28
"""Docstrings that may open with one of them, a quarter of a percent. May be lowered, never raised."""

OPENING = re.compile(rf"""^ *[rR]?["']{{3}}[\s`*,.;:'"]*(?:{"|".join(sorted(BARE))})\b""", re.MULTILINE)

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """Place and text of every docstring of these files, if one of them can open with a bare word."""
    for path in paths:
        source = path.read_text("utf-8")
        for node in statements(ast.parse(source)) if OPENING.search(source) else ():
            text = ast.get_docstring(node, clean=False) if isinstance(node, DOCUMENTED) else None
            if text and text.strip():
                yield f"{path}:{getattr(node, 'lineno', 1)}", text.strip()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and the statements in it, without their expressions, in which no docstring stands."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(child)


def opens_bare(text: str) -> bool:
    """True if it does not open with a verb or a noun; a question, as that of a request, can be read alone."""
    is_question = re.split(r"(?<=[.?])\s", text.strip(), maxsplit=1)[0].endswith("?")
    return not is_question and text.split()[0].strip("`*,.;:'\"") in BARE


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    with no_collection():
        found = list(docstrings(sorted((ROOT / "src").rglob("*.py"))))
    offenders = [f"{place}: {text.splitlines()[0]}" for place, text in found if opens_bare(text)]
    print(*offenders, len(offenders), sep="\n")  # noqa: T201
    assert 0 < len(offenders) <= MOST


def test_the_check_sees_a_bare_word(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""A module."""\n\n\ndef f() -> None:\n    r"""\n    ``What`` f does."""\n', "utf-8")
    texts = [text for _, text in docstrings([path])]
    assert [opens_bare(text) for text in texts] == [False, True]
    assert opens_bare("Whether it fits.")
    assert opens_bare("What: a thing")
    assert not opens_bare("Whatsit.")
    assert not opens_bare("What does one step cost?")
    assert opens_bare("What it costs. Or does it?")
    assert not opens_bare("Return what fits.")
