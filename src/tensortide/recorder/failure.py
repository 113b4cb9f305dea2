"""Errors inside the user's workload, explained once and in the user's terms."""

from __future__ import annotations

import contextlib
import linecache
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from tensortide.errors import CaptureError, DataDependent, TensortideError
from tensortide.recorder.context import Tracker, is_internal
from tensortide.recorder.fake_mode import UnreachableParameter

_NEEDS_VALUE = (DataDependentOutputException, DynamicOutputShapeException)
_REFUSALS = {
    ".numpy() is not supported for tensor subclasses": "numpy",
    "unsupported format string passed to FakeTensor.__format__": "format",
}


@contextlib.contextmanager
def explained(what: str, name: str, real: bool, tracker: Tracker | None = None) -> Iterator[None]:
    """Turn any exception of the user's code into one CaptureError that says what, where and what next."""
    try:
        yield
    except TensortideError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises is the user's to know
        raise _explain(what, name, real, error, tracker) from error


def _explain(what: str, name: str, real: bool, error: BaseException, tracker: Tracker | None) -> CaptureError:
    where = _where(error.__traceback__, tracker)
    cause = _cause(error)
    read = getattr(cause, "func", None) if isinstance(cause, _NEEDS_VALUE) else None
    if read is None:  # a value or property that a fake tensor refused to give before any op ran
        read = next((asked for refusal, asked in _REFUSALS.items() if refusal in str(error)), None)
    if read is not None:
        return DataDependent(
            f"the {what} of {name} needs the value of a tensor: {read}\n{where}\n"
            "Fake tensors have shapes but no values. Capture on real tensors with --real (real=True), "
            "or take the read out of the step (for example, return the loss instead of calling loss.item())."
        )
    if isinstance(cause, UnsupportedOperatorException):
        return CaptureError(
            f"the {what} of {name} uses an op without a fake implementation: {cause.func}\n{where}\n"
            "Register one (torch.library.register_fake) or capture on real tensors with --real (real=True)."
        )
    if isinstance(cause, UnreachableParameter):
        return CaptureError(
            f"the {what} of {name} uses a parameter that capture cannot reach: {cause}\n{where}\n"
            "It is kept by a library, or looked up by name. Let the step hold it: as a closure variable, a global or "
            "an attribute."
        )
    text = str(error).strip().split("\n")[0] or "no message"
    hint = "" if real else "\nIf it only fails on fake tensors, try --real (real=True)."
    return CaptureError(f"the {what} of {name} raised {type(error).__name__}: {text}\n{where}{hint}")


def _cause(error: BaseException) -> BaseException:
    """The fake-tensor exception behind ``error``, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, (*_NEEDS_VALUE, UnsupportedOperatorException, UnreachableParameter)):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


def _where(trace: TracebackType | None, tracker: Tracker | None) -> str:
    """``  at file:line in function: code`` and the module path of the innermost user frame."""
    place, modules = "", _module_path(trace)
    for frame, line in traceback.walk_tb(trace):
        code = frame.f_code
        if not is_internal(code.co_filename):
            text = linecache.getline(code.co_filename, line).strip()[:160]
            place = f"  at {code.co_filename}:{line} in {code.co_qualname}" + (f": {text}" if text else "")
    if tracker is not None and tracker.last is not None:
        path, source = tracker.last
        modules = modules or path
        place = place or f"  at {source.file}:{source.line} in {source.function}: {source.code}"
    return "\n".join(line for line in (place, f"  in module {modules}" if modules else "") if line)


def _module_path(trace: TracebackType | None) -> str:
    """Dotted path of the module calls that were active, by attribute names."""
    path: list[str] = []
    stack: list[Any] = []
    for frame, _ in traceback.walk_tb(trace):
        module = frame.f_locals.get("self")
        if frame.f_code.co_name != "_call_impl" or not isinstance(module, torch.nn.Module):
            continue
        if stack:
            names = {id(child): name for name, child in stack[-1].named_modules()}
            path.append(names.get(id(module), type(module).__name__))
        else:
            path.append(type(module).__name__)
        stack.append(module)
    return ".".join(path)
