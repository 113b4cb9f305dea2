"""Find the function that a command-line target names, and give its hyperparameters their values."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from tensortide.errors import WorkloadError

Scalar = str | int | float | bool | None


def find(target: str) -> Callable[..., Any]:
    """The function that ``target`` names: ``file.py:function``, ``package.module:function`` or an example.

    Raises WorkloadError that says what was looked for and what is there.
    """
    place, colon, function = target.rpartition(":")
    if not colon:
        if target.endswith(".py") or "/" in target:
            raise WorkloadError(f"{target} names no function: write {target}:FUNCTION")
        from tensortide import examples

        return examples.find(target).load()
    if not place or not function:
        raise WorkloadError(f"{target!r} is no target: write file.py:function, package.module:function or an example")
    module = _from_file(Path(place)) if place.endswith(".py") or "/" in place else _from_package(place)
    value: Any = module
    for part in function.split("."):
        if not hasattr(value, part):
            raise WorkloadError(f"{place} has no {function!r}{_near(function, _functions(module))}")
        value = getattr(value, part)
    if not callable(value):
        raise WorkloadError(f"{target} is a {type(value).__name__}, not a function")
    return value  # type: ignore[no-any-return]


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}")
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
    module: list[ModuleType] = []
    _run(lambda: module.append(importlib.import_module(name)), name)
    return module[0]


def _run(load: Callable[[], Any], name: str) -> None:
    try:
        load()
    except SystemExit as error:
        raise WorkloadError(f"{name} ended the program while it was imported (exit {error.code})") from error
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = next((f for f in reversed(frames) if "importlib" not in f.filename), frames[-1])
        if isinstance(error, SyntaxError) and error.filename:
            where = f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
        else:
            where = f"{last.filename}:{last.lineno}: {linecache.getline(last.filename, last.lineno or 0).strip()}"
        raise WorkloadError(f"cannot import {name}: {type(error).__name__}: {error}\n  at {where}") from error


def _functions(module: ModuleType) -> list[str]:
    own = vars(module).items()
    return [
        n for n, v in own if callable(v) and not n.startswith("_") and getattr(v, "__module__", "") == module.__name__
    ]


def _near(name: str, known: Iterable[str]) -> str:
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=3) or known[:10]
    return f"; did you mean {', '.join(near)}?" if near else ""


def parse_settings(settings: Iterable[str], target: Callable[..., Any], name: str) -> dict[str, Scalar]:
    """Hyperparameters from ``key=value`` texts, checked against the workload's signature.

    A value is a Python literal, or text. Raises WorkloadError for a text without ``=``, a name that is not a
    hyperparameter, or a value of another type than the default.
    """
    parameters = inspect.signature(target).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    values: dict[str, Scalar] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or not key:
            raise WorkloadError(f"--set takes key=value, not {setting!r}")
        if key not in parameters and not takes_any:
            known = ", ".join(parameters) or "none"
            hint = _near(key, parameters)
            raise WorkloadError(f"{name} has no hyperparameter {key!r}{hint}\nIts hyperparameters are: {known}.")
        default = parameters[key].default if key in parameters else None
        values[key] = _value(key, text.strip(), default, name)
    return values


def _value(key: str, text: str, default: Any, name: str) -> Scalar:
    value: Any = {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if isinstance(value, str):
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
    if isinstance(default, str) and not isinstance(value, str):
        return text
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, int) and type(value) is float and value.is_integer():
        return int(value)
    if type(default) in (int, float, bool) and type(value) is not type(default):
        raise WorkloadError(f"{name}: {key} takes {type(default).__name__} (default {default!r}), not {text!r}")
    return value  # type: ignore[no-any-return]
