"""Commands to paste for a file that names no function: the file as a script, and the workloads in it."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

from tensortide.errors import WorkloadError

_MOST = 5
"""Most functions to name."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def commands(target: str) -> str:
    """Suggest commands for the Python file ``target``, judging by its source text.

    Raises WorkloadError for a file that does not exist or is not Python.
    """
    try:
        tree = ast.parse(Path(target).read_bytes())
    except OSError as error:
        raise WorkloadError(f"cannot read {target}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise WorkloadError(f"{target} is not Python: {error}") from None
    file = shlex.quote(target)
    found = [f"tensortide report -- python {file}  # the script, unchanged: its second training step"] * _trains(tree)
    found += [f"tensortide report {file}:{name}  # {what}" for what, name in list(_workloads(tree))[:_MOST]]
    if not found:
        return (
            f"{target} names no function, and nothing in it looks like a training step. Name a function that builds a "
            f"model and returns one training step ({target}:FUNCTION), or a training script (-- python train.py)"
        )
    return "\n  ".join([f"{target} names no function. Write" + " one of" * (len(found) > 1), *found])


def _workloads(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Functions that can be called without arguments: those that return a function, then those that run backward."""
    callable_ = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not _required(node)]
    builders = [node for node in callable_ if _returns_function(node)]
    for node in builders:
        yield "a workload: returns a step", node.name
    for node in callable_:
        if node not in builders and _calls(node, "backward") and not any(map(_loops_backward, ast.walk(node))):
            yield "one step: runs backward", node.name


def _loops_backward(node: ast.AST) -> bool:
    return isinstance(node, (ast.For, ast.While)) and _calls(node, "backward")


def _required(node: _Function) -> bool:
    arguments = node.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional > 0 or None in arguments.kw_defaults


def _returns_function(node: ast.FunctionDef) -> bool:
    inner = {each.name for each in node.body if isinstance(each, _Function)}
    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    return any(isinstance(v, ast.Lambda) or (isinstance(v, ast.Name) and v.id in inner) for v in returned)


def _trains(tree: ast.Module) -> bool:
    """True for a file that runs code at its top level and calls a training method."""
    defines = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    runs = any(not isinstance(node, defines) and not _is_text(node) for node in tree.body)
    return runs and any(_calls(tree, name) for name in ("backward", "step", "train", "fit"))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _calls(node: ast.AST, method: str) -> bool:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == method for func in calls)
