"""Calls of other libraries' ops, which PyTorch may take apart before a dispatch mode sees them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from tensortide.recorder.surroundings import replaced
from tensortide.recorder.torch_compat import OpOverload, OpOverloadPacket
from tensortide.run.block import ABOVE, tensors_of
from tensortide.run.operators import believed
from tensortide.run.runtime import Runtime
from tensortide.run.torch_compat import is_excluded


@contextlib.contextmanager
def foreign_calls_seen(runtime: Runtime) -> Iterator[None]:
    """Treat the arguments of ops whose schemas are not believed as overwritten.

    Where such an op has a kernel for the device, the mode sees it. The kernel of one without (``m.def("scale",
    &scale)``) runs right away; the mode sees only the ops of PyTorch in it, and not what it writes by address.
    """
    with contextlib.ExitStack() as stack:
        for kind in (OpOverload, OpOverloadPacket):
            stack.enter_context(replaced(kind, "__call__", _caller(runtime, kind.__call__)))
        yield


def _caller(runtime: Runtime, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(op: Any, /, *args: Any, **kwargs: Any) -> Any:
        if not _believed(op) and not is_excluded(ABOVE):
            for tensor in tensors_of((*args, *kwargs.values())):
                runtime.access.expose(tensor, lasting=True)
        return original(op, *args, **kwargs)

    return call


@functools.cache
def _believed(op: Any) -> bool:
    """True if the schemas of ``op``, or of all its overloads, are believed."""
    overloads = [op] if isinstance(op, OpOverload) else [getattr(op, name) for name in op.overloads()]
    return all(map(believed, overloads))
