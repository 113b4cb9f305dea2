"""Calls of composite ops, as a step makes them before the dispatcher takes them apart.

A recorder sees the ops that kernels run: ``linear`` reaches it as ``t`` and ``addmm``, and a ``dropout`` that drops
nothing not at all. While ``composites_recorded`` is open, every composite op of ``aten`` passes a handler first, which
notes the call and goes on to what PyTorch does anyway. Handlers stand at a dispatch key that no tensor has, registered
once per process, at the first capture. This thread includes the key while a step is recorded, except within kernels.
Calls that PyTorch's Python methods leave out are in ``short_cuts.py``.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from msgspec.structs import replace

from tensortide.graph.composites import Composite, Composites
from tensortide.graph.model import OUTSIDE, TENSOR, Call, Op, Value
from tensortide.recorder.context import Tracker
from tensortide.recorder.recorder import Recorder
from tensortide.recorder.schema import schema_of
from tensortide.recorder.short_cuts import short_cuts_seen
from tensortide.recorder.torch_compat import (
    ABOVE_AUTOGRAD,
    DispatchKey,
    has_kernel,
    key_above_autograd,
    key_excluded,
    key_included,
    keys_below,
    modes,
    op_names,
)

_recordings: list[CompositeCalls] = []
"""Those that are open, the innermost last."""


class CompositeCalls:
    """The calls of composite ops during a recording, in the order in which they begin."""

    def __init__(self, recorder: Recorder, tracker: Tracker) -> None:
        self._recorder, self._tracker = recorder, tracker
        self._ids: dict[tuple[object, ...], int] = {}
        self._calls: list[Call] = []
        self._runs: list[Composite] = []
        self._now = OUTSIDE

    def table(self, ops: Sequence[Op]) -> Composites:
        """The table of the calls. One that runs ``ops`` belongs to the module of the first."""
        runs = [run if run.start == run.stop else replace(run, module=ops[run.start].module) for run in self._runs]
        return Composites(tuple(self._calls), tuple(runs))

    def record(self, func: Any, proceed: Callable[[], Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Record the call of ``func`` that ``proceed`` makes. Returns its result."""
        if self._recorder.paused or not modes():
            return proceed()
        index, parent, start = len(self._runs), self._now, len(self._recorder.ops)
        self._runs.append(_NOT_ENDED)
        self._now = index
        result = None
        try:
            result = proceed()
        finally:
            self._now = parent
            inputs: list[int] = []
            outputs: list[int] = []
            call = self._call(func, args, kwargs, result, inputs, outputs)
            ran = start, len(self._recorder.ops)
            self._runs[index] = Composite(call, tuple(inputs), tuple(outputs), *ran, parent, self._tracker.running)
        return result

    def _call(
        self,
        func: Any,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        result: Any,
        inputs: list[int],
        outputs: list[int],
    ) -> int:
        """Number of the call, whose tensors are appended to ``inputs`` and ``outputs``."""
        kinds: list[object] = []
        values = tuple([self._encode(arg, inputs, kinds) for arg in args])
        named = tuple([(name, self._encode(arg, inputs, kinds)) for name, arg in kwargs.items()])
        returns = self._encode(result, outputs, kinds)
        key = (func, values, named, returns, tuple(kinds))
        call = self._ids.get(key)
        if call is None:
            call = self._ids[key] = len(self._calls)
            self._calls.append(schema_of(func).call(values, named, returns))
        return call

    def _encode(self, value: Any, tensors: list[int], kinds: list[object]) -> Value:
        if isinstance(value, torch.Tensor):
            tensors.append(self._recorder.known(value))
            return TENSOR
        if isinstance(value, (list, tuple)):
            return tuple([self._encode(item, tensors, kinds) for item in value])
        return self._recorder.encode(value, tensors, kinds)


_NOT_ENDED = Composite(0, (), (), 0, 0)


_left_out = contextvars.ContextVar("left_out", default=False)


@contextlib.contextmanager
def composites_left_out() -> Iterator[None]:
    """Record no calls of composite ops while active, for captures of which the ops alone count."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


@contextlib.contextmanager
def composites_recorded(recorder: Recorder, tracker: Tracker, *, eager: bool) -> Iterator[CompositeCalls | None]:
    """Record the calls of composite ops while active. Yields None where they are left out, or cannot be seen: this
    PyTorch is too old, or the step runs what a compiler has taken apart before."""
    if not eager or _left_out.get() or not _handled():
        yield None
        return
    found = CompositeCalls(recorder, tracker)
    _recordings.append(found)
    recorder.listening = key_above_autograd
    try:
        with key_included(), short_cuts_seen(found.record):
            yield found
    finally:
        recorder.listening = None
        _recordings.remove(found)


# -- handlers ----------------------------------------------------------------------------------------


_LIBRARIES: list[torch.library.Library] = []
"""What holds the registrations, for the life of the process."""


@functools.cache
def _handled() -> bool:
    """Register the handlers. Returns False if this PyTorch takes none there, or another package's are there."""
    if key_above_autograd is None:
        return False
    others, own = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    _LIBRARIES.extend((others, own))
    below = keys_below(key_above_autograd)
    try:
        others.fallback(torch.library.fallthrough_kernel, ABOVE_AUTOGRAD)
    except RuntimeError:  # another package has taken the key
        return False
    for name in op_names():
        if name.startswith("aten::") and has_kernel(name, DispatchKey.CompositeImplicitAutograd):
            func = _overload(name)
            if _makes_tensors(func):
                own.impl(name, _handler(func, below), ABOVE_AUTOGRAD, with_keyset=True)
    return True


def _overload(name: str) -> Any:
    base, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


_NO_OPS = ("requires_grad_", "data")
"""Accessors of a tensor's state, which PyTorch lists among its ops."""


def _makes_tensors(func: Any) -> bool:
    schema = func._schema
    return schema.name.removeprefix("aten::") not in _NO_OPS and any("Tensor" in str(r.type) for r in schema.returns)


def _handler(func: Any, below: Any) -> Callable[..., Any]:
    onwards = func.redispatch
    tensors = [i for i, argument in enumerate(func._schema.arguments) if "Tensor" in str(argument.type)]

    def handle(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if _NUMBERS.isdisjoint([type(args[i]) for i in tensors if i < len(args)]):
            proceed = functools.partial(onwards, keys & below, *args, **kwargs)
        else:
            proceed = functools.partial(_from_the_top, func, *args, **kwargs)
        return _recordings[-1].record(func, proceed, args, kwargs) if _recordings else proceed()

    return handle


_NUMBERS = frozenset((bool, int, float, complex))


def _from_the_top(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Call ``func``, which PyTorch made the handler call with a number in place of the tensor that it is: only a whole
    call turns it back."""
    with key_excluded():
        return func(*args, **kwargs)
