"""Workloads by name, and their hyperparameters."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from tensortide.errors import RequestError, WorkloadError
from tensortide.python_object import is_path, load_object, names_object, near
from tensortide.recorder.suggest import commands, parsed, reads_arguments, runs_alone

Scalar = str | int | float | bool | None


class Workload(NamedTuple):
    """A function that builds a training step, and the text that names it."""

    name: str
    function: Callable[..., Any]


def find_workload(target: str) -> Workload | None:
    """Look ``target`` up as a built-in example, then as ``file.py:function`` or ``package.module:function``.

    None if the text has none of these forms. Raises WorkloadError if it has one and cannot be loaded.
    """
    from tensortide import examples

    if target in {example.name for example in examples.examples()}:
        return _example(target)
    if not names_object(target):
        return None
    _refuse_script(target)
    function = load_object(target)
    if not callable(function):
        raise WorkloadError(f"{target} is a {type(function).__name__}, not a function")
    return Workload(target, function)


def _refuse_script(target: str) -> None:
    """Raise RequestError for a function of a script that reads the command line, which here is another program's."""
    file, _, function = target.rpartition(":")
    if not file.endswith(".py") or not Path(file).is_file():
        return
    with suppress(WorkloadError):  # importing it says what is wrong with the file
        tree = parsed(file)
        if runs_alone(tree) and reads_arguments(tree, function):
            script = f"'-- python {shlex.quote(file)}'"
            raise RequestError(f"{target} reads the arguments of a script. The target for a step of it is {script}")


def workload(target: str) -> Workload:
    """Return the workload that ``target`` names. Raises WorkloadError that says what to write instead."""
    if (found := find_workload(target)) is not None:
        return found
    if target.startswith("-- "):
        raise WorkloadError(f"{target} is the command of a script: tensortide.open({target!r}) records a step of it")
    if target.endswith(".py"):
        raise WorkloadError(commands(target))
    if is_path(target):
        raise WorkloadError(f"{target} is a path, and no workload: write file.py:function, or an example")
    if ":" in target:
        raise WorkloadError(f"{target!r} is no target: write file.py:function, package.module:function or an example")
    return _example(target)


def _example(name: str) -> Workload:
    from tensortide import examples

    example = examples.find(name)
    import tensortide.recorder.torch_compat  # noqa: F401  # before all else: it says what is wrong with PyTorch

    return Workload(name, example.load())


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
            hint = near(key, parameters, listed=False)
            raise WorkloadError(f"{name} has no hyperparameter {key!r}{hint}\nIts hyperparameters are: {known}.")
        default = parameters[key].default if key in parameters else None
        values[key] = _legal(key, _value(key, text.strip(), default, name), default, name)
    return values


_SIZE = re.compile(
    r"(?:(?:num|n|source|target|kv|micro)_)?(?:batch|bs|channels|classes|d_model|embed|embedding|features|filters|heads"
    r"|height|hidden|image|img|inputs|intermediate|outputs|patch|positions|seq|sequence|vocab|width)"
    r"(?:_(?:size|dim|len|length))?"
)
"""Names of hyperparameters that are tensor sizes: at least 1."""
_SIGNED = re.compile(r"(?:.*_)?(?:axis|device|dim|id|idx|index|offset|pad|padding|rank|seed|shift|start)(?:_.*)?")
"""Names of hyperparameters that may be negative although their default is not."""


def _legal(key: str, value: Scalar, default: Any, name: str) -> Scalar:
    """Return ``value``. Raises WorkloadError for an integer that is no legal size or count.

    With a negative number of layers, for example, many models are built without complaint, and without layers.
    """
    if type(value) is not int:
        return value
    counts = type(default) is int and default > 0
    least = 1 if _SIZE.fullmatch(key) else 0 if counts and not _SIGNED.fullmatch(key) else None
    known = f" (default {default})" if type(default) is int else ""
    if least is not None and value < least and (counts or type(default) is not int):
        raise WorkloadError(f"{name}: {key} takes an integer from {least} up{known}, not {value}")
    if abs(value) >= 1 << 63:
        raise WorkloadError(f"{name}: {key} takes an integer below 2**63{known}, not {value}")
    return value


def _value(key: str, text: str, default: Any, name: str) -> Scalar:
    if not text and not isinstance(default, str):
        raise WorkloadError(f"{name}: {key} needs a value: --set {key}=VALUE")
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
    if isinstance(default, tuple | list) and not isinstance(value, tuple | list):
        raise WorkloadError(f"{name}: {key} takes {type(default).__name__} (default {default!r}), not {text!r}")
    return value  # type: ignore[no-any-return]
