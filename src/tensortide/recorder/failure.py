"""Explanation of errors inside the user's workload, in the user's terms."""

from __future__ import annotations

import contextlib
import gc
import linecache
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch

from tensortide.errors import CaptureError, DataDependent, ProgramFailed, TensortideError, headline
from tensortide.recorder.code_paths import is_internal
from tensortide.recorder.context import Tracker
from tensortide.recorder.fake_mode import UnreachableParameter
from tensortide.recorder.program_errors import of_program
from tensortide.recorder.readings import ReadSite
from tensortide.recorder.remedies import FAKE, Remedy
from tensortide.recorder.torch_compat import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from tensortide.timing.host import available_bytes

_NEEDS_VALUE = (DataDependentOutputException, DynamicOutputShapeException)
_ANYWHERE = (NameError, ImportError, OSError, SystemExit)
"""Errors that do not come from the kind of a tensor."""
_WRAPPERS = ("torch/nn/parallel/distributed.py", "torch/distributed/utils.py")
_NO_GPU = ("Torch not compiled with CUDA enabled", "Found no NVIDIA driver", "No CUDA GPUs are available")
_XFORMERS = "xformers/ops/fmha/dispatch.py"
_NESTED = "NestedTensorImpl"
_NO_MEMORY = "its data is not allocated yet"
_GROWTH = 4
"""Estimated bytes of a step per byte of its model: parameters, gradients and two states of the optimizer."""


@contextlib.contextmanager
def explained(what: str, name: str, remedy: Remedy | None, tracker: Tracker | None = None) -> Iterator[None]:
    """Turn any exception of the user's code into a CaptureError that says what failed, where, and what to do.

    ``remedy`` is the other way to capture the step; None on real tensors.
    """
    try:
        yield
    except DataDependent as error:
        error.resident = resident_bytes()
        raise
    except TensortideError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's code raises
        explanation = _explain(what, name, remedy, error, tracker)
        if remedy is not None and not isinstance(_cause(error), UnreachableParameter):
            explanation.resident = resident_bytes()
        raise explanation from error


def needs_value(
    what: str, name: str, reason: str, place: ReadSite | None, remedy: Remedy, where: str = ""
) -> DataDependent:
    """The error that ``what`` of ``name`` needs a value, read at ``place``."""
    where = where or (f"  at {place.file}:{place.line}: {place.text}" if place else "")
    give = f"Give it with --assume '{place}=NUMBER' (assume={{'{place}': NUMBER}}), " if place else ""
    error = DataDependent(
        f"the {what} of {name} needs the value of a tensor: {reason}\n{where}\n"
        f"Fake tensors have shapes but no values. {f'{give}or {remedy.instead}.' if give else remedy.sentence}"
    )
    error.place = str(place or "")
    error.reason = f"{reason}{f' at {place}' if place else ''}"
    error.resident = resident_bytes()
    return error


def resident_bytes() -> int:
    """Bytes that all existing fake tensors would take; those with symbols for sizes are of other programs."""
    sizes: dict[int, int] = {}
    for item in gc.get_objects():
        if type(item) is FakeTensor and item.layout == torch.strided:
            storage = item.untyped_storage()
            if isinstance(nbytes := storage.nbytes(), int):
                sizes[storage._cdata] = nbytes
    return sum(sizes.values())


def fits(resident: int | None) -> bool:
    """True if a step is likely to fit here on real tensors. It had ``resident`` bytes of fake ones when it stopped, and
    takes a few times as much with gradients, optimizer state and activations. False if the size is unknown."""
    available = available_bytes()
    return resident is not None and available is not None and _GROWTH * resident <= available // 2


