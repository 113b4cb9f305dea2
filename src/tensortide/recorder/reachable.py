"""The extent of a capture: objects that code reaches by name, and those of them that are the user's."""

from __future__ import annotations

import dis
import functools
import io
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.standins import Batches
from tensortide.recorder.torch_compat import OpOverload, OpOverloadPacket

_FOREIGN = ("torch", "numpy", "builtins", "typing", "collections", "functools", "logging", "threading", "re")
_OWN = "tensortide.recorder."
_HOLDERS = ("torch.optim.", "torch.amp.", "torch.cuda.amp.", "torch.distributions.", "torch.nn.")
"""Parts of PyTorch whose objects hold tensors or counters of the user's."""

ATOMS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bool, type(None), types.ModuleType, types.BuiltinFunctionType),
    *(types.CodeType, types.FrameType, types.TracebackType, weakref.ref, torch.dtype, torch.device, torch.Size),
    *(io.IOBase, Batches, torch.utils.data.Dataset),
    *(OpOverload, OpOverloadPacket, torch.layout, torch.memory_format),
)
"""Types of objects that hold nothing to swap. Loaders need the values of a dataset."""


def is_foreign(module: str) -> bool:
    """True for a module, by name, whose functions hold nothing of the user's."""
    return module.split(".", 1)[0] in _FOREIGN


def is_visited_object(value: Any) -> bool:
    """True for an object whose attributes may hold objects of the user's."""
    module = str(type(value).__module__)
    if module.startswith(_OWN):
        return False
    return not is_foreign(module) or f"{module}.".startswith(_HOLDERS)


def is_user_class(kind: type) -> bool:
    """True for a class in the user's own code; libraries are assumed to keep no model or tensor in a global."""
    return _is_user_module(sys.modules.get(kind.__module__))


def named_globals(func: types.FunctionType) -> Iterator[tuple[dict[str, Any], str]]:
    """Namespace and name of each global that the code of ``func`` names, with attributes of the user's modules. A
    global may be absent, or not exist yet."""
    own, attributes = _names(func.__code__)
    pending = [(func.__globals__, own)]
    pending += [(vars(sys.modules[name]), attributes) for name in attributes if _is_user_module(sys.modules.get(name))]
    seen: set[int] = set()
    while pending:
        namespace, names = pending.pop(0)
        for name in names:
            item = namespace.get(name)
            if isinstance(item, types.ModuleType):
                if _is_user_module(item) and id(item) not in seen:
                    seen.add(id(item))
                    pending.append((vars(item), attributes))
            elif (name in namespace or names is own) and not name.startswith("__"):
                yield namespace, name


@functools.cache
def _names(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of globals in code and its inner functions; and all its names, with those of attributes and imports."""
    own = [
        str(i.argval) for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")
    ]
    every = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            inner = _names(const)
            own += inner[0]
            every += inner[1]
    return tuple(dict.fromkeys(own)), tuple(dict.fromkeys(every))


def _is_user_module(module: types.ModuleType | None) -> bool:
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    if not file:
        return module.__name__ == "__main__"  # a notebook
    return "site-packages" not in file and not is_internal(file)
