"""The dispatch mode that records every op of a step: the hot path of capture.

It stands above the fake-tensor mode (or above real execution) and adds about 15 microseconds per op. Storages are
identified by address and watched through weak references, so that their release is seen when it happens; tensors and
calls are interned by value.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.dtypes import unpacked
from tensortide.graph.calls import NESTED, STORED
from tensortide.graph.communication import PROCESS_GROUP
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Const, Graph, Op, Phase, Role, Storage, Value, count_slots
from tensortide.graph.model import Tensor as GraphTensor
from tensortide.recorder.fake_mode import device_of
from tensortide.recorder.pretended import is_redundant_copy, with_true_device
from tensortide.recorder.pretended_devices import current_stream
from tensortide.recorder.ranks import group_name
from tensortide.recorder.schema import PASSED_ON, Schema, eager_body, embedded, schema_of
from tensortide.recorder.sparse import parts
from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import (
    FakeTensor,
    HigherOrderOperator,
    TorchDispatchMode,
    disable_current_modes,
    include_key,
)

_PLAIN = frozenset({int, str, type(None)})
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_TYPED = frozenset({bool, float, complex})
_CONST_KINDS: dict[type, str] = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}
_ORDINARY = frozenset({torch.Tensor, torch.nn.Parameter, FakeTensor})
_DEVICE = torch.ops.prim.device.default
_storage_of = torch.Tensor.untyped_storage
"""PyTorch's own method, which a live run replaces to see reads of memory."""

_COUNTED = 1024
"""Ops from one report of their number to the next."""


class _Watch(weakref.ref[Any]):
    """A weak reference to a storage (or storageless tensor), with its address and number."""

    __slots__ = ("key", "storage")
    key: int
    storage: int


class TooManyOps(BaseException):
    """The program has run more ops than the recorder takes. No handler of the program's own catches it."""


