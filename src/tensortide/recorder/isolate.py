"""Keep the user's objects untouched: swap their tensors for stand-ins, run, put everything back.

Starting from the step (its closure, bound object, and the globals its code and its classes name) every
reachable container is visited once. Tensors in it are replaced by stand-ins (fake, or cloned for a real capture),
and a shallow copy of the container is kept, from which it is restored whatever the step did to it.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tensortide.errors import CaptureError
from tensortide.recorder.batches import Batches, is_source
from tensortide.recorder.containers import Containers, join
from tensortide.recorder.generators import rewinder
from tensortide.recorder.reachable import ATOMS, is_foreign, is_user_class, is_visited_object, named_globals
from tensortide.recorder.standins import copy_hooks

Replace = Callable[[torch.Tensor], torch.Tensor]

_LIMIT = 2_000_000


class Isolation(Containers):
    """Everything reachable from a step, with tensors swapped. ``restore`` undoes it."""

    def __init__(self, replace: Replace) -> None:
        super().__init__()
        self.replace = replace
        self.modules: dict[str, torch.nn.Module] = {}
        self.optimizers: dict[str, torch.optim.Optimizer] = {}
        self.tensors: dict[str, torch.Tensor] = {}

    def restore(self) -> None:
        """Put every visited container back as it was: all that can be, whatever one of them says."""
        failure: Exception | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:  # noqa: BLE001 a container of the user's that refuses
                failure = failure or error
        self._seen.clear()
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Take the gradient hooks off the capture's own tensors: cycles through them are never collected."""
        for _, tensor in self._seen.values():
            if isinstance(tensor, FakeTensor):
                for hooks in (tensor._backward_hooks, getattr(tensor, "_post_accumulate_grad_hooks", None)):
                    if hooks:
                        hooks.clear()

    def roots(self) -> dict[str, torch.nn.Module]:
        """The outermost modules by path prefix; the only one that holds parameters has the prefix ``""``."""
        inner = {id(child) for root in self.modules.values() for child in root.modules() if child is not root}
        outer = {name: module for name, module in self.modules.items() if id(module) not in inner}
        models = [name for name, module in outer.items() if next(module.parameters(), None) is not None]
        return {("" if models == [name] else name): module for name, module in outer.items()}

    def visit(self, value: Any, path: str = "") -> Any:
        """``value`` with its tensors swapped: the same object if it can be changed in place, else a copy."""
        if isinstance(value, ATOMS):
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
        for kinds, visit in self._containers:
            if isinstance(value, kinds):
                return visit(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.MethodType):
            owner = self.visit(value.__self__, path)
            return value if owner is value.__self__ else types.MethodType(value.__func__, owner)
        if isinstance(value, type):
            return self._class(value)
        if is_source(value):
            return Batches(value, lambda item: self.visit(item, "batch"))
        return self._object(value, path)

    # -- tensors --------------------------------------------------------------------------------

    def _tensor(self, value: torch.Tensor, path: str) -> torch.Tensor:
        stand_in = self.replace(value)
        self._seen[id(value)] = (value, stand_in)  # its hooks may lead back to it
        for hooks in (value._backward_hooks, getattr(value, "_post_accumulate_grad_hooks", None)):
            for hook in list((hooks or {}).values()):
                self.visit(hook, path)
        if stand_in is not value:
            copy_hooks(value, stand_in)
        if not self._depth:
            self.tensors.setdefault(path, stand_in)
        return stand_in

    # -- containers -----------------------------------------------------------------------------

    def _module(self, module: torch.nn.Module, path: str) -> torch.nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            raise CaptureError(
                f"{path or 'the model'} is a TorchScript module ({module.original_name}): its tensors are out of "
                "Python's reach and cannot be replaced.\nCapture the module that it was made from."
            )
        self.modules.setdefault(path or type(module).__name__, module)
        self.visit(type(module))
        self._owned(module.__dict__, path)
        return module

    def _owned(self, attributes: dict[str, Any], path: str) -> None:
        """Visit what belongs to a module or optimizer: its tensors are named by their owner."""
        self._depth += 1
        try:
            self._dict(attributes, path)
        finally:
            self._depth -= 1

    def _function(self, func: types.FunctionType, path: str) -> types.FunctionType:
        if is_foreign(str(func.__module__)):
            return func
        depth, self._depth = self._depth, 0  # what code names belongs to no module
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
            self._cell(cell, name)
        if func.__defaults__:
            self._attribute(func, "__defaults__", path)
        if func.__kwdefaults__:
            self._dict(func.__kwdefaults__, path)
        self._attributes(func, path)
        for namespace, name in named_globals(func):
            self._slot(namespace, name)
        self._depth = depth
        return func

    def _class(self, kind: type) -> type:
        """The globals that a user's class names in its methods, and its own attributes."""
        if not is_user_class(kind):
            return kind
        before = dict(vars(kind))

        def undo() -> None:
            now = dict(vars(kind))
            for name in now.keys() - before.keys():
                delattr(kind, name)
            for name, item in before.items():
                back = self._back(item)
                if now.get(name) is not back:
                    setattr(kind, name, back)

        self._undo.append(undo)
        depth, self._depth = self._depth, 0
        for name, item in before.items():
            if isinstance(item, (staticmethod, classmethod)):
                self.visit(item.__func__, name)
            elif isinstance(item, property):
                self.visit(item.fget, name)
            elif isinstance(item, types.FunctionType) or not name.startswith("__"):
                new = self.visit(item, f"{kind.__name__}.{name}")
                if new is not item:
                    setattr(kind, name, new)
        for base in kind.__bases__:
            self.visit(base)
        self._depth = depth
        return kind

    def _cell(self, cell: types.CellType, name: str) -> None:
        try:
            before = cell.cell_contents
        except ValueError:  # not assigned yet
            self._undo.append(lambda: _empty(cell))
            return
        cell.cell_contents = self._slot_value(before, name)

        def undo() -> None:
            cell.cell_contents = self._back(before)

        self._undo.append(undo)

    def _slot(self, namespace: dict[str, Any], name: str) -> None:
        if name not in namespace:  # a builtin, or a global that the step assigns first
            self._undo.append(functools.partial(_remove, namespace, name))
            return
        before = namespace[name]
        namespace[name] = self._slot_value(before, name)

        def undo() -> None:
            namespace[name] = self._back(before)

        self._undo.append(undo)

    def _slot_value(self, value: Any, path: str) -> Any:
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
            back = self._back(before)
            if getattr(owner, name, None) is not back:
                setattr(owner, name, back)

        self._undo.append(undo)

    def _object(self, value: Any, path: str) -> Any:
        rewind = rewinder(value)
        if rewind is not None:
            self._undo.append(rewind)
            return value
        self.visit(type(value))
        if isinstance(value, torch.optim.Optimizer):
            self.optimizers[path] = value
            self._owned(value.__dict__, path)
            return value
        if not is_visited_object(value):
            return value
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.visit(attributes, path)
        for kind in type(value).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    with contextlib.suppress(AttributeError, TypeError):
                        self._attribute(value, name, join(path, name))
        return value


def _empty(cell: types.CellType) -> None:
    with contextlib.suppress(ValueError):
        del cell.cell_contents


def _remove(namespace: dict[str, Any], name: str) -> None:
    namespace.pop(name, None)
