"""Settings of the process that the results of kernels depend on: a recomputed op runs under those of its first run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.backends import ContextProp

from tensortide.recorder.surroundings import replaced
from tensortide.run.torch_compat import C

Settings = tuple[Any, ...]

_FLAGS = (
    *("blas_preferred_backend", "cpu_allow_fp16_reduced_precision_reduction", "cudnn_allow_tf32", "cudnn_benchmark"),
    *("cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_accumulation", "cublas_allow_tf32"),
    *("cublas_allow_fp16_reduced_precision_reduction", "cudnn_deterministic", "cudnn_enabled"),
    *("float32_matmul_precision", "linalg_preferred_backend", "mkldnn_deterministic"),
    *("math_sdp_allow_fp16_bf16_reduction", "mkldnn_enabled", "nnpack_enabled"),
)
"""Names of ``torch._C._get_...`` and ``_set_...``, as far as this PyTorch has them."""
_PRECISIONS = [(backend, op) for backend in ("generic", "mkldnn", "cuda") for op in ("all", "conv", "rnn", "matmul")]
_SUBNORMAL = 5e-324


def _flushing() -> bool:
    """Return whether this thread takes denormal numbers as 0: PyTorch does not tell."""
    return _SUBNORMAL * 1.0 == 0.0


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


_set_deterministic: Any = C._set_deterministic_algorithms


def _be_deterministic(on: bool, warn_only: bool) -> None:
    _set_deterministic(on, warn_only=warn_only)


def _table() -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    """A way to ask for each setting and one to change it, by the name of the function of ``torch._C`` that does."""
    found: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {
        "_set_default_dtype": (torch.get_default_dtype, C._set_default_dtype),
        "set_num_threads": (torch.get_num_threads, C.set_num_threads),
        "set_flush_denormal": (_flushing, C.set_flush_denormal),
        "_set_deterministic_algorithms": (_deterministic, _be_deterministic),
    }
    for name in _FLAGS:
        if hasattr(C, f"_get_{name}") and hasattr(C, f"_set_{name}"):
            found[f"_set_{name}"] = getattr(C, f"_get_{name}"), getattr(C, f"_set_{name}")
    if hasattr(C, "_set_fp32_precision_setter"):
        for backend, op in _PRECISIONS:
            get = functools.partial(C._get_fp32_precision_getter, backend, op)
            with contextlib.suppress(RuntimeError):  # no such pair
                get()
                found[f"{backend}.{op}"] = get, functools.partial(C._set_fp32_precision_setter, backend, op)
    return found


_TABLE = _table()
_UNLISTED = ("_set_default_tensor_type", "_set_fp32_precision_setter")
"""Functions of ``torch._C`` that change settings of the table, too."""


def snapshot() -> Settings:
    """Settings as they are now."""
    return tuple([get() for get, _ in _TABLE.values()])


_THREADS, _FLUSHING = (list(_TABLE).index(name) for name in ("set_num_threads", "set_flush_denormal"))


def stale(settings: Settings) -> bool:
    """Return whether one of those that are changed without PyTorch's knowledge, by OpenMP say, or by a function that
    the program has taken from PyTorch before, is another one now."""
    return bool(torch.get_num_threads() != settings[_THREADS] or _flushing() != settings[_FLUSHING])


@contextlib.contextmanager
def applied(settings: Settings) -> Iterator[None]:
    """Let ``settings`` hold while active."""
    before = snapshot()
    try:
        _change(before, settings)
        yield
    finally:
        _change(snapshot(), before)


def _change(now: Settings, wanted: Settings) -> None:
    for (_, change), old, new in zip(_TABLE.values(), now, wanted, strict=True):
        if old != new:
            change(*new) if isinstance(new, tuple) else change(new)


@contextlib.contextmanager
def settings_seen(changed: Callable[[Settings], None]) -> Iterator[None]:
    """Tell ``changed`` of the settings now, and whenever the program has changed one."""
    with contextlib.ExitStack() as stack:
        for name in (*_TABLE, *_UNLISTED):
            for owner in (C, torch):
                original = getattr(owner, name, None)
                if original is not None:
                    stack.enter_context(replaced(owner, name, _noting(original, changed)))
        own: Any = ContextProp
        stack.enter_context(replaced(own, "__set__", _noting(own.__set__, changed)))
        changed(snapshot())
        yield


def _noting(change: Callable[..., Any], changed: Callable[[Settings], None]) -> Callable[..., Any]:
    @functools.wraps(change)
    def noted(*args: Any, **kwargs: Any) -> Any:
        result = change(*args, **kwargs)
        changed(snapshot())
        return result

    return noted