class Mode(TorchDispatchMode):
    """A dispatch mode whose handler has no wrapper of the compiler, which costs microseconds per op and seconds of
    import."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class Recorder(Mode):
    """Records the ops that PyTorch dispatches while it is active.

    ``context`` is called once per op, before it runs, with the op's index. It returns the phase of the op and, if
    known, the fields of ``Op`` after it.
    """

    supports_higher_order_operators = True

    def __init__(self, context: Callable[[int], tuple[Any, ...]] = lambda index: (Phase.FORWARD,)) -> None:
        super().__init__()
        self.context = context
        self.ops: list[Op] = []
        self.calls: list[Call] = []
        self.tensors: list[GraphTensor] = []
        self.storages: list[Storage] = []
        self.paused = False
        self.most: int | None = None
        self.counted: Callable[[int], None] | None = None
        """Receives the number of ops now and then."""
        """Most ops to record; None for any number."""
        self.listening: Any = None
        """The dispatch key at which calls of composite ops are seen (``recorder.composites``), None if they are not."""
        self._running = 0
        self._now: int | None = None
        self._call_ids: dict[tuple[object, ...], int] = {}
        self._tensor_ids: dict[tuple[object, ...], int] = {}
        self._storage_ids: dict[int, int] = {}
        self._watches: dict[int, _Watch] = {}
        self._stored: dict[int, tuple[int, int]] = {}
        """Elements and bytes that the latest sparse tensor of each id stores."""
        self._nested: dict[int, tuple[tuple[int, ...], ...]] = {}
        """Shapes of the tensors nested in that of an id."""
        self._grown: dict[int, tuple[int, int]] = {}
        """For each storage that the program resized before any op used it: the op before which it did, and where."""
        self._streams: dict[object, int] = {current_stream(): 0}

    # -- the hot path ---------------------------------------------------------------------------

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE and (known := device_of(args[0])) is not None:  # over half of all calls
            return known
        kwargs = kwargs or {}
        if self.paused or func in PASSED_ON:
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        for kind in types:
            if kind not in _ORDINARY and not issubclass(kind, torch.nn.Parameter):
                return NotImplemented
        if "device" in kwargs:
            kwargs = with_true_device(func, args, kwargs)
            if is_redundant_copy(func, args, kwargs):
                return args[0]
        schema = schema_of(func)
        if schema.composite and not any(isinstance(arg, torch.Tensor) and schema.has_kernel_for(arg) for arg in args):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self.record(func, schema, args, kwargs)

    def _higher_order(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run the body of a higher-order operator op by op, as eager execution does; else record it as one op."""
        body = eager_body(func)
        if body is None:
            return self.record(func, schema_of(func), args, kwargs)
        with self:
            return body(*args, **kwargs)

    def record(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run ``func`` and append it to the record. Returns its result."""
        inputs: list[int] = []
        kinds: list[object] = []
        if schema.fresh:
            values: tuple[Value, ...] = (Const("tensor", embedded(args[0])),)
        else:
            values = tuple([self.encode(arg, inputs, kinds) for arg in args])
        named = tuple([(name, self.encode(arg, inputs, kinds)) for name, arg in kwargs.items()]) if kwargs else ()
        context = self.context(len(self.ops))
        if len(self.ops) == self.most:
            raise TooManyOps
        if self.counted is not None and len(self.ops) % _COUNTED == _COUNTED - 1:
            self.counted(len(self.ops) + 1)
        self._running += 1
        key = self.listening
        try:
            if key is not None:  # composite ops inside of kernels are none of the step's
                include_key(key, False)
            result = self.run(func, args, kwargs)
        finally:
            self._running -= 1
            if key is not None:
                include_key(key, True)
        self._now = len(self.ops)
        if schema.may_resize:
            self._refresh(args, kwargs)
        outputs: list[int] = []
        returns = self.encode(result, outputs, kinds)
        self._now = None
        if self._stored:
            named = (*named, *self._sparse(schema.named(values, named), inputs, outputs))
        if not self._nested.keys().isdisjoint(inputs + outputs):
            named = (*named, (NESTED, tuple([self._nested.get(each, ()) for each in inputs + outputs])))
        key = (func, values, named, returns, tuple(kinds))
        call = self._call_ids.get(key)
        if call is None:
            call = self._call_ids[key] = len(self.calls)
            self.calls.append(schema.call(values, named, returns))
        self.ops.append(Op(call, tuple(inputs), tuple(outputs), *context))
        return result

    def _sparse(
        self, arguments: Iterable[tuple[str, Value]], inputs: Sequence[int], outputs: Sequence[int]
    ) -> Iterator[tuple[str, Value]]:
        """Tell what each sparse one of ``arguments`` stores, and the results."""
        holes = itertools.chain(inputs, outputs)
        for name, value in (*arguments, ("", (TENSOR,) * len(outputs))):
            found = [self._stored[t] for t in itertools.islice(holes, count_slots(value)) if t in self._stored]
            if found:
                yield name + STORED, tuple(map(sum, zip(*found, strict=True)))

    def run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run the op; subclasses measure it."""
        return func(*args, **kwargs)

    def encode(self, value: Any, tensors: list[int], kinds: list[object]) -> Value:
        kind = type(value)
        if kind in _PLAIN:
            return value  # type: ignore[no-any-return]
        if issubclass(kind, torch.Tensor):
            tensors.append(self.tensor(value))
            return TENSOR
        if kind in _TYPED:
            kinds.append(kind)
            return value  # type: ignore[no-any-return]
        if kind is list or issubclass(kind, tuple):
            return tuple([self.encode(item, tensors, kinds) for item in value])
        name = _CONST_KINDS.get(kind) or ("generator" if isinstance(value, torch.Generator) else None)
        if name is not None:
            text = str(value).removeprefix("torch.") if name != "generator" else str(value.device)
            return Const(name, text)
        if isinstance(value, (int, float)):
            return value
        if isinstance(value, torch.ScriptObject) and (group := group_name(value)) is not None:
            return Const("opaque", f"{PROCESS_GROUP}{group}")
        if callable(value):
            return Const("opaque", type(value).__name__)
        # An address would make two captures of the same step differ.
        return Const("opaque", str(value) if isinstance(value, torch.ScriptObject) else _ADDRESS.sub("", repr(value)))

    def tensor(self, value: torch.Tensor) -> int:
        """Id of the tensor that views ``value``'s storage. A storage not seen before was born in the op being recorded
        if that just returned it, else before the step."""
        try:
            handle: Any = _storage_of(value)
            key = handle._cdata
        except (NotImplementedError, RuntimeError):
            return self._storageless(value)
        storage = self._storage_ids.get(key)
        if storage is None:
            storage = self._add_storage(handle, key, handle.nbytes(), str(value.device))
        return self._view(storage, value, *_layout(value))

    def storage_of(self, value: torch.Tensor) -> int | None:
        """Id of the storage of ``value`` if it is known."""
        try:
            return self._storage_ids.get(_storage_of(value)._cdata)
        except (NotImplementedError, RuntimeError):
            return self._storage_ids.get(-id(value))

    def arrived(self, value: torch.Tensor) -> int:
        """Id of a tensor that arrived from outside the step, just before the next op."""
        before, self._now = self._now, len(self.ops) or None
        try:
            return self.tensor(value)
        finally:
            self._now = before

    def known(self, value: torch.Tensor) -> int:
        """Id of a tensor that an op has touched, else OUTSIDE."""
        storage = self.storage_of(value)
        if storage is None:
            return OUTSIDE
        return self._tensor_ids.get((storage, value.dtype, *_layout(value)), OUTSIDE)

    def _view(
        self,
        storage: int,
        value: torch.Tensor,
        shape: torch.Size,
        strides: tuple[int, ...],
        offset: Any,
        nested: tuple[tuple[int, ...], ...] = (),
    ) -> int:
        identity = (storage, value.dtype, shape, strides, offset, nested)
        known = self._tensor_ids.get(identity)
        if known is None:
            known = self._tensor_ids[identity] = len(self.tensors)
            dtype = unpacked(str(value.dtype)[6:])  # PyTorch's integers of less than a byte take one
            self.tensors.append(GraphTensor(storage, dtype, tuple(shape), strides, int(offset)))
            if nested:
                self._nested[known] = nested
        return known

    # -- storages -------------------------------------------------------------------------------

    def _add_storage(self, handle: Any, key: int, nbytes: int, device: str) -> int:
        storage = len(self.storages)
        birth, stream = self._grown.pop(key, (None, None))
        birth = birth if self._now is None else self._now
        if stream is None and birth is not None:
            stream = self._stream()
        self.storages.append(Storage(nbytes, device, Role.TEMPORARY, birth, None, stream=stream or 0))
        self._storage_ids[key] = storage
        watch: Any = _Watch(handle, self._released)
        watch.key, watch.storage = key, storage
        self._watches[key] = watch
        return storage

    def _stream(self) -> int:
        """The number of the current stream."""
        return self._streams.setdefault(current_stream(), len(self._streams))

    def _released(self, watch: Any) -> None:
        key: int = watch.key
        if self._watches.get(key) is watch:
            del self._watches[key], self._storage_ids[key]
        self._ends(watch.storage, len(self.ops) + (1 if self._running else 0))

    def _ends(self, storage: int, death: int) -> None:
        self.storages[storage] = replace(self.storages[storage], death=death)

    def _storageless(self, value: torch.Tensor) -> int:
        """Id of a tensor without a storage. A sparse one counts as a storage of the size of those of its parts that are
        not known by themselves."""
        key = -id(value)
        storage = self._storage_ids.get(key)
        with disable_current_modes():
            whole = parts(value)
        if storage is None:
            own = [part for part in whole if self.storage_of(part) is None]
            nbytes = sum(part.numel() * part.element_size() for part in own)
            storage = self._add_storage(value, key, nbytes, str(value.device))
        made = self._view(storage, value, value.shape, (0,) * len(value.shape), 0)
        if whole:
            self._stored[made] = whole[-1].numel(), sum(part.numel() * part.element_size() for part in whole)
        return made

    def _refresh(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Replace the storages that an op has resized: the old one ends, and a new one of the new size begins."""
        for value in (*args, *kwargs.values()):
            if not isinstance(value, torch.Tensor):
                continue
            handle = _storage_of(value)
            storage = self._storage_ids.get(handle._cdata)
            if storage is not None and self.storages[storage].nbytes != handle.nbytes():
                self._ends(storage, len(self.ops) + 1)
                self._add_storage(handle, handle._cdata, handle.nbytes(), str(value.device))

    @contextlib.contextmanager
    def resizes_followed(self) -> Iterator[None]:
        """Follow storages that the program resizes without an op while active, as sharding of parameters does."""
        resize: Any = torch.UntypedStorage.resize_

        def followed(handle: Any, size: int) -> Any:
            result, key = resize(handle, size), handle._cdata
            known = self._storage_ids.get(key)
            self._grown[key] = len(self.ops), self._stream()
            if known is not None:
                self._ends(known, len(self.ops))
                self._add_storage(handle, key, handle.nbytes(), self.storages[known].device)
            return result

        with replaced(torch.UntypedStorage, "resize_", followed):
            yield

    def graph(self, storages: Iterable[Storage] | None = None, **tables: Any) -> Graph:
        """The Graph of the record; ``storages`` replace those recorded, ``tables`` are its other fields."""
        given = self.storages if storages is None else storages
        return Graph(tuple(self.ops), tuple(self.calls), tuple(self.tensors), tuple(given), **tables)


def _layout(value: torch.Tensor) -> tuple[torch.Size, tuple[int, ...], Any, tuple[tuple[int, ...], ...]]:
    """Shape, strides and offset, and the shapes of the tensors nested in ``value``, which lie one after the other."""
    try:
        return value.shape, value.stride(), value.storage_offset(), ()
    except RuntimeError:
        with disable_current_modes():
            nested = tuple(map(tuple, value._nested_tensor_size().tolist())) if value.is_nested else ()
        return torch.Size([value.numel()]), (1,), 0, nested