def _explain(
    what: str, name: str, remedy: Remedy | None, error: BaseException, tracker: Tracker | None
) -> CaptureError:
    where = _where(error.__traceback__, tracker)
    cause = _cause(error)
    if isinstance(cause, UnreachableParameter):
        return CaptureError(
            f"the {what} of {name} uses a parameter that capture cannot reach: {cause}\n{where}\n"
            "It is kept by a library, or looked up by name. Let the step hold it: as a closure variable, a global or "
            "an attribute."
        )
    known = _of_values(what, name, remedy or FAKE, error, where) or _of_fake_forms(what, name, remedy, error, where)
    known = known or _of_gpu(what, name, remedy or FAKE, error, where)
    if known is not None:
        return known
    if (lacking := of_program(error, name)) is not None:
        return _error(lacking, lacking, ProgramFailed)
    text = headline(error) or "no message"
    hint = "" if remedy is None or isinstance(error, _ANYWHERE) else f"\n{remedy.if_only_here}"
    raised, place = f"{type(error).__name__}: {text}", _place(error)
    reason = raised if place is None else f"{raised} at {place}"
    return _error(reason, f"the {what} of {name} raised {raised}\n{where}{hint}", ProgramFailed)


def _of_values(what: str, name: str, other: Remedy, error: BaseException, where: str) -> CaptureError | None:
    """The error of what reads memory that fake tensors do not have."""
    cause = _cause(error)
    if isinstance(cause, _NEEDS_VALUE):
        return needs_value(
            what, name, f"the size of the result of {cause.func} depends on values", _place(cause), other, where
        )
    if _NO_MEMORY not in str(error):
        return None
    if any(_runs(error, file) for file in _WRAPPERS):
        return _error(
            "DistributedDataParallel reads memory",
            f"the {what} of {name} wraps its model in DistributedDataParallel, which reads memory that fake "
            f"tensors do not have\n{where}\n--ranks N (ranks=N) captures it as rank 0 of N; or {other.instead}.",
        )
    return needs_value(what, name, "a kernel reads its memory", _place(error), other, where)


def _of_fake_forms(
    what: str, name: str, remedy: Remedy | None, error: BaseException, where: str
) -> CaptureError | None:
    """The error of what has no fake form."""
    other, cause = remedy or FAKE, _cause(error)
    nested = isinstance(cause, UnsupportedOperatorException) and "nested" in str(cause.func).lower()
    if remedy is not None and (nested or _NESTED in str(error)):
        return _error(
            "nested tensors of the strided layout have no fake form",
            f"the {what} of {name} makes a nested tensor of the strided layout, which has no fake form\n{where}\n"
            f"Make it with layout=torch.jagged (nn.TransformerEncoder: enable_nested_tensor=False), or "
            f"{other.instead}.",
        )
    if remedy is not None and isinstance(error, NotImplementedError) and _runs(error, _XFORMERS):
        return _error(
            "kernels of xformers have no fake form",
            f"the {what} of {name} uses attention of xformers, whose kernels have no fake form\n{where}\n"
            "Put torch.nn.functional.scaled_dot_product_attention in its place: its kernels keep as much memory.",
        )
    if isinstance(cause, UnsupportedOperatorException):
        return _error(
            f"{cause.func} has no fake implementation",
            f"the {what} of {name} uses an op without a fake implementation: {cause.func}\n{where}\n"
            f"Register one (torch.library.register_fake) or {other.instead}.",
        )
    return None


def _of_gpu(what: str, name: str, other: Remedy, error: BaseException, where: str) -> CaptureError | None:
    """The error of what looks for a GPU."""
    if any(text in str(error) for text in _NO_GPU):
        return _error(
            "it uses a GPU, which is not here",
            f"the {what} of {name} uses a GPU, and there is none here: {error}\n{where}\n"
            'Capture it for a pretended one: --device cuda (device="cuda"), or --machine h100 for that of an H100.',
        )
    return None


def _error(reason: str, message: str, kind: type[CaptureError] = CaptureError) -> CaptureError:
    error = kind(message)
    error.reason = reason
    return error


def _runs(error: BaseException, file: str) -> bool:
    """True if ``error`` passed through code of ``file``."""
    return any(frame.f_code.co_filename.endswith(file) for frame, _ in traceback.walk_tb(error.__traceback__))


def _place(error: BaseException) -> ReadSite | None:
    """The innermost line of user code that led to ``error``."""
    places = [
        ReadSite(frame.f_code.co_filename, line, "", direct=True)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not is_internal(frame.f_code.co_filename)
    ]
    return places[-1] if places else None


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
    if tracker is not None:
        path, source = tracker.last
        modules = modules or path
        if source is not None:
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
