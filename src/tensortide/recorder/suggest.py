"""A Python file judged by its source text: is it a script, with which options, and which workloads are in it; commands
to paste for one that names no function."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from tensortide.errors import WorkloadError

_MOST = 5
"""Most functions to name."""
_OPTION = re.compile(r"--?[^\W\d_][\w-]*")
_PARSES = re.compile(r"parse_(known_|intermixed_)?args")
_COMMAND = re.compile(r"\.(command|main)\b")
"""Decorators that read the command line: those of click, typer, hydra."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed(target: str) -> ast.Module:
    """The syntax tree of the Python file ``target``. Raises WorkloadError if it cannot be read or is not Python."""
    try:
        return ast.parse(Path(target).read_bytes())
    except OSError as error:
        raise WorkloadError(f"cannot read {target}: {error.strerror or error}") from None
    except (SyntaxError, ValueError) as error:
        raise WorkloadError(f"{target} is not Python: {error}") from None


def commands(target: str, asked: str = "", arguments: str = "") -> str:
    """Suggest targets for the Python file ``target``, judging by its source text, or commands that begin with
    ``asked``; ``arguments`` are those of a script. Raises WorkloadError for a file that cannot be read or is not
    Python."""
    tree, file = parsed(target), shlex.quote(target)
    asked += " " * bool(asked)
    script = f"{asked}-- python {file}{arguments}  # the script, unchanged: its second training step"
    found = [script] * runs_alone(tree)
    found += [f"{asked}{file}:{name}  # {what}" for what, name in list(workloads(tree))[:_MOST]]
    if not found:
        return (
            f"{target} names no function, and nothing in it looks like a training step. Name a function that builds a "
            f"model and returns one training step ({target}:FUNCTION), or a training script (-- python train.py)"
        )
    return "\n  ".join([f"{target} names no function. Write" + " one of" * (len(found) > 1), *found])


def options_in(tree: ast.Module) -> frozenset[str]:
    """The options that a script declares in its own text: ``--lr``."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(text for text in texts if _OPTION.fullmatch(text))


def option_for(file: str, name: str) -> str:
    """The option of the script in ``file`` that sets ``name``; "" if its text declares none like it."""
    try:
        near = get_close_matches(f"--{name.replace('_', '-')}", options_in(parsed(file)), 1)
    except WorkloadError:  # what runs it says what is wrong
        return ""
    return near[0] if near else ""


def reads_arguments(tree: ast.Module, function: str) -> bool:
    """True if the ``function`` of a file reads the arguments of the command line, or one of the file's that it
    calls."""
    functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
    seen, left = set[str](), [function]
    while left:
        name = left.pop()
        if name in seen or name not in functions:
            continue
        seen.add(name)
        if any(_COMMAND.search(ast.unparse(each)) for each in functions[name].decorator_list):
            return True
        for node in ast.walk(functions[name]):
            word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            if word == "argv" or _PARSES.match(word):
                return True
            left.append(word)
    return False


def loops_over_steps(tree: ast.Module, function: str) -> bool:
    """True if the ``function`` of a file trains in a loop of its own, and is a builder of no step."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return any(
        not _returns_function(each) and any(_loops_backward(node) and _calls(node, "step") for node in ast.walk(each))
        for each in found
    )


def missing(tree: ast.Module, function: str) -> list[str]:
    """Parameters of the ``function`` of a file that have no default."""
    found = [node.args for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function]
    return [name for arguments in found for name in _required(arguments)]


def workloads(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Functions that can be called without arguments: those that return a function, then those that run backward."""
    callable_ = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not _required(node.args)]
    builders = [node for node in callable_ if _returns_function(node)]
    for node in builders:
        yield "a workload: returns a step", node.name
    for node in callable_:
        if node not in builders and _calls(node, "backward") and not any(map(_loops_backward, ast.walk(node))):
            yield "one step: runs backward", node.name


def _loops_backward(node: ast.AST) -> bool:
    return isinstance(node, (ast.For, ast.While)) and _calls(node, "backward")


def _required(arguments: ast.arguments) -> list[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    without = positional[: len(positional) - len(arguments.defaults)]
    return [each.arg for each in (*without, *(each for each, default in named if default is None))]


def _returns_function(node: ast.FunctionDef) -> bool:
    inner = {each.name for each in node.body if isinstance(each, _Function)}
    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    return any(isinstance(v, ast.Lambda) or (isinstance(v, ast.Name) and v.id in inner) for v in returned)


def runs_alone(tree: ast.Module) -> bool:
    """True for a file that is a script: it has a main guard, or runs code at its top level and calls a training
    method."""
    defines = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    runs = [node for node in tree.body if not isinstance(node, defines) and not _is_text(node)]
    guards = any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test) for node in runs)
    return guards or (bool(runs) and any(_calls(tree, name) for name in ("backward", "step", "train", "fit")))


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _calls(node: ast.AST, method: str) -> bool:
    calls = (each.func for each in ast.walk(node) if isinstance(each, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == method for func in calls)
