"""Isolation of the user's objects: their tensors are swapped for stand-ins, and put back after the run.

Starting from the step (its closure, bound object, and the globals its code and its classes name) every
reachable container is visited once. Tensors in it are replaced by stand-ins (fake, or cloned for a real capture),
and a shallow copy of the container is kept, from which it is restored whatever the step did to it.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import operator
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from tensortide.errors import CaptureError
from tensortide.recorder.found import Found, join
from tensortide.recorder.reachable import ATOMS, is_foreign, is_user_class, is_visited_object, named_globals
from tensortide.recorder.standins import Batches, copy_hooks, hooks_of, is_source
from tensortide.recorder.surroundings import rewinder
from tensortide.recorder.torch_compat import FakeTensor

Replace = Callable[[torch.Tensor], torch.Tensor]

_LIMIT = 2_000_000
"""The most objects that are visited. Beyond it the step may reach a tensor that nobody has swapped."""
_ABSENT = object()
"""Marks an empty cell or an undefined name."""


class Isolation(Found):
    """Everything reachable from a step, with tensors swapped. ``restore`` undoes it."""

    def __init__(self, replace: Replace) -> None:
        super().__init__()
        self.replace = replace
        self._seen: dict[int, Any] = {}
        self._undo: list[Callable[[], None]] = []
        self._owned = False
        """True inside a module or optimizer, which names its own tensors."""
        self._visits: tuple[tuple[Any, Callable[[Any, str], Any]], ...] = (
            (torch.Tensor, self._tensor),
            (torch.nn.Module, self._module),
            (dict, self._dict),
            ((tuple, frozenset), self._rebuilt),
            ((list, set, collections.deque), self._refilled),
            (functools.partial, self._partial),
            (functools._lru_cache_wrapper, self._cached),
            (types.FunctionType, self._function),
            (types.MethodType, self._method),
            (type, self._class),
            (object, self._object),
        )

    def restore(self) -> None:
        """Put every visited container back as it was. If one raises, restore all others, then raise its error."""
        failure: Exception | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:  # noqa: BLE001 whatever a container of the user's raises
                failure = failure or error
        self._seen.clear()
        if failure is not None:
            raise failure

    def forget(self) -> None:
        """Keep the swapped tensors in place, and drop all references."""
        for kept in (self._seen, self._undo, self.modules, self.optimizers, self.tensors):
            kept.clear()

    def weaken(self) -> None:
        """Keep no tensor resident any more; those that the step drops lose their names."""
        self._seen.clear()
        self._undo.clear()
        self.tensors = weakref.WeakValueDictionary(self.tensors)

    def close(self) -> None:
        """Remove the gradient hooks of the stand-ins: reference cycles through them would never be collected."""
        for tensor in self.stand_ins():
            for hooks in hooks_of(tensor):
                hooks.clear()

    def stand_ins(self) -> Iterator[FakeTensor]:
        """Every fake tensor that the step can reach."""
        return (tensor for _, tensor in self._seen.values() if isinstance(tensor, FakeTensor))

    def visit(self, value: Any, path: str = "") -> Any:
        """``value`` with its tensors swapped: the same object if it can be modified in place, else a copy."""
        if isinstance(value, ATOMS):
            return value
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1]
        if len(self._seen) > _LIMIT:
            raise CaptureError(
                f"the step reaches more than {_LIMIT:,} Python objects (the last: {path or type(value).__name__}), too "
                "many to search for tensors.\nKeep large collections in arrays, or out of reach of the step."
            )
        self._seen[id(value)] = (value, value)
        result = next(visit for kinds, visit in self._visits if isinstance(value, kinds))(value, path)
        self._seen[id(value)] = (value, result)
        return result

    def _back(self, value: Any) -> Any:
        """The object to restore for ``value``: itself, or for a data iterator one that repeats the batches taken."""
        if isinstance(value, Batches):
            return value.given_back()
        seen = self._seen.get(id(value))
        stand_in = seen[1] if seen is not None and seen[0] is value else None
        return stand_in.given_back() if isinstance(stand_in, Batches) and stand_in is not value else value

    @contextlib.contextmanager
    def _named_by_owner(self, owned: bool) -> Iterator[None]:
        before, self._owned = self._owned, owned
        try:
            yield
        finally:
            self._owned = before

    def _swap(self, owner: Any, name: str, path: str, *, names: bool = False) -> None:
        """Visit the item ``name`` of ``owner``, a namespace, a cell or an object. With ``names``, a tensor there is
        named ``path`` even if a module owns it."""
        before = _get(owner, name)
        after = before if before is _ABSENT else self.visit(before, path)
        if after is not before:
            _put(owner, name, after)
        if names and isinstance(after, torch.Tensor):
            self.tensors.setdefault(path, after)

        def undo() -> None:
            back = self._back(before)
            if _get(owner, name) is not back:
                _put(owner, name, back)

        self._undo.append(undo)

    # -- tensors --------------------------------------------------------------------------------

    def _tensor(self, value: torch.Tensor, path: str) -> torch.Tensor:
        stand_in = self.replace(value)
        self._seen[id(value)] = (value, stand_in)  # hooks may refer to it
        for hooks in hooks_of(value):
            for hook in list(hooks.values()):
                self.visit(hook, path)
        if stand_in is not value:
            copy_hooks(value, stand_in)
        if not self._owned:
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
        with self._named_by_owner(True):
            self._dict(module.__dict__, path)
        return module

    def _dict(self, value: dict[Any, Any], path: str) -> dict[Any, Any]:
        plain: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
        before = dict(plain.items(value))

        def fill(items: dict[Any, Any]) -> None:  # by methods of the base class, as a subclass may refuse
            plain.clear(value)
            for key, item in items.items():
                plain.__setitem__(value, key, item)

        self._undo.append(lambda: fill({key: self._back(item) for key, item in before.items()}))
        after: dict[Any, Any] = {}
        for i, (key, item) in enumerate(before.items()):
            new_key = self._key(key) if isinstance(key, (torch.Tensor, tuple)) else key
            after[new_key] = self.visit(item, join(path, key if isinstance(key, (str, int)) else i))
        if all(map(operator.is_, after, before)):
            for key, item in after.items():
                if item is not before[key]:
                    plain.__setitem__(value, key, item)
        else:
            fill(after)
        self._attributes(value, path)
        return value

    def _key(self, key: Any) -> Any:
        """Visit the key of a dictionary, without naming its tensors after it."""
        with self._named_by_owner(True):
            return self.visit(key)

    def _attributes(self, value: Any, path: str) -> None:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.visit(attributes, path)

    def _items(self, value: Iterable[Any], path: str) -> list[Any]:
        return [self.visit(item, f"{path}[{i}]") for i, item in enumerate(value)]

    def _refilled(self, value: Any, path: str) -> Any:
        before = list(value)
        self._undo.append(lambda: _fill(value, [self._back(item) for item in before]))
        _fill(value, self._items(before, path))
        if isinstance(value, list):
            self._attributes(value, path)
        return value

    def _rebuilt(self, value: Any, path: str) -> Any:
        items = self._items(value, path)
        if all(map(operator.is_, items, value)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)

    def _partial(self, value: functools.partial[Any], path: str) -> Any:
        func, args = self.visit(value.func, path), self.visit(value.args, path)
        keywords = {name: self.visit(item, join(path, name)) for name, item in value.keywords.items()}
        same = all(map(operator.is_, keywords.values(), value.keywords.values()))
        return (
            value if same and func is value.func and args is value.args else functools.partial(func, *args, **keywords)
        )

    def _cached(self, value: Any, path: str) -> Any:
        """Give a cached function a new cache: results of the capture must not reach the user's."""
        return functools.lru_cache(**value.cache_parameters())(self.visit(value.__wrapped__, path))

    # -- code and objects -----------------------------------------------------------------------

    def _function(self, func: types.FunctionType, path: str) -> types.FunctionType:
        if is_foreign(str(func.__module__)):
            return func
        with self._named_by_owner(False):  # variables of code belong to no module
            for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
                self._swap(cell, "cell_contents", name, names=True)
            if func.__defaults__:
                self._swap(func, "__defaults__", path)
            if func.__kwdefaults__:
                self._dict(func.__kwdefaults__, path)
            self._attributes(func, path)
            for namespace, name in named_globals(func):  # a builtin, or a global that the step assigns, may be absent
                self._swap(namespace, name, name, names=True)
        return func

    def _method(self, value: types.MethodType, path: str) -> types.MethodType:
        owner = self.visit(value.__self__, path)
        return value if owner is value.__self__ else types.MethodType(value.__func__, owner)

    def _class(self, kind: type, path: str) -> type:
        """Visit the globals that the methods of a user's class name, and its own attributes."""
        del path
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
        with self._named_by_owner(False):
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
        return kind

    def _object(self, value: Any, path: str) -> Any:
        if is_source(value):
            return Batches(value, lambda item: self.visit(item, "batch"))
        rewind = rewinder(value)
        if rewind is not None:
            self._undo.append(rewind)
            return value
        self.visit(type(value))
        if isinstance(value, torch.optim.Optimizer):
            self.optimizers[path] = value
            with self._named_by_owner(True):
                self._dict(value.__dict__, path)
            return value
        if not is_visited_object(value):
            return value
        self._attributes(value, path)
        for kind in type(value).__mro__:
            names = kind.__dict__.get("__slots__", ())
            for name in (names,) if isinstance(names, str) else names:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    with contextlib.suppress(AttributeError, TypeError):
                        self._swap(value, name, join(path, name))
        return value


def _fill(value: Any, items: list[Any]) -> None:
    """Replace the contents of a list, set or deque by ``items``."""
    if isinstance(value, list):
        list.__setitem__(value, slice(None), items)
    else:
        value.clear()
        (value.update if isinstance(value, set) else value.extend)(items)


def _get(owner: Any, name: str) -> Any:
    try:
        return owner[name] if isinstance(owner, dict) else getattr(owner, name)
    except (KeyError, AttributeError, ValueError):  # an empty cell has no value
        return _ABSENT


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        owner.pop(name) if isinstance(owner, dict) else delattr(owner, name)
    elif isinstance(owner, dict):
        owner[name] = value
    else:
        setattr(owner, name, value)
