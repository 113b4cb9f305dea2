"""Private names of PyTorch are reached through the modules that list them, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tensortide.collector import no_collection
from tensortide.recorder import torch_compat

for_budgets: Any = pytest.importorskip("tensortide.run.torch_compat", exc_type=ImportError)

PACKAGE = Path(torch_compat.__file__).parent.parent
LISTS = ("recorder/torch_compat.py", "run/torch_compat.py", "recorder/compiled.py")
"""The modules that list them: the last one is all that uses PyTorch's compiler."""
PYTHONS = {
    *("_asdict", "_current_frames", "_fields", "_getframe", "_is_owned", "_lru_cache_wrapper", "_make"),
    "_replace",
    *("_PyEval_SetProfile", "_Unpickler", "_setprofileallthreads"),
}
"""Names of Python's own."""
ATTRIBUTES = {
    owner: (*torch_compat.ATTRIBUTES.get(owner, ()), *for_budgets.ATTRIBUTES.get(owner, ()))
    for owner in {**torch_compat.ATTRIBUTES, **for_budgets.ATTRIBUTES}
}
LISTED = {name for names in ATTRIBUTES.values() for name in names} | {*for_budgets.OPTIONAL}
LEAVES = (ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)
ASKING = ("delattr", "getattr", "hasattr", "replaced", "setattr")
"""Functions that take a name as text."""
USE = re.compile(
    r"\.(?<!\bself\.)(?<!\bcls\.)_[A-Za-z]|^ *(?:from|import) torch[^()\n]*(?:\([^()]*)?\b_[A-Za-z]", re.MULTILINE
)
ASKED = re.compile(rf"\b(?:{'|'.join(ASKING)})\(")
TEXT = re.compile(r"[\"']_[A-Za-z]")


def is_private(name: str) -> bool:
    return name.startswith("_") and name.strip("_") != "" and not name.startswith("__")


def dotted(node: ast.expr) -> list[str]:
    """The names of ``a.b.c``; none of any other expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    return [*names, node.attr] if isinstance(node, ast.Attribute) and (names := dotted(node.value)) else []


def defined(nodes: list[ast.AST]) -> set[str]:
    """Names that a file itself defines."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return found


def looked_up_late(nodes: list[ast.AST]) -> set[int]:
    """Private names of the dispatcher's ops in functions, by ``id``: a version without the op can import the file."""
    attributes = (node for node in nodes if isinstance(node, ast.Attribute) and is_private(node.attr))
    found = {id(node) for node in attributes if dotted(node)[:1] == ["_aten"] or dotted(node)[:2] == ["torch", "ops"]}
    functions = (node for node in nodes if found and isinstance(node, (ast.FunctionDef, ast.Lambda)))
    return found & {id(node) for function in functions for node in ast.walk(function)}


def uses(nodes: list[ast.AST]) -> Iterator[str]:
    """Private names that a file uses, and that are not listed: PyTorch's, or the package's own, without a dot."""
    late, known = looked_up_late(nodes), LISTED | PYTHONS
    for node in nodes:
        match node:
            case ast.Import():
                yield from (a.name for a in node.names if a.name.startswith("torch") and private_path(a.name))
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] == "torch":
                yield from (f"{module}.{a.name}" for a in node.names if private_path(f"{module}.{a.name}"))
            case ast.Attribute(attr=name) if is_private(name) and id(node) not in late:
                path = dotted(node)
                if path[:1] == ["torch"]:
                    yield from [".".join(path)] if name not in LISTED else []
                elif path[:1] not in (["self"], ["cls"]):
                    yield from [name] if name not in known else []
            case ast.Call(func=ast.Name(id=function)) if function in ASKING:
                texts = (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
                yield from (text for text in texts if is_private(text) and text not in known)


def may_use(source: str) -> bool:
    """Whether ``source`` can use a private name of something else: a file without any is not parsed."""
    return USE.search(source) is not None or (TEXT.search(source) is not None and ASKED.search(source) is not None)


def private_path(path: str) -> bool:
    return any(map(is_private, path.split(".")))


def parsed(source: str) -> list[ast.AST]:
    """All nodes that can define or use a name: constants and contexts, half of all nodes, are left out."""
    found: list[ast.AST] = [ast.parse(source)]
    for node in found:
        for name in node._fields:
            value = getattr(node, name)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST) and not isinstance(each, LEAVES)]
            elif isinstance(value, ast.AST) and not isinstance(value, LEAVES):
                found.append(value)
    return found


def test_private_names_are_reached_through_the_modules_that_list_them() -> None:
    sources = {str(path.relative_to(PACKAGE)): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    own: set[str] = set()
    with no_collection():
        for path in filter(lambda path: may_use(sources[path]), sources):
            nodes = parsed(sources[path])
            own |= defined(nodes)
            found[path] = {*uses(nodes)}
        unknown = {name for path, names in found.items() if path not in LISTS for name in names - own}
        for path in sources.keys() - found.keys():
            if any(name in sources[path] for name in unknown):
                own |= defined(parsed(sources[path]))
    assert len(found) > 100
    assert {path: names - own for path, names in found.items() if path not in LISTS and names - own} == {}


@pytest.mark.parametrize(
    "line",
    [
        "import torch._ops",
        "from torch._C import something",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter",
        "torch._C._get_tracing_state()",
        "tensor._some_new_attribute",
        "getattr(tensor, '_some_new_attribute', None)",
        "TABLE = {torch.ops.aten._grouped_mm.default: 1}",
    ],
)
def test_the_check_sees_a_private_name(line: str) -> None:
    assert may_use(line)
    assert len([*uses(parsed(line))]) >= 1


INSTANCES = {
    torch.nn.Module: torch.nn.Module(),
    torch.autograd.graph.Node: torch.ones(1, requires_grad=True).exp().grad_fn,
    torch.autocast: torch.autocast("cpu", enabled=False),
}


@pytest.mark.parametrize("owner", ATTRIBUTES, ids=lambda owner: str(getattr(owner, "__name__", owner)))
def test_listed_attributes_are_there(owner: Any) -> None:
    found = INSTANCES.get(owner, owner)
    assert [name for name in ATTRIBUTES[owner] if not hasattr(found, name)] == []
