"""The versions of PyTorch that are supported, and how they differ where the package goes beyond what is public."""

from __future__ import annotations

import contextlib
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from tensortide.errors import TorchUnavailable

Row = TypeVar("Row")

OLDEST = (2, 4)
"""The oldest version that is supported."""

try:
    import torch
except (ImportError, OSError) as error:
    absent = isinstance(error, ModuleNotFoundError) and error.name == "torch"
    raise TorchUnavailable(
        "this needs PyTorch, which is not installed: pip install 'tensortide[torch]'"
        if absent
        else f"this needs PyTorch, which cannot be imported: {str(error).splitlines()[0]}"
    ) from error

VERSION = tuple(int(part) for part in re.findall(r"\d+", str(torch.__version__))[:2])
"""Major and minor version of PyTorch."""

if VERSION < OLDEST:
    raise TorchUnavailable(
        f"this needs PyTorch {OLDEST[0]}.{OLDEST[1]} or newer, and {torch.__version__} is installed: "
        "pip install --upgrade torch"
    )


from torch.utils._python_dispatch import (  # noqa: E402
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode_temporarily,
)


def found(path: str) -> Any:
    """The object at the dotted ``path``, whose module is imported; None if this PyTorch has none."""
    module, name = path.rsplit(".", 1)
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def by_op(rows: Mapping[str, Row]) -> dict[Any, Row]:
    """``rows`` by op overload instead of by name (``aten.mm.default``), without ops that this PyTorch does not have."""
    return {op: row for name, row in rows.items() if (op := _op(name)) is not None}


def _op(name: str) -> Any:
    owner: Any = torch.ops
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


generic_scan: Any = found("torch._higher_order_ops.scan.generic_scan")
"""Runs ``scan`` step by step; before 2.5 there is neither."""


def compiled_calls() -> tuple[Any, str]:
    """The function, by its module and name, that gets what ``torch.compile`` has compiled (None: nothing) at every call
    of it. Since 2.6 it chooses by the stance; before, it returns what was there so far."""
    dynamo = importlib.import_module("torch._dynamo.eval_frame")
    names = ("_callback_from_stance", "_maybe_set_eval_frame", "set_eval_frame")
    return dynamo, next(name for name in names if hasattr(dynamo, name))


@contextlib.contextmanager
def operators_over_functions_passed() -> Iterator[None]:
    """Let operators over functions reach the modes that have ``supports_higher_order_operators``: before 2.7 PyTorch
    refuses to call one under a mode that it does not know."""
    if hasattr(TorchDispatchMode, "supports_higher_order_operators"):
        yield
        return
    kind: Any = torch._ops.HigherOrderOperator
    dispatch = kind.dispatch

    def passed(operator: Any, key: Any, /, *args: Any, **kwargs: Any) -> Any:
        mode: Any = _get_current_dispatch_mode() if key == torch._C.DispatchKey.Python else None
        if not getattr(mode, "supports_higher_order_operators", False):
            return dispatch(operator, key, *args, **kwargs)
        with _pop_mode_temporarily():
            return mode.__torch_dispatch__(operator, (), args, kwargs)

    kind.dispatch = passed
    try:
        yield
    finally:
        kind.dispatch = dispatch
