"""Keep the user's objects untouched: swap their tensors for stand-ins, run, put everything back.

Starting from the step (its closure, bound object, and the globals its code names) every reachable
container is visited once. Tensors in it are replaced by stand-ins (fake, or cloned for a real capture),
and a shallow copy of the container is kept, from which it is restored whatever the step did to it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import itertools
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

Replace = Callable[[torch.Tensor], torch.Tensor]

_ATOMS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bool, type(None), type, types.ModuleType, types.BuiltinFunctionType),
    *(types.CodeType, types.FrameType, types.TracebackType, weakref.ref, torch.dtype, torch.device, torch.Size),
    io.IOBase,
    *(torch.Generator, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.layout, torch.memory_format),
)
_FOREIGN = ("torch", "numpy", "builtins", "typing", "collections", "functools", "logging", "threading", "re")
_LIMIT = 2_000_000


class Isolation:
    """Everything reachable from a step, with tensors swapped. ``restore`` undoes it."""

    def __init__(self, replace: Replace) -> None:
        self.replace = replace
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._seen: dict[int, Any] = {}
        self._undo: list[Callable[[], None]] = []
        self._depth = 0

    def restore(self) -> None:
        """Put every visited container back as it was."""
        while self._undo:
            self._undo.pop()()
        self._seen.clear()

    def roots(self) -> dict[str, torch.nn.Module]:
        """The outermost modules by path prefix; the only one that holds parameters has the prefix ``""``."""
        inner = {id(child) for root in self.modules.values() for child in root.modules() if child is not root}
        outer = {name: module for name, module in self.modules.items() if id(module) not in inner}
        models = [name for name, module in outer.items() if next(module.parameters(), None) is not None]
        return {("" if models == [name] else name): module for name, module in outer.items()}

    def visit(self, value: Any, path: str = "") -> Any:
        """``value`` with its tensors swapped: the same object if it can be changed in place, else a copy."""
        if isinstance(value, (*_ATOMS, _Batches)):
            return value
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        if len(self._seen) > _LIMIT:
            return value
        self._seen[id(value)] = (value, value)
        result = self._visit(value, path)
        self._seen[id(value)] = (value, result)
        return result

    def _visit(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, torch.nn.Module):
            return self._module(value, path)
        if isinstance(value, dict):
            return self._dict(value, path)
        if isinstance(value, list):
            return self._list(value, path)
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if isinstance(value, (set, frozenset, collections.deque)):
            return self._collection(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.MethodType):
            owner = self.visit(value.__self__, path)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        if isinstance(value, functools.partial):
            return self._partial(value, path)
        return self._object(value, path)

    # -- tensors --------------------------------------------------------------------------------

    def _tensor(self, value: torch.Tensor, path: str) -> torch.Tensor:
        stand_in = self.replace(value)
        if stand_in is not value:
            _copy_hooks(value, stand_in)
        if not self._depth:
            self.tensors.setdefault(path, stand_in)
        return stand_in

    # -- containers -----------------------------------------------------------------------------

    def _module(self, module: torch.nn.Module, path: str) -> torch.nn.Module:
        if not self._depth:
            self.modules[path or type(module).__name__] = module
        self._owned(module.__dict__, path)
        return module

    def _owned(self, attributes: dict[str, Any], path: str) -> None:
        """Visit what belongs to a module or optimizer: its tensors are named by their owner."""
        self._depth += 1
        try:
            self._dict(attributes, path)
        finally:
            self._depth -= 1

    def _dict(self, value: dict[Any, Any], path: str) -> dict[Any, Any]:
        before = dict(value)

        def undo() -> None:
            value.clear()
            value.update(before)

        self._undo.append(undo)
        keys_changed = False
        after: dict[Any, Any] = {}
        for key, item in before.items():
            new_key = self.visit(key, path) if isinstance(key, (torch.Tensor, tuple)) else key
            keys_changed |= new_key is not key
            after[new_key] = self.visit(item, _join(path, key))
        if keys_changed:
            value.clear()
            value.update(after)
        else:
            value.update({key: item for key, item in after.items() if item is not before[key]})
        return value

    def _list(self, value: list[Any], path: str) -> list[Any]:
        before = list(value)

        def undo() -> None:
            value[:] = before

        self._undo.append(undo)
        for i, item in enumerate(before):
            new = self.visit(item, f"{path}[{i}]")
            if new is not item:
                value[i] = new
        return value

    def _tuple(self, value: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        items = [self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if all(new is old for new, old in zip(items, value, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)

    def _collection(self, value: Any, path: str) -> Any:
        items = [self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)]
        if isinstance(value, frozenset):
            return value if all(new in value for new in items) else frozenset(items)
        before = list(value)

        def undo() -> None:
            value.clear()
            _extend(value, before)

        self._undo.append(undo)
        value.clear()
        _extend(value, items)
        return value

    def _partial(self, value: functools.partial[Any], path: str) -> Any:
        func, args, keywords = self.visit(value.func, path), self.visit(value.args, path), dict(value.keywords)
        keywords = {name: self.visit(item, _join(path, name)) for name, item in keywords.items()}
        unchanged = func is value.func and args is value.args
        if unchanged and all(keywords[name] is item for name, item in value.keywords.items()):
            return value
        return functools.partial(func, *args, **keywords)

    def _function(self, func: types.FunctionType, path: str) -> types.FunctionType:
        if str(func.__module__).split(".")[0] in _FOREIGN:
            return func
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
            self._cell(cell, name)
        if func.__defaults__:
            self._attribute(func, "__defaults__", path)
        if func.__kwdefaults__:
            self._dict(func.__kwdefaults__, path)
        for name in _global_names(func.__code__):
            if name in func.__globals__:
                self._slot(func.__globals__, name, name)
        return func

    def _cell(self, cell: types.CellType, name: str) -> None:
        try:
            before = cell.cell_contents
        except ValueError:
            return
        after = self._slot_value(before, name)
        cell.cell_contents = after

        def undo() -> None:
            cell.cell_contents = after.given_back() if isinstance(after, _Batches) else before

        self._undo.append(undo)

    def _slot(self, mapping: dict[str, Any], key: str, path: str) -> None:
        before = mapping[key]
        after = self._slot_value(before, path)
        mapping[key] = after

        def undo() -> None:
            mapping[key] = after.given_back() if isinstance(after, _Batches) else before

        self._undo.append(undo)

    def _slot_value(self, value: Any, path: str) -> Any:
        if isinstance(value, Iterator) and not isinstance(value, (io.IOBase, _Batches)):
            return _Batches(value, self)
        result = self.visit(value, path)
        if isinstance(result, torch.Tensor):
            self.tensors.setdefault(path, result)
        return result

    def _attribute(self, owner: Any, name: str, path: str) -> None:
        before = getattr(owner, name)
        after = self.visit(before, path)
        if after is not before:
            setattr(owner, name, after)

        def undo() -> None:
            if getattr(owner, name, None) is not before:
                setattr(owner, name, before)

        self._undo.append(undo)

    def _object(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.optim.Optimizer):
            self.optimizers[path] = value
            self._owned(value.__dict__, path)
            return value
        if type(value).__module__.split(".")[0] in _FOREIGN and not isinstance(value, _STATEFUL):
            return value
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._dict(attributes, path)
        for kind in type(value).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    with contextlib.suppress(AttributeError, TypeError):
                        self._attribute(value, name, _join(path, name))
        return value


class _Batches(Iterator[Any]):
    """Stands for a data iterator during capture: what is taken is given back afterwards."""

    def __init__(self, source: Iterator[Any], isolation: Isolation) -> None:
        self._source = source
        self._isolation = isolation
        self._taken: list[Any] = []

    def __next__(self) -> Any:
        with _disable_current_modes():
            item = next(self._source)
        self._taken.append(item)
        return self._isolation.visit(item, "batch")

    def given_back(self) -> Iterator[Any]:
        """The iterator as it was before anything was taken from it."""
        return itertools.chain(self._taken, self._source) if self._taken else self._source


_STATEFUL: tuple[type, ...] = (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)


def _join(path: str, key: object) -> str:
    if not isinstance(key, str):
        return f"{path}[{key!r}]" if isinstance(key, int) else path
    return f"{path}.{key}" if path else key


def _extend(value: Any, items: list[Any]) -> None:
    (value.update if isinstance(value, set) else value.extend)(items)


def _global_names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _global_names(const)


def _copy_hooks(source: torch.Tensor, target: torch.Tensor) -> None:
    """Give the stand-in the attributes and gradient hooks of the tensor it stands for."""
    for name, item in getattr(source, "__dict__", {}).items():
        if name not in target.__dict__:
            target.__dict__[name] = item
    if not target.requires_grad:
        return
    for hook in list((source._backward_hooks or {}).values()):
        target.register_hook(hook)
    if target.is_leaf:
        for hook in list((getattr(source, "_post_accumulate_grad_hooks", None) or {}).values()):
            target.register_post_accumulate_grad_hook(hook)
