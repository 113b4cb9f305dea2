"""Docstrings can be read alone: they open with a verb or a noun phrase, not with a bare relative word."""

from __future__ import annotations

import ast
from collections.abc import Iterator

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
MOST = 0.003
"""Share of docstrings that may open with one of them. May be lowered, never raised."""

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstrings() -> Iterator[tuple[str, str]]:
    """Place and text of every docstring of the package."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in statements(ast.parse(path.read_text("utf-8"))):
            text = ast.get_docstring(node, clean=False) if isinstance(node, DOCUMENTED) else None
            if text and text.strip():
                yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text.strip()


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """``node`` and the statements in it, without their expressions, in which no docstring stands."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from statements(child)


def opens_bare(text: str) -> bool:
    return text.split()[0].strip("`*,.;:'\"") in BARE


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    with no_collection():
        found = list(docstrings())
    offenders = [f"{place}: {text.splitlines()[0]}" for place, text in found if opens_bare(text)]
    print(*offenders, f"{len(offenders)} of {len(found)}, {len(offenders) / len(found):.1%}", sep="\n")  # noqa: T201
    assert len(offenders) <= MOST * len(found)


def test_the_check_sees_a_bare_word() -> None:
    assert opens_bare("Whether it fits.")
    assert opens_bare("What: a thing")
    assert not opens_bare("Whatsit.")
    assert not opens_bare("Return what fits.")
