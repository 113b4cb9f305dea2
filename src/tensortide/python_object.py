"""Python objects by name: ``file.py:name`` or ``package.module:name``."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from tensortide.errors import ProgramFailed, WorkloadError

T = TypeVar("T")

_HERE = str(Path(__file__).parent)
_NAME = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
_MAKES_NAMES = frozenset(("*", "exec", "globals", "locals", "setattr", "vars", "__getattr__"))
"""Names in a module that may define others, which its source text does not show."""
_OBJECT = re.compile(rf"(?:.*\.py|{_NAME}):{_NAME}")


def names_object(text: str) -> bool:
    """Tell ``file.py:name`` and ``package.module:name`` from any other text."""
    return _OBJECT.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Tell a path: it has a separator or a suffix, or there is a file or folder of this name."""
    try:
        return text != "" and (Path(text).suffix != "" or "/" in text or "\\" in text or Path(text).exists())
    except OSError:  # a name that is too long for any file
        return False


def load_object(text: str) -> Any:
    """Import the object that ``text`` names, as ``names_object`` has it.

    Raises WorkloadError if there is no such file, module or object, or if importing it fails.
    """
    place, _, name = text.rpartition(":")
    check_name(place, name.split(".")[0])
    module = _from_file(Path(place)) if place.endswith(".py") else _from_package(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            raise WorkloadError(f"{place} has no {name!r}{near(name, _own(module))}")
        value = getattr(value, part)
    return value


def check_name(place: str, name: str) -> None:
    """Raise WorkloadError if there is no such file, or the source text of a module shows that it defines no ``name``:
    nothing of it runs."""
    if place.endswith(".py") and not Path(place).is_file():
        raise WorkloadError(f"there is no file {place}")
    if (file := file_of(place)) is None:  # importing it tells what is wrong, here and below
        return
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    bound = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.Name):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.partition(".")[0])
    functions = [node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    if name not in bound and not bound & _MAKES_NAMES:
        raise WorkloadError(f"{place} has no {name!r}{near(name, functions)}")


def file_of(place: str) -> Path | None:
    """The file of ``file.py`` or ``package.module``, which is looked for and not imported; None if there is none."""
    if place.endswith(".py"):
        return Path(place)
    first, *inner = place.split(".")
    specs = (finder.find_spec(first, ["", *sys.path]) for finder in sys.meta_path)
    spec = next(filter(None, specs), None)
    for part in inner:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # Its full name would make a package without __init__.py look for its parent among those imported.
        spec = PathFinder.find_spec(part, [*spec.submodule_search_locations])
    return None if spec is None or spec.origin is None else Path(spec.origin)


def _from_file(path: Path) -> ModuleType:
    name = path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise WorkloadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    previous = sys.modules.get(name)
    sys.modules[name] = module
    try:
        _run(lambda: spec.loader.exec_module(module), str(path))  # type: ignore[union-attr]
    except WorkloadError:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise
    return module


def _from_package(name: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        known = importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        known = False
    if not known:
        raise WorkloadError(f"there is no module {name!r} (looked in this folder and the installed packages)")
    return _run(lambda: importlib.import_module(name), name)


def _run(load: Callable[[], T], name: str) -> T:
    try:
        return load()
    except SystemExit as error:
        raise ProgramFailed(f"{name} ended the program while it was imported (exit {error.code})") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if "importlib" not in f.filename), frames[-1])
        if isinstance(error, SyntaxError) and error.filename:
            where = f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
        else:
            where = _line(last)
        raise ProgramFailed(f"cannot import {name}: {type(error).__name__}: {error}\n  at {where}") from error


def failure(name: str, error: Exception) -> str:
    """The message for ``error``, which the user's ``name`` raised when it was called: the exception and the innermost
    line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [f for f in frames if not f.filename.startswith(_HERE) and "-packages" not in f.filename] or frames
    message = " ".join(str(error).split("\n\n")[0].split())
    return f"{name} failed: {type(error).__name__}: {message}" + (f"\n  at {_line(own[-1])}" if own else "")


def _line(frame: traceback.FrameSummary) -> str:
    return f"{frame.filename}:{frame.lineno}: {linecache.getline(frame.filename, frame.lineno or 0).strip()}"


def _own(module: ModuleType) -> list[str]:
    own = vars(module).items()
    return [
        n for n, v in own if callable(v) and not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def near(name: str, known: Iterable[str], *, listed: bool = True) -> str:
    """Suggest the names of ``known`` that are close to ``name``, as the end of a message; if none is, list some.

    Examples:
        >>> near("mpl", ["mlp", "gpt2"]), near("x", ["mlp", "gpt2"]), near("x", ["mlp", "gpt2"], listed=False)
        ('; did you mean mlp?', '; there are: gpt2, mlp', '')
    """
    known = sorted(known)
    if close := difflib.get_close_matches(name, known, n=3):
        return f"; did you mean {', '.join(close)}?"
    return f"; there are: {', '.join(known[:10])}{', ...' * (len(known) > 10)}" if known and listed else ""
