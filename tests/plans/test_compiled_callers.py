"""Functions that are compiled into others are called by compiled functions alone: Python would interpret them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import tensortide
from tensortide.collector import no_collection

Name = tuple[str, str]
"""A module, and a name in it."""
COMPILED = "tensortide.compiled"
PARTS, ENTRIES = ("compiled", "making_arrays"), ("entry", "entry_making_arrays", "entry_with")


class Part(NamedTuple):
    """A statement of a module with its name, and the names and imports in it."""

    name: str
    names: list[ast.Name | ast.Attribute]
    imports: list[ast.Import | ast.ImportFrom]


class Sources:
    """Modules by name, with the functions of each that are compiled."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.trees = {module: ast.parse(text) for module, text in texts.items()}
        self.parts = {module: [*map(_part, tree.body)] for module, tree in self.trees.items()}
        self.imported = {module: _imported(parts) for module, parts in self.parts.items()}
        self.decorated: dict[Name, str] = {}
        for module, tree in self.trees.items():
            for node in tree.body:
                for each in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
                    called = each.func if isinstance(each, ast.Call) else each
                    origin, name = self.origin(module, called) or ("", "")
                    if origin == COMPILED and isinstance(node, ast.FunctionDef):
                        self.decorated[module, node.name] = name
        self.names = self._names()

    def _names(self) -> set[str]:
        """Names of compiled functions, and those under which modules import them: no other name leads to one."""
        names, more = set[str](), {name for _, name in self.decorated}
        while more - names:
            names |= more
            pairs = (pair for imported in self.imported.values() for pair in imported.items())
            more = {name for name, (_, origin) in pairs if origin in names}
        return names

    def origin(self, module: str, node: ast.AST) -> Name | None:
        """Where the name that ``node`` is was defined; None of what is no name, or an attribute of no module."""
        if isinstance(node, ast.Name):
            found = self.imported[module].get(node.id, (module, node.id))
        elif isinstance(node, ast.Attribute) and (of := self.origin(module, node.value)) is not None:
            found = (".".join(filter(None, of)), node.attr)
        else:
            return None
        while (further := self.imported.get(found[0], {}).get(found[1])) not in (None, found):
            found = further
        return found

    def uses(self, module: str) -> Iterator[tuple[str, Name]]:
        """Each compiled function that ``module`` names, with the compiled function around it, or an empty name."""
        for part in self.parts[module]:
            inside = part.name if (module, part.name) in self.decorated else ""
            for node in part.names:
                name = node.id if isinstance(node, ast.Name) else node.attr
                if name in self.names and isinstance(node.ctx, ast.Load):
                    found = self.origin(module, node)
                    if found in self.decorated:
                        yield inside, found

    def misused(self) -> list[str]:
        """Functions that Python code names though they are compiled into others, and entries that it never names."""
        by_python = {used for module in self.trees for inside, used in self.uses(module) if not inside}
        return [
            f"{name} of {module}: {decorator}"
            for (module, name), decorator in self.decorated.items()
            if (decorator in PARTS) == ((module, name) in by_python)
        ]


def _part(top: ast.stmt) -> Part:
    nodes = [*ast.walk(top)]
    names = [node for node in nodes if isinstance(node, ast.Name | ast.Attribute)]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return Part(getattr(top, "name", ""), names, imports)


def _imported(parts: Iterable[Part]) -> dict[str, Name]:
    found: dict[str, Name] = {}
    for node in (node for part in parts for node in part.imports):
        if isinstance(node, ast.Import):
            found.update({each.asname: (each.name, "") for each in node.names if each.asname})
        elif node.module:
            found.update({each.asname or each.name: (node.module, each.name) for each in node.names})
    return found


IMPORT = re.compile(r"^ *(?:from [\w.]+ )?import ((?:\([^()]*)?[^()\n]*)", re.MULTILINE)


def own_sources() -> dict[str, str]:
    """The modules of the project, by name, that define compiled functions, or import a name of one or of its module,
    under whatever other name."""
    root = Path(tensortide.__file__).parent
    texts = {path.relative_to(root.parent): path.read_text("utf-8") for path in root.rglob("*.py")}
    with_compiled = {path: text for path, text in texts.items() if f"from {COMPILED} import" in text}
    names = {path.stem for path in with_compiled}
    names |= {name for text in with_compiled.values() for name in re.findall(r"^def (\w+)", text, re.MULTILINE)}
    imports = {path: " ".join(IMPORT.findall(text)) for path, text in texts.items()}
    found: dict[Path, list[str]] = {}
    more = names
    while more:
        words = re.compile(rf"\b(?:{'|'.join(names)})\b(?: as (\w+))?")
        found = {path: words.findall(text) for path, text in imports.items()}
        more = {alias for aliases in found.values() for alias in aliases if alias} - names
        names |= more
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): text
        for path, text in texts.items()
        if path in with_compiled or found[path]
    }


@no_collection()
def test_python_calls_entries_and_no_part_of_a_compiled_function() -> None:
    sources = Sources(own_sources())
    assert {*sources.decorated.values()} == {*PARTS, *ENTRIES}
    assert not sources.misused()


def test_misuse_is_found() -> None:
    text = f"""
from {COMPILED} import compiled, entry, making_arrays
@compiled
def part(a): return a
@making_arrays
def filled(n): return part(n)
@entry
def run(n): return filled(n)
@entry
def unused(n): return part(n)
"""
    calling = """
import numpy as np
import kernels as k
from package import run
def python(n): return run(np.zeros(n))
"""
    modules = {"kernels": text, "package": "from kernels import run, part\n", "caller": calling}
    assert Sources(modules).misused() == ["unused of kernels: entry"]
    for named, used in {"part": "[part(i) for i in range(2)]", "filled": "k.filled"}.items():
        text = f"import kernels as k\nfrom package import part\nk.unused(1)\ndef f(): return {used}\n"
        assert Sources({**modules, "other": text}).misused() == [
            f"{named} of kernels: {'compiled' if named == 'part' else 'making_arrays'}"
        ]
